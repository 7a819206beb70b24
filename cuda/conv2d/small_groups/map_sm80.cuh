// Convolution with groups of few channels on tensor cores (mma.sync): the results of strips, row after row.
//
// GEMM: a fragment is 16 results (two pixel groups of eight neighbours) x 8 channels; K are the channels of the source
// that these 8 channels read, for each tap. Groups of 4 channels are multiplied in pairs, with zeros for the other
// group's filters.
// A warp has 16 MT results x 8 NT channels. It keeps its filters in registers, as fragments; they come by way of shared
// memory. The rows of the source come by cp.async, STAGES steps of live_rows.cuh; each fragment of the source that is
// read (ldmatrix) is multiplied with all taps that meet it, of LIVE rows of results. Rows outside of the map and (input
// gradient) taps of another residue than the result's are not multiplied; columns outside of the map are, as zeros.
//   MATH TF32   float32, W and the source rounded to tf32
//   MATH BF16   bfloat16
// Macros: see tile_sm80.cuh; EPILOGUE 0 | 1: whether bias and activation follow.
#pragma once
#include "common/rectifier.cuh"
#include "conv2d/small_groups/filter_rows.cuh"

constexpr bool EPILOGUE = ALPHA_EPILOGUE;

struct MapProblem {
  Element* result;
  const Element* W;
  const float* bias;  // of a channel of the result, or null
  float slope;
  int images, height, width, channels, source_channels, ph;
  int segment_rows;
};

template <class Map>
struct StripMap {
  using Rows = SourceRows<Map>;
  static constexpr int PHASES = Map::LIVE % Map::DONE == 0 ? Map::LIVE / Map::DONE : Map::LIVE;
  static constexpr int STAGE_BYTES = Map::SOURCE_ROWS * Rows::BYTES;
  static constexpr bool SHARED = SHARED_SOURCE<Map>;
  static constexpr int SOURCES = SHARED ? 1 : NT;
  static constexpr bool PAIRED = IS_BF16 && NT == 2;  // lanes exchange the results of two tiles, see `store`
  static constexpr int NOWHERE = 1 << 30;             // the column of a result that does not exist
  static constexpr int NO_TAP = -1;

  const MapProblem& p;
  int lane, first_channel;          // of the warp's results
  uint32_t b[NT][TAPS][K_VECTORS];  // the filters
  float acc[Map::LIVE][MT][Map::RESIDUES][NT][4] = {};
  uint32_t from[MT];           // bytes from a row of the source to this lane's slot of each fragment
  uint32_t source_vector[NT];  // bytes from a slot to the first vector that each 8 channels read
  // This lane's results: row 0 of the first image; the bytes from there and the column, of each half of a fragment.
  char* result;
  int at[MT][2], column[MT][2];
  Pack<float, 2> bias[NT];

  __device__ __forceinline__ StripMap(const MapProblem& problem, int block_channel, int first_strip) : p(problem) {
    lane = threadIdx.x & 31;
    const int warp = threadIdx.x / 32, wn = warp % WN, wm = warp / WN, g = lane >> 2, t = lane & 3;
    first_channel = block_channel + wn * 8 * NT;
#pragma unroll
    for (int n = 0; n < NT; n++) {
      // Tiles beyond the last channel multiply some other vector with zeros.
      const int channel = first_channel + n * 8 < p.channels ? first_channel + n * 8 : block_channel;
      source_vector[n] = (source_channel<Map>(channel) - source_channel<Map>(block_channel)) / CHUNK * VECTOR_BYTES;
      bias[n] = {};
      if (EPILOGUE && p.bias != nullptr && first_channel + n * 8 + 2 * t < p.channels)
        bias[n] = load_pack<2>(p.bias + first_channel + n * 8 + 2 * t);
    }
    const int image0 = divide(first_strip, PIECES).quotient, pixel_bytes = p.channels * int(sizeof(Element));
    result = reinterpret_cast<char*>(p.result + first_channel + stored_channel()) +
             size_t(image0) * p.height * p.width * pixel_bytes;
#pragma unroll
    for (int m = 0; m < MT; m++) {
      const int fragment = wm * MT + m;
      from[m] = (first_slot<Map>(2 * fragment + (lane >> 3 & 1)) + (lane & 7)) * Rows::PITCH;
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int group = 2 * fragment + h;
        const auto [image, piece] = divide(first_strip + group / GROUPS, PIECES);
        const bool exists = group < STRIPS * GROUPS && image < p.images;
        const int q = (piece * GROUPS + group % GROUPS) * PIXELS + g;
        column[m][h] = exists ? Map::column(Map::FIRST_RESULT + q) : NOWHERE;
        at[m][h] = exists ? ((image - image0) * p.height * p.width + column[m][h]) * pixel_bytes : 0;
      }
    }
  }

  // The first of this lane's stored channels: of each pair of tiles, or of each tile.
  __device__ __forceinline__ int stored_channel() const {
    const int t = lane & 3;
    return PAIRED ? 8 * (t & 1) + 2 * (t & 2) : 2 * t;
  }

  // The filters of the warp's results, from those of the block in shared memory.
  __device__ __forceinline__ void load_filters(const Element* filters, int block_channel) {
    const int g = lane >> 2, first = lane % 4 * (CHUNK / 4);
    const int first_row = Map::IS_INPUT ? source_channel<Map>(block_channel) : block_channel;
#pragma unroll
    for (int n = 0; n < NT; n++) {
      const int to = first_channel + n * 8 + g, group = to / Map::RESULT_GROUP;
      const int base = source_channel<Map>(first_channel + n * 8);
#pragma unroll
      for (int v = 0; v < K_VECTORS; v++) {
        const int source = base + v * CHUNK + first;
        const bool inside = to < p.channels && source / Map::SOURCE_GROUP == group;
        const int row = (Map::IS_INPUT ? source : to) - first_row, i = (Map::IS_INPUT ? to : source) - group * IG;
        const Element* w = filters + (inside ? row * FILTER_PITCH + i : 0);
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) {
          uint32_t word;
          if constexpr (!IS_BF16) {
            word = round_tf32(w[tap * IG]);
          } else if constexpr (Map::IS_INPUT) {
            const uint16_t* bits = reinterpret_cast<const uint16_t*>(w) + tap * IG;
            word = uint32_t(bits[FILTER_PITCH]) << 16 | bits[0];
          } else {
            word = *reinterpret_cast<const uint32_t*>(w + tap * IG);
          }
          b[n][tap][v] = inside ? word : 0;
        }
      }
    }
  }

  // Two vectors of K of fragment m, from slot `first` and vector `v` on; with `next` the second one from that slot
  // instead.
  __device__ __forceinline__ void load_fragment(uint32_t (&a)[4], uint32_t row, int first, int next) const {
    const uint32_t address = row + first * Rows::PITCH;
    if (K_VECTORS == 1 && first == next) {
      uint32_t half[2];
      ldmatrix_x2(half, address);
      a[0] = half[0], a[1] = half[1], a[2] = a[3] = 0;
      return;
    }
    ldmatrix_x4(a, address + (lane & 16 ? (K_VECTORS == 1 ? (next - first) * Rows::PITCH : VECTOR_BYTES) : 0));
    if constexpr (!IS_BF16)
#pragma unroll
      for (int i = 0; i < 4; i++) a[i] = round_tf32(__uint_as_float(a[i]));
  }

  // The product of a tap: adds fragment `a` of the source times the filter `w` of eight channels to `sum`. The fragment
  // is two vectors of K from vector `v` on. If a tap has one vector, the second one belongs to tap `second`, or there
  // is none (NO_TAP).
  static __device__ __forceinline__ void add_tap(float (&sum)[4], const uint32_t (&a)[4],
                                                 const uint32_t (&w)[TAPS][K_VECTORS], int tap, int second, int v) {
    const uint32_t first = w[tap][v];
    if constexpr (K_VECTORS > 1) {
      const uint32_t pair[2] = {first, w[tap][v + 1]};
      if constexpr (IS_BF16)
        mma_m16n8k16_bf16(sum, a, pair);
      else
        mma_m16n8k8_tf32(sum, a, pair);
    } else if (second != NO_TAP) {
      const uint32_t pair[2] = {first, w[second][v]};
      mma_m16n8k16_bf16(sum, a, pair);
    } else {
      const uint32_t one[2] = {first, 0};
      mma_m16n8k8_bf16(sum, a, one);
    }
  }

  // Adds the products of the `read`-th fragment of a row, the r-th of its step, with all taps that meet it. `m` and
  // `source` are its pixel groups and channels; its two vectors of K are from `v` on, or with K_VECTORS 1 those of
  // reads `read` and `next`.
  template <int PHASE>
  __device__ __forceinline__ void multiply_fragment(const uint32_t (&a)[4], int m, int source, int read, int next,
                                                    int v, int r) {
#pragma unroll
    for (int live = 0; live < Map::LIVE; live++) {
      const int fh = Map::tap(live, r);
      if (fh >= FH) continue;
#pragma unroll
      for (int residue = 0; residue < Map::RESIDUES; residue++) {
        const int fw = Map::tap_column(read, residue), other = Map::tap_column(read + 1, residue);
        if (fw >= FW) continue;
        const int second = next != read && other < FW ? fh * FW + other : NO_TAP;
#pragma unroll
        for (int n = SHARED ? 0 : source; n < (SHARED ? NT : source + 1); n++)
          add_tap(acc[(live + PHASE * Map::DONE) % Map::LIVE][m][residue][n], a, b[n], fh * FW + fw, second, v);
      }
    }
  }

  // Adds the products of one row of the source at the shared address `row`, the r-th of its step.
  template <int PHASE>
  __device__ __forceinline__ void multiply(uint32_t row, int r) {
    constexpr int K_STEP = K_VECTORS == 1 ? 1 : 2, READ_STEP = K_VECTORS == 1 ? 2 : 1;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int source = 0; source < SOURCES; source++)
#pragma unroll
        for (int read = 0; read < Map::READS; read += READ_STEP)
#pragma unroll
          for (int v = 0; v < K_VECTORS; v += K_STEP) {
            const int next = read + READ_STEP - 1 < Map::READS ? read + READ_STEP - 1 : read;
            uint32_t a[4];
            load_fragment(a, row + from[m] + source_vector[source] + v * VECTOR_BYTES, Map::slot(read, CLASS_SLOTS),
                          Map::slot(next, CLASS_SLOTS));
            multiply_fragment<PHASE>(a, m, source, read, next, v, r);
          }
  }

  __device__ __forceinline__ float finished(float sum, float bias_of_channel) const {
    if (!EPILOGUE) return sum;
    return Rectifier<float>{p.slope}(sum + bias_of_channel);
  }

  // Stores one pixel of this lane, `half` of a fragment. With PAIRED tiles a lane stores 8 bytes, so that the channels
  // of a pixel are a whole sector.
  __device__ __forceinline__ void store(char* to, bool exists, const float (&sum)[NT][4], int half) const {
    Pack<float, 2> y[NT];
#pragma unroll
    for (int n = 0; n < NT; n++)
      y[n] = {finished(sum[n][2 * half], bias[n].v[0]), finished(sum[n][2 * half + 1], bias[n].v[1])};
    const int channels = p.channels - first_channel - stored_channel();  // from the lane's first one on
    if constexpr (PAIRED) {
      const uint32_t first = narrow_pair(y[0].v[0], y[0].v[1]), second = narrow_pair(y[NT - 1].v[0], y[NT - 1].v[1]);
      const bool odd = lane & 1;
      const uint32_t other = __shfl_xor_sync(~0u, odd ? first : second, 1);
      const Pack<uint32_t, 2> words = {odd ? other : first, odd ? second : other};
      if (exists && channels > 0) store_pack(reinterpret_cast<uint32_t*>(to), words);
    } else {
#pragma unroll
      for (int n = 0; n < NT; n++)
        if (exists && 8 * n < channels) store_pack(reinterpret_cast<Element*>(to) + 8 * n, y[n]);
    }
  }

  // One step: the products of its rows, which lie at the shared address `stage`, and the results that are then
  // complete.
  template <int PHASE>
  __device__ __forceinline__ void step(int number, uint32_t stage, const Rows& rows, const Range& wanted) {
#pragma unroll
    for (int r = 0; r < Map::SOURCE_ROWS; r++)
      if (rows.has(Map::source_row(number, r, p.ph))) multiply<PHASE>(stage + r * Rows::BYTES, r);
#pragma unroll
    for (int live = 0; live < Map::DONE; live++) {
      auto& sums = acc[(live + PHASE * Map::DONE) % Map::LIVE];
      const int row = Map::row(number, live, p.ph);
      if (row >= wanted.begin && row < wanted.end) {
        const int pixel_bytes = p.channels * int(sizeof(Element));
        char* to_row = result + long(row) * p.width * pixel_bytes;
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
          for (int residue = 0; residue < Map::RESIDUES; residue++)
#pragma unroll
            for (int half = 0; half < 2; half++)
              store(to_row + (at[m][half] + residue * pixel_bytes),
                    unsigned(column[m][half] + residue) < unsigned(p.width), sums[m][residue], half);
      }
#pragma unroll
      for (int m = 0; m < MT; m++)
#pragma unroll
        for (int residue = 0; residue < Map::RESIDUES; residue++)
#pragma unroll
          for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums[m][residue][n][e] = 0;
    }
  }

  // Up to PHASES steps from `number` on. The live rows rotate through `acc`, so that no sum moves to another register.
  template <int PHASE, class Bring>
  __device__ __forceinline__ void phases(int number, const Range& steps, const Rows& rows, const Range& wanted,
                                         Bring& bring) {
    if constexpr (PHASE < PHASES) {
      if (number >= steps.end) return;
      cp_async_wait<STAGES - 2>();
      __syncthreads();  // the rows of this step are there, and all warps are done with the stage that is brought next
      step<PHASE>(number, bring(number + STAGES - 1), rows, wanted);
      phases<PHASE + 1>(number + 1, steps, rows, wanted, bring);
    }
  }
};

// The block's channels, segment of rows and strips. Blocks of neighbouring channels are neighbours.
template <class Map>
__device__ __forceinline__ void map_strips(const MapProblem& p, StripSource<Element> source) {
  ALPHA_DYNAMIC_SHARED(Element, stages);
  using Tile = StripMap<Map>;
  const auto [i, chunk] = divide(blockIdx.x, (p.channels + BLOCK_CHANNELS - 1) / BLOCK_CHANNELS);
  const auto [bundle, segment] = divide(i, (p.height + p.segment_rows - 1) / p.segment_rows);
  const Range wanted = {segment * p.segment_rows, min((segment + 1) * p.segment_rows, p.height)};
  const Range steps = Map::steps(wanted, p.ph);
  source.first_strip = bundle * STRIPS;
  source.channel = source_channel<Map>(chunk * BLOCK_CHANNELS);
  const typename Tile::Rows rows(source);
  const uint32_t begin = shared_address(stages), end = begin + STAGES * Tile::STAGE_BYTES;
  const int block_channel = chunk * BLOCK_CHANNELS;
  bring_filters<Map>(end, p.W, Map::IS_INPUT ? source.channel : block_channel,
                     Map::IS_INPUT ? p.source_channels : p.channels);
  cp_async_commit();
  uint32_t free = begin;
  // Brings the rows of a step to the next stage; returns the stage after it, which is that of the oldest step.
  auto bring = [&](int number) {
    if (number < steps.end)
#pragma unroll
      for (int r = 0; r < Map::SOURCE_ROWS; r++)
        rows.bring(free + r * Tile::Rows::BYTES, Map::source_row(number, r, p.ph));
    cp_async_commit();
    free = free + Tile::STAGE_BYTES == end ? begin : free + Tile::STAGE_BYTES;
    return free;
  };
#pragma unroll 1
  for (int stage = 0; stage < STAGES - 1; stage++) bring(steps.begin + stage);

  Tile tile(p, block_channel, source.first_strip);
  cp_async_wait<STAGES - 1>();
  __syncthreads();  // the filters are there
  tile.load_filters(stages + STAGES * Tile::STAGE_BYTES / int(sizeof(Element)), block_channel);
#pragma unroll 1
  for (int number = steps.begin; number < steps.end; number += Tile::PHASES)
    tile.template phases<0>(number, steps, rows, wanted, bring);
}
