// Mean over windows of X (N, IH, IW, C) to Y (N, OH, OW, C), and its gradient.
//
// A thread computes a pack of VECTOR channels of the result; the gradient gathers from the outputs whose windows
// hold its input, so that nothing is added atomically.
// Grid: ceil(packs of the result / 256). Block: 256. No shared memory.
// Macros: TYPE float | double | bfloat16; VECTOR 1 | 4 | 8 divides C, arrays are aligned to packs; INDEX an unsigned
// type that holds the size; FH FW SH SW PH PW; ADAPTIVE (then those are not read, and IH OH and IW OW are below 2^31);
// COUNT_PADDING; DIVISOR.
#include "pool2d/pool2d.cuh"

constexpr bool COUNT_PADDING = ALPHA_COUNT_PADDING;
constexpr int DIVISOR = ALPHA_DIVISOR;  // 0 means the size of the window

// The inputs of an axis of a window, and the length that the average counts.
template <int F, int S, int P>
__device__ __forceinline__ Span counted(int o, int I, int O) {
  Span span = window<F, S, P>(o, I, O);
  const int first = o * S - P;
  // padding counts, what the window reaches beyond it does not (as in PyTorch)
  if (!ADAPTIVE && COUNT_PADDING) span.length = min(first + F, I + P) - first;
  return span;
}

// The reciprocal of the number by which the sum of a window is divided.
__device__ __forceinline__ Real share(const Span& rows, const Span& columns) {
  return Real(1) / (DIVISOR != 0 ? DIVISOR : rows.length * columns.length);
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    avg_pool2d_forward(T* __restrict__ Y, const T* __restrict__ X, int N, int IH, int IW, int C, int OH, int OW) {
  const Place p = place(Index(blockIdx.x) * THREADS + threadIdx.x, OH, OW, C);
  if (p.n >= N) return;
  const Span rows = counted<FH, SH, PH>(p.h, IH, OH), columns = counted<FW, SW, PW>(p.w, IW, OW);
  Pack<Real, V> sum = {};
  for (int ih = rows.start; ih < rows.stop; ih++)
#pragma unroll 4
    for (int iw = columns.start; iw < columns.stop; iw++) sum += load_pack<V>(X + offset(p.n, ih, iw, p.c, IH, IW, C));
  const Real factor = share(rows, columns);
#pragma unroll
  for (int i = 0; i < V; i++) sum.v[i] *= factor;
  store_pack(Y + offset(p.n, p.h, p.w, p.c, OH, OW, C), sum);
}

extern "C" __global__ void __launch_bounds__(THREADS, V == 8 ? 3 : 4)
    avg_pool2d_backward(T* __restrict__ dX, const T* __restrict__ dY, int N, int IH, int IW, int C, int OH, int OW) {
  const Place p = place(Index(blockIdx.x) * THREADS + threadIdx.x, IH, IW, C);
  if (p.n >= N) return;
  const Span rows = outputs<FH, SH, PH>(p.h, IH, OH), columns = outputs<FW, SW, PW>(p.w, IW, OW);
  Pack<Real, V> sum = {};
  for (int oh = rows.start; oh < rows.stop; oh++)
    for (int ow = columns.start; ow < columns.stop; ow++) {
      const Real factor = share(counted<FH, SH, PH>(oh, IH, OH), counted<FW, SW, PW>(ow, IW, OW));
      const Pack<Real, V> g = load_pack<V>(dY + offset(p.n, oh, ow, p.c, OH, OW, C));
#pragma unroll
      for (int i = 0; i < V; i++) sum.v[i] += g.v[i] * factor;
    }
  store_pack(dX + offset(p.n, p.h, p.w, p.c, IH, IW, C), sum);
}
