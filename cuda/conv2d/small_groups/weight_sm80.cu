// Filter gradient of a convolution with groups of few channels on tensor cores, bfloat16 (Sk-dilated).
//
// dW[oc, fh, fw, i] = sum over n, oh, ow of X[n, oh SH - ph + fh, ow SW - PW + fw, g IG + i] dY[n, oh, ow, oc]
// for the group g of oc; IG and OG are the channels of a group. A block adds up some tasks, which are strips of a
// segment of rows of dY (tile_sm80.cuh), and writes a partial dW.
// GEMM: GM = taps by input channels, in rows of eight channels; two taps, or two vectors of channels, are a fragment.
// GN = eight output channels, GK = 16 pixels: two pixel groups. Both operands lie in shared memory as in memory, and
// are transposed by ldmatrix. A step brings rows of X and one row of dY. A fragment of X is multiplied with the LIVE
// rows of dY that meet it, which stay in registers. Rows of X outside of the map are not multiplied; columns outside,
// and rows of dY of other tasks, are, as zeros. Groups of 4 channels are multiplied in pairs, and what belongs to two
// groups is not written. An infinity or NaN of dY may reach all dW of its output channel, one of X all taps of its
// input channel.
// Grid: (chunks of 8 NT WN output channels, splits of the tasks). Block: 32 WN WM. part (splits, OC, FH, FW, IG)
// float32.
// Shared memory: STAGES steps of SH rows of X and a row of dY, or the sums of the warps. Needs sm_80, IG and OG
// divisible by 4, pixels of X and dY of whole 16 bytes; dilation 1. Macros: see tile_sm80.cuh.
#include "conv2d/small_groups/tile_sm80.cuh"

static_assert(IS_BF16, "ldmatrix transposes 16-bit elements only");
using Map = ForwardMap;
using XRows = SourceRows<Map>;
using YRows = StripRows<Element, STRIPS, PIXELS * GROUPS, 1, PIXELS * GROUPS, 0, PIXELS * GROUPS, NT * WN, THREADS>;
// Fragments of a filter row: two taps of one vector of channels, or two vectors of one tap.
constexpr int PAIRS = K_VECTORS == 1 ? (FW + 1) / 2 : FW * K_VECTORS / 2;
constexpr int STEP_BYTES = Map::SOURCE_ROWS * XRows::BYTES + YRows::BYTES, WORDS = FH * PAIRS * NT * 4;

struct WeightTile {
  int lane, wn, wm;
  float acc[FH][PAIRS][NT][4] = {};
  uint32_t dy[Map::LIVE][MT][NT][2];
  uint32_t from_x[MT], from_y[MT];  // bytes from a row to this lane's slot and vector of each fragment
  uint32_t source_vector[NT];       // bytes from a slot of X to the first vector of each 8 output channels

  __device__ __forceinline__ explicit WeightTile(int block_channel, int channels) {
    lane = threadIdx.x & 31, wn = threadIdx.x / 32 % WN, wm = threadIdx.x / 32 / WN;
#pragma unroll
    for (int m = 0; m < MT; m++) {
      // ldmatrix of X: the rows of matrices 1 and 3 are the second half of GM; of dY, those of 2 and 3 the second
      // channels.
      const int first = 2 * (wm * MT + m), y_group = min(first + (lane >> 3 & 1), STRIPS * GROUPS - 1);
      from_x[m] = (first_slot<Map>(first + (lane >> 4)) + (lane & 7)) * XRows::PITCH;
      from_y[m] = (y_group * PIXELS + (lane & 7)) * YRows::PITCH + (wn * NT + (NT == 2 ? lane >> 4 : 0)) * VECTOR_BYTES;
    }
#pragma unroll
    for (int n = 0; n < NT; n++) {
      const int own = block_channel + (wn * NT + n) * 8, channel = own < channels ? own : block_channel;
      source_vector[n] = (source_channel<Map>(channel) - source_channel<Map>(block_channel)) / CHUNK * VECTOR_BYTES;
    }
  }

  // The row of dY at the shared address `row` replaces the oldest one; zeros if the task has no such row.
  template <int PHASE>
  __device__ __forceinline__ void load_y(uint32_t row, bool wanted) {
#pragma unroll
    for (int m = 0; m < MT; m++) {
      auto& y = dy[(Map::LIVE - 1 + PHASE) % Map::LIVE][m];
      uint32_t words[4] = {};
      if (wanted) {
        if constexpr (NT == 2) {
          ldmatrix_x4_trans(words, row + from_y[m]);
        } else {
          uint32_t two[2];
          ldmatrix_x2_trans(two, row + from_y[m]);
          words[0] = two[0], words[1] = two[1];
        }
      }
#pragma unroll
      for (int n = 0; n < NT; n++)
#pragma unroll
        for (int k = 0; k < 2; k++) y[n][k] = 2 * (wm * MT + m) + k < STRIPS * GROUPS ? words[2 * n + k] : 0;
    }
  }

  // Adds the products of the row of X at the shared address `row`, the r-th of its step.
  template <int PHASE>
  __device__ __forceinline__ void multiply(uint32_t row, int r) {
    constexpr bool SHARED = SHARED_SOURCE<Map>;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int source = 0; source < (SHARED ? 1 : NT); source++)
#pragma unroll
        for (int pair = 0; pair < PAIRS; pair++) {
          const int fw = K_VECTORS == 1 ? 2 * pair : pair / (K_VECTORS / 2), next = min(fw + 1, FW - 1);
          const int vector = K_VECTORS == 1 ? 0 : 2 * pair % K_VECTORS;
          const int slot = Map::slot(fw, CLASS_SLOTS), other = Map::slot(next, CLASS_SLOTS);
          const int second = K_VECTORS == 1 ? (other - slot) * XRows::PITCH : VECTOR_BYTES;
          uint32_t a[4];
          ldmatrix_x4_trans(a, row + from_x[m] + source_vector[source] + slot * XRows::PITCH + vector * VECTOR_BYTES +
                                   (lane & 8 ? second : 0));
#pragma unroll
          for (int live = 0; live < Map::LIVE; live++) {
            const int fh = Map::tap(live, r);
            if (fh >= FH) continue;
#pragma unroll
            for (int n = SHARED ? 0 : source; n < (SHARED ? NT : source + 1); n++)
              mma_m16n8k16_bf16(acc[fh][pair][n], a, dy[(live + PHASE) % Map::LIVE][m][n]);
          }
        }
  }

  // Adds the sums of the warps with the same channels, one after the other, to those of the first one.
  __device__ __forceinline__ void add_warps(float* shared) {
    float* sums = shared + wn * WORDS * 32 + lane;
    float* own = &acc[0][0][0][0];
#pragma unroll 1
    for (int giver = 1; giver < WM; giver++) {
      __syncthreads();
      if (wm == giver)
#pragma unroll
        for (int i = 0; i < WORDS; i++) sums[i * 32] = own[i];
      __syncthreads();
      if (wm == 0)
#pragma unroll
        for (int i = 0; i < WORDS; i++) own[i] += sums[i * 32];
    }
  }

  __device__ __forceinline__ void store(float* part, const GroupedShape& s, int block_channel) const {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int n = 0; n < NT; n++) {
      const int channel = block_channel + (wn * NT + n) * 8, base = source_channel<Map>(channel) + g;
#pragma unroll
      for (int fh = 0; fh < FH; fh++)
#pragma unroll
        for (int pair = 0; pair < PAIRS; pair++)
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const int half = e >> 1, oc = channel + 2 * t + (e & 1), group = oc / OG;
            const int fw = K_VECTORS == 1 ? 2 * pair + half : pair / (K_VECTORS / 2);
            const int ic = base + (K_VECTORS == 1 ? 0 : 2 * pair % K_VECTORS + half) * CHUNK;
            if (fw < FW && oc < s.OC && ic / IG == group)
              part[(long(oc) * TAPS + fh * FW + fw) * IG + ic - group * IG] = acc[fh][pair][n][e];
          }
    }
  }
};

// A task: segment of rows of dY, and its strips.
struct WeightTask {
  Range rows, steps;
  int first_strip;

  __device__ __forceinline__ WeightTask(int task, const GroupedShape& s, int segment_rows) {
    const auto [bundle, segment] = divide(task, (s.OH + segment_rows - 1) / segment_rows);
    rows = {segment * segment_rows, min((segment + 1) * segment_rows, s.OH)};
    steps = Map::steps(rows, s.ph);
    first_strip = bundle * STRIPS;
  }
};

// Up to LIVE steps from `number` on, so that no row of dY moves to another register.
template <int PHASE, class Step>
__device__ __forceinline__ void weight_phases(WeightTile& tile, int number, int end, Step& step) {
  if constexpr (PHASE < Map::LIVE) {
    if (number >= end) return;
    step(std::integral_constant<int, PHASE>(), number);
    weight_phases<PHASE + 1>(tile, number + 1, end, step);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    small_groups_weight_sm80(float* __restrict__ part, const Element* __restrict__ X, const Element* __restrict__ dY,
                             GroupedShape s, int segment_rows, int tasks) {
  ALPHA_DYNAMIC_SHARED(float, shared);
  const uint32_t begin = shared_address(shared), end = begin + STAGES * STEP_BYTES;
  const int block_channel = blockIdx.x * BLOCK_CHANNELS;
  WeightTile tile(block_channel, s.OC);
  for (int i = blockIdx.y; i < tasks; i += gridDim.y) {
    const WeightTask task(i, s, segment_rows);
    StripSource<Element> x_source, y_source;
    x_source.map = X;
    x_source.images = s.N;
    x_source.height = s.IH;
    x_source.width = s.IW;
    x_source.channels = s.IC;
    x_source.channel = source_channel<Map>(block_channel);
    x_source.pieces = PIECES;
    x_source.first_strip = task.first_strip;
    y_source.map = dY;
    y_source.images = s.N;
    y_source.height = s.OH;
    y_source.width = s.OW;
    y_source.channels = s.OC;
    y_source.channel = block_channel;
    y_source.pieces = PIECES;
    y_source.first_strip = task.first_strip;
    const XRows x(x_source);
    const YRows y(y_source);
    uint32_t free = begin;
    // Brings the rows of a step to the next stage; returns the stage after it, which is that of the oldest step.
    auto bring = [&](int number) {
      if (number < task.steps.end) {
#pragma unroll
        for (int r = 0; r < Map::SOURCE_ROWS; r++) x.bring(free + r * XRows::BYTES, Map::source_row(number, r, s.ph));
        if (number < task.rows.end) y.bring(free + Map::SOURCE_ROWS * XRows::BYTES, number);
      }
      cp_async_commit();
      free = free + STEP_BYTES == end ? begin : free + STEP_BYTES;
      return free;
    };
    __syncthreads();  // all warps are done with the stages of the task before
#pragma unroll 1
    for (int stage = 0; stage < STAGES - 1; stage++) bring(task.steps.begin + stage);
#pragma unroll
    for (int live = 0; live < Map::LIVE; live++)
#pragma unroll
      for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++) tile.dy[live][m][n][0] = tile.dy[live][m][n][1] = 0;
    auto step = [&](auto phase, int number) {
      constexpr int PHASE = decltype(phase)::value;
      cp_async_wait<STAGES - 2>();
      __syncthreads();  // the rows of this step are there, and all warps are done with the stage that is brought next
      const uint32_t stage = bring(number + STAGES - 1);
      tile.load_y<PHASE>(stage + Map::SOURCE_ROWS * XRows::BYTES, number < task.rows.end);
#pragma unroll
      for (int r = 0; r < Map::SOURCE_ROWS; r++)
        if (x.has(Map::source_row(number, r, s.ph))) tile.multiply<PHASE>(stage + r * XRows::BYTES, r);
    };
#pragma unroll 1
    for (int number = task.steps.begin; number < task.steps.end; number += Map::LIVE)
      weight_phases<0>(tile, number, task.steps.end, step);
  }
  tile.add_warps(shared);
  if (tile.wm == 0) tile.store(part + size_t(blockIdx.y) * s.OC * TAPS * IG, s, block_channel);
}
