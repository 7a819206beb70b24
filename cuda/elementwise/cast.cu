// Y[i] = (TO) X[i], or (TO) X[i] * scale + shift with AFFINE 1; a cast to bfloat16 computes in float.
//
// Grid: ceil(size / (256 VECTOR STEPS)). Block: 256. No shared memory.
// Needs: packs of VECTOR elements are aligned in X and Y.
// Macros: FROM, TO element types; AFFINE 0 | 1; VECTOR 1 | 4; STEPS packs per thread; INDEX an unsigned
// type that holds the size.
#include "common/cuda.h"
#include "common/vector.cuh"

using From = ALPHA_FROM;
using To = ALPHA_TO;
using Result = Number<To>;  // the type of the arithmetic
using Index = ALPHA_INDEX;
constexpr int THREADS = 256, STEPS = ALPHA_STEPS, V = ALPHA_VECTOR;

// Rounded before the shift is added, as numpy does: pixels are the same numbers on every device.
template <typename Real>
__device__ __forceinline__ Real product(Real a, Real b) {
  return a * b;
}
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }

__device__ __forceinline__ Result convert(Number<From> x, Result scale, Result shift) {
  return ALPHA_AFFINE ? Result(product(Result(x), scale) + shift) : Result(x);
}

template <int N>
__device__ __forceinline__ void convert_pack(To* Y, const From* X, Result scale, Result shift) {
  const Pack<Number<From>, N> x = load_pack<N>(X);
  Pack<Result, N> y;
#pragma unroll
  for (int j = 0; j < N; j++) y.v[j] = convert(x.v[j], scale, shift);
  store_pack(Y, y);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    cast(To* __restrict__ Y, const From* __restrict__ X, long long elements, Result scale, Result shift) {
  const Index size = elements, packs = size / V;
  const Index first = Index(blockIdx.x) * (THREADS * STEPS) + threadIdx.x;
#pragma unroll
  for (int s = 0; s < STEPS; s++) {
    const Index i = first + s * THREADS;
    if (i >= packs) break;
    convert_pack<V>(Y + i * V, X + i * V, scale, shift);
  }
  const Index tail = packs * V + first;  // elements that no whole pack covers
  if (V > 1 && first < V && tail < size) convert_pack<1>(Y + tail, X + tail, scale, shift);
}
