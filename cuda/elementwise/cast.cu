// Y[i] = (TO) X[i], or (TO) X[i] * scale + shift with AFFINE 1.
//
// Grid: ceil(size / (256 VECTOR STEPS)). Block: 256. No shared memory.
// Needs: packs of VECTOR elements are aligned in X and Y.
// Macros: FROM, TO element types; AFFINE 0 | 1; VECTOR 1 | 4; STEPS packs a thread; INDEX an unsigned
// type that holds the size.
#include "common/cuda.h"
#include "common/vector.cuh"

using From = ALPHA_FROM;
using To = ALPHA_TO;
using Index = ALPHA_INDEX;
constexpr int THREADS = 256, STEPS = ALPHA_STEPS, V = ALPHA_VECTOR;

// Rounded before the shift is added, as numpy does: pixels are the same numbers on every device.
template <typename Number>
__device__ __forceinline__ Number product(Number a, Number b) { return a * b; }
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }

__device__ __forceinline__ To convert(From x, To scale, To shift) {
  return ALPHA_AFFINE ? To(product(To(x), scale) + shift) : To(x);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    cast(To* __restrict__ Y, const From* __restrict__ X, long long elements, To scale, To shift) {
  const Index size = elements, packs = size / V;
  const Index first = Index(blockIdx.x) * (THREADS * STEPS) + threadIdx.x;
#pragma unroll
  for (int s = 0; s < STEPS; s++) {
    const Index i = first + s * THREADS;
    if (i >= packs) break;
    const Pack<From, V> x = load_pack<V>(X + i * V);
    Pack<To, V> y;
#pragma unroll
    for (int j = 0; j < V; j++) y.v[j] = convert(x.v[j], scale, shift);
    store_pack(Y + i * V, y);
  }
  const Index tail = packs * V + first;  // what no whole pack covers
  if (V > 1 && first < V && tail < size) Y[tail] = convert(X[tail], scale, shift);
}
