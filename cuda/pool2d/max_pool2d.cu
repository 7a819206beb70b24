// Maximum over windows of X (N, IH, IW, C) to Y (N, OH, OW, C) with its tap I, and its gradient.
//
// A thread computes a pack of VECTOR channels of the result; the gradient gathers from the outputs whose windows
// hold its input, so that nothing is added atomically. The first of equal numbers wins, NaN is above
// every number, and the last NaN wins, as in PyTorch.
// Grid: ceil(packs of the result / 256). Block: 256. No shared memory.
// Macros: TYPE float | double | bfloat16; VECTOR 1 | 4 | 8 divides C, arrays are aligned to packs; INDEX an unsigned type that holds the size; FH FW SH
// SW PH PW; ADAPTIVE 0; COUNT_PADDING and DIVISOR (not read).
#include "pool2d/pool2d.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    max_pool2d_forward(T* __restrict__ Y, uint8_t* __restrict__ I, const T* __restrict__ X, int N, int IH, int IW,
                       int C, int OH, int OW) {
  wait_for_previous_kernel();
  const Place p = place(Index(blockIdx.x) * THREADS + threadIdx.x, OH, OW, C);
  if (p.n >= N) return;
  const Pack<Real, V> least = splat<V>(Real(-__int_as_float(0x7f800000)));
  Pack<Real, V> best = least;
  // a window without a number above -inf has its maximum at the first tap that meets the input
  Pack<uint8_t, V> taps = splat<V>(uint8_t(max(PH - p.h * SH, 0) * FW + max(PW - p.w * SW, 0)));
  constexpr int BATCH = FW <= 4 ? FW : 1;  // loads of a row in flight before the first is looked at
  for (int tap = 0; tap < FH * FW; tap += BATCH) {
    const int ih = p.h * SH - PH + tap / FW, iw = p.w * SW - PW + tap % FW;
    if (ih < 0 || ih >= IH) continue;
    Pack<Real, V> x[BATCH];
#pragma unroll
    for (int j = 0; j < BATCH; j++) {
      x[j] = least;
      if (iw + j >= 0 && iw + j < IW) x[j] = load_pack<V>(X + offset(p.n, ih, iw + j, p.c, IH, IW, C));
    }
#pragma unroll
    for (int j = 0; j < BATCH; j++)
#pragma unroll
      for (int i = 0; i < V; i++) {
        if (x[j].v[i] > best.v[i] || x[j].v[i] != x[j].v[i]) best.v[i] = x[j].v[i], taps.v[i] = tap + j;
      }
  }
  const size_t at = offset(p.n, p.h, p.w, p.c, OH, OW, C);
  store_pack(Y + at, best);
  store_pack(I + at, taps);
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    max_pool2d_backward(T* __restrict__ dX, const T* __restrict__ dY, const uint8_t* __restrict__ I, int N, int IH,
                        int IW, int C, int OH, int OW) {
  wait_for_previous_kernel();
  const Place p = place(Index(blockIdx.x) * THREADS + threadIdx.x, IH, IW, C);
  if (p.n >= N) return;
  const Span rows = outputs<FH, SH, PH>(p.h, IH, OH), columns = outputs<FW, SW, PW>(p.w, IW, OW);
  Pack<Real, V> sum = {};
  for (int oh = rows.start; oh < rows.stop; oh++)
    for (int ow = columns.start; ow < columns.stop; ow++) {
      const int tap = (p.h + PH - oh * SH) * FW + p.w + PW - ow * SW;
      const size_t at = offset(p.n, oh, ow, p.c, OH, OW, C);
      const Pack<uint8_t, V> taps = load_pack<V>(I + at);
      const Pack<Real, V> g = load_pack<V>(dY + at);
#pragma unroll
      for (int i = 0; i < V; i++) sum.v[i] += taps.v[i] == tap ? g.v[i] : Real(0);
    }
  store_pack(dX + offset(p.n, p.h, p.w, p.c, IH, IW, C), sum);
}
