// Filter gradient of a convolution with groups of few channels on FFMA (Sk-dilated).
//
// dW[oc, fh, fw, i] = sum over n, oh, ow of X[n, oh SH - ph + fh, ow SW - PW + fw, g IG + i] dY[n, oh, ow, oc]
// for the group g of oc; IG and OG are the channels of a group. A thread has four output channels, four input channels
// and one row of the filter, and adds up the strips of its block (strips.cuh). Each block writes a partial dW.
// Grid: (ceil(OC / (4 tx)), blocks). Block: (tx quads of output channels, FH IG / 4: quads of input channels by filter
// rows).
// Needs IG and OG divisible by 4. Macros: see strips.cuh, VECTOR 4; THREADS of a block.
#include "conv2d/strips.cuh"

static_assert(V == 4, "quads of channels");

template <class Edge>
__device__ __forceinline__ void add_strip(Channels (&sum)[FW][V], const T* x, const T* y, const GroupedShape& s) {
  using Strip = ForwardStrip;
  Channels g[COLUMNS];
#pragma unroll
  for (int t = 0; t < Edge::WIDTH; t++) g[t] = load_pack<V>(y + size_t(t) * s.OC);
#pragma unroll
  for (int j = Edge::BEGIN; j < Edge::END; j++) {
    const Channels v = load_pack<V>(x + long(j) * s.IC);
#pragma unroll
    for (int fw = 0; fw < FW; fw++)
#pragma unroll
      for (int t = 0; t < Edge::WIDTH; t++)
        if (Strip::column(t, fw) == j)
#pragma unroll
          for (int o = 0; o < V; o++)
#pragma unroll
            for (int i = 0; i < V; i++) sum[fw][o].v[i] += v.v[i] * g[t].v[o];
  }
}

extern "C" __global__ void __launch_bounds__(ALPHA_THREADS, BLOCKS)
    small_groups_weight_ffma(float* __restrict__ part, const T* __restrict__ X, const T* __restrict__ dY,
                             GroupedShape s, int strips, int tasks) {
  const int IG = s.IC / s.groups, quads = IG / V, oc = (blockIdx.x * blockDim.x + threadIdx.x) * V;
  const int ic = threadIdx.y % quads * V, fh = threadIdx.y / quads;
  if (oc >= s.OC) return;
  const T* x = X + oc / (s.OC / s.groups) * IG + ic;
  Channels sum[FW][V] = {};
  for (int task = blockIdx.y; task < tasks; task += gridDim.y) {
    const StripTask own = strip_of_row(task, strips, s.OH);
    const int row = own.rows.begin, source_row = ForwardStrip::source_of(row, fh, s.ph);
    if (unsigned(source_row) >= unsigned(s.IH)) continue;
    const int first = own.strip * ForwardStrip::STEP + ForwardStrip::FIRST;
    const T* from = x + ((long(own.image) * s.IH + source_row) * s.IW + first) * s.IC;
    const T* y = dY + ((size_t(own.image) * s.OH + row) * s.OW + own.strip * COLUMNS) * s.OC + oc;
    with_edges<ForwardStrip>(own.strip, strips, [&](auto edges) { add_strip<decltype(edges)>(sum, from, y, s); });
  }
  float* dW = part + ((size_t(blockIdx.y) * s.OC + oc) * TAPS + fh * FW) * IG + ic;
#pragma unroll
  for (int o = 0; o < V; o++)
#pragma unroll
    for (int fw = 0; fw < FW; fw++) store_pack(dW + (size_t(o) * TAPS + fw) * IG, sum[fw][o]);
}
