// Depthwise filter gradient on FFMA (Sk-dilated).
//
// dW[c, fh, fw] = sum over n, oh, ow of X[n, oh SH - ph + fh, ow SW - PW + fw, c / MULTIPLIER] dY[n, oh, ow, c]
// A thread walks over strips as in the forward convolution, but keeps the rows of dY that a row of X meets, and the
// sums of all taps of its channels. The threads of a block add their sums in a fixed order; each block writes a partial
// dW.
// Grid: (ceil(OC / (V tx)), blocks), which share the groups of strips. Block: (tx packs of channels, ty strips), at
// most 128.
// Shared memory: the sums of tx V channels. Needs OC % V == 0; V = 1 if MULTIPLIER > 1. Macros: channels.cuh.
#include "conv2d/depthwise/channels.cuh"

// Elements of bfloat16 are widened late, when the loads of X are under way, too. Floats go to their place at once,
// which takes fewer registers.
constexpr bool LATE = sizeof(T) < sizeof(float);

struct WeightProblem {
  const T *X, *dY;
  GroupedShape s;
};

template <class Edge>
__device__ __forceinline__ void add_strip(Channels (&sum)[TAPS], const WeightProblem& p, const StripTask& task,
                                          int channel) {
  using Strip = ForwardStrip;
  const GroupedShape& s = p.s;
  const int first = task.strip * Strip::STEP + Strip::FIRST;
  const T* X = p.X + size_t(task.image) * s.IH * s.IW * SOURCE_CHANNELS + channel / MULTIPLIER;
  const T* dY = p.dY + (size_t(task.image) * s.OH * s.OW + task.strip * COLUMNS) * CHANNELS + channel;
  Channels g[Strip::LIVE][COLUMNS] = {};
  const Range steps = Strip::steps(task.rows, s.ph);
#pragma unroll 1
  for (int step = steps.begin; step < steps.end; step++) {
#pragma unroll
    for (int live = 0; live + 1 < Strip::LIVE; live++)
#pragma unroll
      for (int t = 0; t < Edge::WIDTH; t++) g[live][t] = g[live + 1][t];
    Bits<T, V> g_bits[COLUMNS] = {};
    if (step < task.rows.end)
#pragma unroll
      for (int t = 0; t < Edge::WIDTH; t++) {
        g_bits[t] = load_bits<V>(dY + (size_t(step) * s.OW + t) * CHANNELS);
        if (!LATE) g[Strip::LIVE - 1][t] = g_bits[t].widened();
      }
#pragma unroll
    for (int r = 0; r < Strip::SOURCE_ROWS; r++) {
      const int source_row = Strip::source_row(step, r, s.ph);
      if (!LATE && unsigned(source_row) >= unsigned(s.IH)) continue;
      SourceRow<Strip, Edge> row;
      row.load(X, source_row, s.IH, s.IW, first);
      if (LATE && r == 0)
#pragma unroll
        for (int t = 0; t < Edge::WIDTH; t++) g[Strip::LIVE - 1][t] = g_bits[t].widened();
      if (!row.inside) continue;
      Channels x[Strip::SOURCES];
      row.widen(x);
      visit_live_rows<Strip>(step, r, task.rows, s.ph, [&](int live, int tap) {
        visit_columns<Strip, Edge>(
            [&](int t, int fw, int column) { add_products(sum[tap * FW + fw], x[column], g[live][t]); });
      });
    }
  }
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS, BLOCKS)
    depthwise_weight_ffma(float* __restrict__ part, const T* __restrict__ X, const T* __restrict__ dY, GroupedShape s,
                          int segment_rows, int strips, int groups) {
  ALPHA_DYNAMIC_SHARED(float, sums);  // [channel][tap], as in dW
  const int first = blockIdx.x * blockDim.x * V, channel = first + threadIdx.x * V;
  Channels sum[TAPS] = {};
  const WeightProblem p = {X, dY, s};
  if (channel < CHANNELS)
    for (int group = blockIdx.y; group < groups; group += gridDim.y) {
      const StripTask own = task_of_group(group, strips, segment_rows, s.OH);
      if (own.image < s.N)
        with_edges<ForwardStrip>(own.strip, strips,
                                 [&](auto edges) { add_strip<decltype(edges)>(sum, p, own, channel); });
    }
  for (int y = 0; y < blockDim.y; y++) {
    if (y == threadIdx.y)
#pragma unroll
      for (int i = 0; i < TAPS; i++)
#pragma unroll
        for (int c = 0; c < V; c++) {
          float& to = sums[(threadIdx.x * V + c) * TAPS + i];
          to = y == 0 ? sum[i].v[c] : to + sum[i].v[c];
        }
    __syncthreads();  // the sums of the strips up to y are added
  }
  const int count = min(int(blockDim.x) * V, CHANNELS - first) * TAPS;
  float* dW = part + (size_t(blockIdx.y) * CHANNELS + first) * TAPS;
  for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < count; i += blockDim.x * blockDim.y) dW[i] = sums[i];
}
