// The first step of the gradient behind a convolution, taken where the convolution makes its input's gradient dX:
//
//   dZ = r(dX + other)   r: the gradient of a rectifier, RECTIFIED as in batchnorm/gradient_rows.cuh
//
// With SUMS 1 what made the convolution's input is a batch normalisation, whose gradient begins so, and needs two sums
// of each column:   sums[0, z, j] = sum of dZ,   sums[1, z, j] = sum of dZ (X - mean), over the rows of part z; with
// FROM_OUTPUT and FROM_SUM of dZ (X - mean) / sqrt(var + eps). There is one part per block among those that share output
// channels, or with SPLIT_K 1 one per tile of output pixels and images. Rows are added in a fixed order.
//
// other, X, Y, residual: arrays of the form of dX, of TYPE; mean, var, weight, bias (GN,). Those that RECTIFIED and the
// macros do not ask for may be null.
// Macros: TYPE float | bfloat16, that of dX; VECTOR 2; RECTIFIED; SUMS; OTHER (1: other is added); MAGNITUDE (1:
// `magnitude` gets the bits of the largest finite magnitude of dZ, and the blocks meet in two words `state`, which are 0
// before and again at the end). With SUMS 0, RECTIFIED is FROM_Y.
// Static shared memory: FirstStep::Shared. Needs GN in whole packs of 8.
#pragma once
#include "batchnorm/gradient_rows.cuh"
#include "common/fp16_terms.cuh"
#include "common/largest.cuh"
#include "common/quad.cuh"
#include "conv2d/sm90/statistics.cuh"

constexpr bool OTHER = ALPHA_OTHER, MAGNITUDE = ALPHA_MAGNITUDE;
static_assert(V == 2 && !RAGGED, "a lane holds pairs of columns, of whole fragments");

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
  static constexpr bool ACTIVE = true, SUMS = ALPHA_SUMS;
  static_assert(SUMS || RECTIFIED == FROM_Y, "without sums there is a rectifier alone");

  struct Maps {
    const T *other, *X, *Y, *residual;
  };
  struct Columns {
    const float *mean, *var, *weight, *bias;
    float eps, smallest, slope, bound;
  };
  struct Largest {
    unsigned *magnitude, *state;
  };

  __device__ __forceinline__ FirstStep(const Maps& maps, const Columns& columns, const Largest& largest)
      : maps(maps), columns(columns), target(largest) {}

 private:
  static constexpr bool NORMALIZES = SUMS && !UNDONE, READS_X = NORMALIZES,
                        READS_Y = RECTIFIED == FROM_Y || UNDONE, READS_RESIDUAL = RECTIFIED == FROM_SUM;
  static constexpr int MAPS = OTHER + READS_X + READS_Y + READS_RESIDUAL, GROUPS = BN / GROUP_COLUMNS;
  static constexpr int ROWS = 2;  // that a thread has of 64
  static constexpr int PAIRS = SUMS ? BN / 2 : 1;
  // Groups that a thread reads ahead, as the registers allow.
  static constexpr int MOST = 4 / MAPS, DEPTH = MOST < GROUPS ? MOST : GROUPS;
  using Group = RowPairs[ROWS][MAPS];

  Maps maps;
  Columns columns;
  Largest target;
  unsigned largest = 0;

 public:
  // Numbers of the columns of the block, two at a time, and the sums of each warp.
  struct Shared {
    Pack<float, 2> mean[PAIRS], scale[PAIRS], bias[PAIRS];
    WarpSums<SUMS ? SUMS_WIDTH : 1> sums;
    unsigned words[CONSUMER_WARPS];
  };

  // Has a row of each map brought to the L2 cache, while the products are under way. -1: there is none.
  __device__ __forceinline__ void prefetch(long row, int width) const {
    if (row < 0) return;
    const int bytes = width * int(sizeof(T));
    if (OTHER) prefetch_l2(maps.other + row, bytes);
    if (READS_X) prefetch_l2(maps.X + row, bytes);
    if (READS_Y) prefetch_l2(maps.Y + row, bytes);
    if (READS_RESIDUAL) prefetch_l2(maps.residual + row, bytes);
  }

  // Makes dZ of the sums of a tile, whose scales are undone. place_of(row): that of a row of the tile in the maps, or
  // -1. `first`: the sums of columns begin anew. All consumers call it.
  template <class PlaceOf>
  __device__ __forceinline__ void operator()(Shared& shared, float (&sum)[MI][R], const GemmProblem& p, int j0,
                                             bool first, PlaceOf place_of) {
    const int thread = hide_from_optimizer(threadIdx.x), warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
    const int width = p.GN - j0;
    if (SUMS && first) describe_columns(shared, j0, width);
    const Unscale unscale = IS_FP16 ? Unscale(half_scale(*p.absmax_a), half_scale(*p.absmax_b)) : Unscale();
#pragma unroll
    for (int m = 0; m < MI; m++) {
      long places[ROWS];
#pragma unroll
      for (int i = 0; i < ROWS; i++) places[i] = place_of((warp / 4 * MI + m) * 64 + warp % 4 * 16 + g + i * 8);
      Group groups[GROUPS];  // of which DEPTH are in registers at a time
#pragma unroll
      for (int q = 0; q < DEPTH; q++) load(groups[q], places, q, width, t);
#pragma unroll
      for (int q = 0; q < GROUPS; q++) {
        take(shared, groups[q], sum[m], places, unscale, q, width, t, first && m == 0);
        if (q + DEPTH < GROUPS) load(groups[q + DEPTH], places, q + DEPTH, width, t);
      }
    }
  }

  // Writes the sums as part z. All consumers call it; a tile that is added afterwards must be `first`.
  __device__ __forceinline__ void write_sums(const Shared& shared, const GemmProblem& p, int j0, int z) const {
    named_barrier_sync(BARRIER, CONSUMERS);
    for (int column = threadIdx.x; column < BN && j0 + column < p.GN; column += CONSUMERS) {
      const float2 total = sum_of_warps(shared.sums, column);
      float* part = p.statistics + (long)z * p.GN + j0 + column;
      part[0] = total.x, part[(long)p.statistics_parts * p.GN] = total.y;
    }
    named_barrier_sync(BARRIER, CONSUMERS);  // before a warp begins the sums of the next tile
  }

  // Writes the largest magnitude. All consumers call it at the end.
  __device__ __forceinline__ void end(Shared& shared) const {
    if (!MAGNITUDE) return;
    unsigned word = warp_largest(largest);
    if (threadIdx.x % 32 == 0) shared.words[threadIdx.x / 32] = word;
    named_barrier_sync(BARRIER, CONSUMERS);
    if (threadIdx.x > 0) return;
#pragma unroll
    for (int w = 1; w < CONSUMER_WARPS; w++) word = max(word, shared.words[w]);
    write_largest_of_blocks(target.magnitude, target.state, word, gridDim.x);
  }

 private:
  static constexpr int BARRIER = 2;

  // The numbers of the columns from j0 on.
  __device__ __forceinline__ void describe_columns(Shared& shared, int j0, int width) const {
    const int i = threadIdx.x, c = j0 + 2 * i;
    if (i < BN / 2 && 2 * i < width) {
      if (UNDONE) {
        const Undone<2> undone(columns.weight, columns.bias, columns.slope, columns.smallest, c);
        shared.scale[i] = undone.inverse, shared.bias[i] = undone.bias;
      } else {
        const float* bias = RECTIFIED == FROM_X ? columns.bias : nullptr;
        const Normalization<2> normalized(columns.mean, columns.var, columns.weight, bias, columns.eps, c);
        shared.mean[i] = normalized.mean, shared.scale[i] = normalized.scale, shared.bias[i] = normalized.bias;
      }
    }
    named_barrier_sync(BARRIER, CONSUMERS);
  }

  // Begins to read the q-th group of columns of all maps.
  __device__ __forceinline__ void load(Group& group, const long (&places)[ROWS], int q, int width, int t) const {
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      int m = 0;
      auto read = [&](const T* map) {
        group[i][m++].load(places[i] < 0 ? nullptr : map + places[i] + q * GROUP_COLUMNS,
                              width - q * GROUP_COLUMNS, t);
      };
      if (OTHER) read(maps.other);
      if (READS_X) read(maps.X);
      if (READS_Y) read(maps.Y);
      if (READS_RESIDUAL) read(maps.residual);
    }
  }

  // Makes dZ of the q-th group of columns.
  __device__ __forceinline__ void take(Shared& shared, Group& group, float (&sum)[R], const long (&places)[ROWS],
                                       const Unscale& unscale, int q, int width, int t, bool first) {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int m = 0; m < MAPS; m++) group[i][m].arrange(t);
#pragma unroll
    for (int f = 0; f < GROUP_FRAGMENTS; f += 2) {
      float v[8] = {};  // v[c]: the sum of a column, v[4 + c]: that of its products
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int fragment = q * GROUP_FRAGMENTS + f + h, column = fragment * 8 + t * 2;
        Normalization<2> normalized;
        Undone<2> undone;
        if (SUMS) {
          normalized.mean = shared.mean[column / 2], normalized.scale = shared.scale[column / 2];
          normalized.bias = undone.bias = shared.bias[column / 2], undone.inverse = shared.scale[column / 2];
          undone.steepness = 1 / columns.slope;
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
          if (places[i] < 0 || fragment * 8 >= width) continue;
          float* values = &sum[fragment * 4 + i * 2];
          int m = 0;
          auto next = [&] { return group[i][m++].pair(f + h); };
          const Pack<float, 2> none = {};
          GradientRow row = {};
          row.g = OTHER ? next() : none;
          row.x = READS_X ? next() : none;
          row.y = READS_Y ? next() : none;
          row.residual = READS_RESIDUAL ? next() : none;
#pragma unroll
          for (int e = 0; e < 2; e++) row.g.v[e] += IS_FP16 ? unscale(values[e]) : values[e];
          const Pack<float, 2> dZ = rectified_gradient(row, normalized, {columns.slope, columns.bound});
#pragma unroll
          for (int e = 0; e < 2; e++) {
            values[e] = dZ.v[e];
            if (MAGNITUDE) largest = max(largest, finite_magnitude(dZ.v[e]));
            if (SUMS) v[h * 2 + e] += dZ.v[e], v[4 + h * 2 + e] += dZ.v[e] * centred(row, normalized, undone, e);
          }
        }
      }
      if constexpr (SUMS) add_columns(shared.sums, q * GROUP_FRAGMENTS + f, v, first);
    }
  }
};
