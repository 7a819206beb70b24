// The first step of a gradient (sm90/step_operands.cuh), where a lane holds pairs of neighbouring columns.
// Static shared memory: FirstStep::Shared.
#pragma once
#include "common/fp16_terms.cuh"
#include "common/quad.cuh"
#include "conv2d/sm90/statistics.cuh"
#include "conv2d/sm90/step_operands.cuh"

// Fragments of 8 columns that a lane reads together, in 4 words.
constexpr int GROUP_FRAGMENTS = 8 / int(sizeof(T)), GROUP_COLUMNS = 8 * GROUP_FRAGMENTS;

// What a lane reads of a group of columns of a row: the pairs of columns 8 i + 2 t and 8 i + 2 t + 1 of fragment i.
class RowPairs {
  uint32_t words[4];

 public:
  // Begins to read `row`, of which only `columns`, a multiple of 8, are there; null: none, and zeros take their place.
  __device__ __forceinline__ void load(const T* row, int columns, int t) {
    if constexpr (sizeof(T) == 2) {  // all of fragment t
      const bool inside = row != nullptr && t * 8 < columns;
      const uint4 v = inside ? *reinterpret_cast<const uint4*>(row + t * 8) : make_uint4(0, 0, 0, 0);
      words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    } else {
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const bool inside = row != nullptr && i * 8 < columns;
        const uint2 v = inside ? *reinterpret_cast<const uint2*>(row + i * 8 + t * 2) : make_uint2(0, 0);
        words[2 * i] = v.x, words[2 * i + 1] = v.y;
      }
    }
  }
  // The same of Y as a copy in fp16, beside a T of 4 bytes: a word for each pair.
  __device__ __forceinline__ void load_copy(const uint16_t* row, int columns, int t) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const bool inside = row != nullptr && i * 8 < columns;
      words[i] = inside ? *reinterpret_cast<const uint32_t*>(row + i * 8 + t * 2) : 0;
    }
  }
  __device__ __forceinline__ Pack<float, 2> kept(int i, float factor) const {
    return Y_HALF ? kept_pair(words[i], factor) : pair(i);
  }
  // Waits for what was read. All lanes of a warp call it.
  __device__ __forceinline__ void arrange(int t) {
    if constexpr (sizeof(T) == 2) transpose_quad(words, t);
  }
  __device__ __forceinline__ Pack<float, 2> pair(int i) const {
    Pack<float, 2> result;
    if constexpr (sizeof(T) == 2)
      widen_pair(words[i], result.v[0], result.v[1]);
    else
      result.v[0] = __uint_as_float(words[2 * i]), result.v[1] = __uint_as_float(words[2 * i + 1]);
    return result;
  }
};

class FirstStep {
 public:
  static constexpr bool ACTIVE = true, SUMS = STEP_SUMS;

  __device__ __forceinline__ explicit FirstStep(const StepOperands& operands) : operands(operands) {}

 private:
  static constexpr int GROUPS = BN / GROUP_COLUMNS;
  static constexpr int ROWS = 2;  // that a thread has of 64
  static constexpr int PAIRS = SUMS ? BN / 2 : 1;
  using Group = RowPairs[ROWS][MAPS];
  // Everything is read before the products begin, if the registers hold it beside the sums, so that nobody waits for
  // it. Otherwise the rows are brought to the L2 cache then, and read in groups, of which DEPTH are under way at a
  // time.
  static constexpr int WORDS = MI * GROUPS * ROWS * (4 * MAPS - 2 * (Y_HALF && READS_Y)),
                       SUMS_HELD = MI * R * (IS_FP16 ? 2 : 1), SPARE = CONSUMER_REGISTERS - 56 - SUMS_HELD;
  static constexpr bool AT_ONCE = WORDS <= SPARE;
  static constexpr int MOST = SUMS_HELD < 128 ? 4 / MAPS : 1, DEPTH = MOST < 1 ? 1 : MOST;

  StepOperands operands;
  unsigned largest = 0;

 public:
  // Numbers of the columns of the block, two at a time, and the sums of each warp.
  struct Shared {
    Pack<float, 2> mean[PAIRS], scale[PAIRS], bias[PAIRS];
    WarpSums<SUMS ? SUMS_WIDTH : 1> sums;
    unsigned words[CONSUMER_WARPS];
  };

  // What a thread reads of a tile.
  using Ahead = Group[MI][GROUPS];

  // Begins to read the maps of a tile, before the products. place_of(row): the place of a row of the tile in the maps,
  // or -1. All consumers call it.
  template <class PlaceOf>
  __device__ __forceinline__ void begin(Ahead& ahead, int width, PlaceOf place_of) const {
    if constexpr (AT_ONCE) {
#pragma unroll
      for (int m = 0; m < MI; m++) {
        long places[ROWS];
        find_places(places, m, place_of);
#pragma unroll
        for (int q = 0; q < GROUPS; q++) load(ahead[m][q], places, q, width);
      }
    } else if (threadIdx.x < BM) {
      const long row = place_of(threadIdx.x);
      if (row < 0) return;
      const int columns = min(BN, width);
      operands.each_map([&](const auto* map) { prefetch_l2(map + row, columns * int(sizeof(*map))); });
    }
  }

  // Makes dZ of the sums of a tile, whose scales are undone. `first`: the sums of columns begin anew. All consumers
  // call it.
  template <class PlaceOf>
  __device__ __forceinline__ void operator()(Shared& shared, Ahead& ahead, float (&sum)[MI][R], const GemmProblem& p,
                                             int j0, bool first, PlaceOf place_of) {
    const int width = p.GN - j0;
    if (SUMS && first) describe_columns(shared, j0, width);
    const Unscale unscale = IS_FP16 ? Unscale(half_scale(*p.absmax_a), half_scale(*p.absmax_b)) : Unscale();
    const KnownRectifier<float, SLOPED> rectifier(operands.columns.slope, operands.columns.bound);
    const float factor = READS_Y ? kept_factor(operands.maps.Y_magnitude) : 1;
    long places[MI][ROWS];
#pragma unroll
    for (int m = 0; m < MI; m++) {
      find_places(places[m], m, place_of);
#pragma unroll
      for (int i = 0; i < ROWS; i++)  // rows outside of the maps add nothing; columns outside are not stored
        if (places[m][i] < 0)
#pragma unroll
          for (int e = 0; e < R / 2; e++) sum[m][e / 2 * 4 + i * 2 + e % 2] = 0;
    }
#pragma unroll
    for (int n = 0; n < DEPTH; n++)
      if (!AT_ONCE) load(ahead[n % MI][n / MI], places[n % MI], n / MI, width);
#pragma unroll
    for (int q = 0; q < GROUPS; q++) {
      ColumnSums sums = {};
#pragma unroll
      for (int m = 0; m < MI; m++) {
        take(shared, ahead[m][q], sum[m], sums, unscale, rectifier, factor, q);
        constexpr int ALL = MI * GROUPS;
        const int n = q * MI + m + DEPTH;
        if (AT_ONCE) continue;
        __syncwarp();  // no load of a later group comes sooner: it would need more registers
        if (n < ALL) load(ahead[n % MI][n / MI], places[n % MI], n / MI, width);
      }
      if constexpr (SUMS)
#pragma unroll
        for (int f = 0; f < GROUP_FRAGMENTS; f += 2)
          add_columns(shared.sums, q * GROUP_FRAGMENTS + f, sums[f / 2], first);
    }
  }

  // Writes the sums as part z. All consumers call it. A tile that is added afterwards must be `first`: then a barrier
  // comes before its sums, so these are read by then.
  __device__ __forceinline__ void write_sums(const Shared& shared, const GemmProblem& p, int j0, int z) const {
    named_barrier_sync(BARRIER, CONSUMERS);
    for (int column = threadIdx.x; column < BN && j0 + column < p.GN; column += CONSUMERS) {
      const float2 total = sum_of_warps(shared.sums, column);
      float* part = p.statistics + (long)z * p.GN + j0 + column;
      part[0] = total.x, part[(long)p.statistics_parts * p.GN] = total.y;
    }
  }

  // Writes the largest magnitude. All consumers call it at the end.
  __device__ __forceinline__ void end(Shared& shared) const {
    write_step_magnitude(largest, shared.words, operands.target);
  }

 private:
  static constexpr int BARRIER = 2;

  // The numbers of the columns from j0 on.
  __device__ __forceinline__ void describe_columns(Shared& shared, int j0, int width) const {
    const int i = threadIdx.x, c = j0 + 2 * i;
    if (i < BN / 2 && 2 * i < width) {
      const StepOperands::Columns& columns = operands.columns;
      if (UNDONE) {
        const Undone<2> undone(columns.weight, columns.bias, columns.slope, columns.smallest, c, sizeof(T) == 2);
        shared.scale[i] = undone.inverse, shared.bias[i] = undone.bias;
      } else {
        const Normalization<2> normalized(columns.mean, columns.var, columns.weight, operands.bias_of_z(), columns.eps,
                                          c);
        shared.mean[i] = normalized.mean, shared.scale[i] = normalized.scale, shared.bias[i] = normalized.bias;
      }
    }
    named_barrier_sync(BARRIER, CONSUMERS);
  }

  // The places of a thread's rows, of the m-th 64 rows of its warpgroup.
  template <class PlaceOf>
  __device__ __forceinline__ void find_places(long (&places)[ROWS], int m, PlaceOf place_of) const {
    const int thread = hide_from_optimizer(threadIdx.x), warp = thread / 32, g = thread % 32 / 4;
#pragma unroll
    for (int i = 0; i < ROWS; i++) places[i] = place_of((warp / 4 * MI + m) * 64 + warp % 4 * 16 + g + i * 8);
  }

  // Begins to read the q-th group of columns of all maps.
  __device__ __forceinline__ void load(Group& group, const long (&places)[ROWS], int q, int width) const {
    const int t = hide_from_optimizer(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      int m = 0;
      operands.each_map([&](const auto* map) {
        const auto* row = places[i] < 0 ? nullptr : map + places[i] + q * GROUP_COLUMNS;
        if constexpr (sizeof(*map) < sizeof(T))
          group[i][m++].load_copy(row, width - q * GROUP_COLUMNS, t);
        else
          group[i][m++].load(row, width - q * GROUP_COLUMNS, t);
      });
    }
  }

  // For each two fragments of a group: v[c], the sum of a column over the rows of a thread, and v[4 + c], that of its
  // products.
  using ColumnSums = float[GROUP_FRAGMENTS / 2][8];

  // Makes dZ of the q-th group of columns, of 64 rows.
  __device__ __forceinline__ void take(const Shared& shared, Group& group, float (&sum)[R], ColumnSums& sums,
                                       const Unscale& unscale, const KnownRectifier<float, SLOPED>& rectifier,
                                       float factor, int q) {
    const int t = hide_from_optimizer(threadIdx.x) % 4;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int m = 0; m < MAPS; m++) group[i][m].arrange(t);
#pragma unroll
    for (int f = 0; f < GROUP_FRAGMENTS; f++) {
      const int fragment = q * GROUP_FRAGMENTS + f, pair = fragment * 4 + t;
      Normalization<2> normalized;
      Undone<2> undone;
      if (SUMS) {
        normalized.mean = shared.mean[pair], normalized.scale = shared.scale[pair];
        normalized.bias = undone.bias = shared.bias[pair], undone.inverse = shared.scale[pair];
        undone.steepness = 1 / operands.columns.slope;
      }
#pragma unroll
      for (int i = 0; i < ROWS; i++) {
        float *values = &sum[fragment * 4 + i * 2], *v = &sums[f / 2][f % 2 * 2];
        GradientRow row =
            take_pairs([&](int m) { return group[i][m].pair(f); }, [&](int m) { return group[i][m].kept(f, factor); });
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float dX = IS_FP16 ? unscale(values[e]) : values[e];
          row.g.v[e] = OTHER ? row.g.v[e] + dX : dX;
        }
        const Pack<float, 2> dZ = rectified_gradient(row, normalized, rectifier);
#pragma unroll
        for (int e = 0; e < 2; e++) {
          values[e] = dZ.v[e];
          if (MAGNITUDE) largest = max(largest, finite_magnitude(dZ.v[e]));
          if (SUMS) v[e] += dZ.v[e], v[4 + e] += dZ.v[e] * centred(row, normalized, undone, e);
        }
      }
    }
  }
};
