// Y[i] = ALPHA_EXPRESSION of the operands a, b, c and the numbers p, q, r, elementwise.
//
// An operand of `period` elements repeats along Y: a is A[i % a_period]. Y may be the memory of an operand.
// Grid: ceil(size / (256 VECTOR STEPS)). Block: 256. No shared memory.
// Needs: packs of VECTOR elements are aligned in Y and in every operand; each period is the size, 1, or a
// multiple of VECTOR.
// Macros: EXPRESSION of Real numbers, which may name T, the type of Y; INPUTS 1..3; TYPE of Y, TYPE_A, TYPE_B, TYPE_C
// of the
// operands: float | double | bfloat16 | int | long long | unsigned char | bool. Operands are converted to the type of
// the arithmetic, that of Y.
// VECTOR 1 | 4 | 8; STEPS packs per thread; INDEX an unsigned type that holds the size.
#include "common/cuda.h"
#include "common/vector.cuh"
#include "elementwise/functions.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;  // the type of the arithmetic
using TypeA = ALPHA_TYPE_A;
using TypeB = ALPHA_TYPE_B;
using TypeC = ALPHA_TYPE_C;
using Index = ALPHA_INDEX;
constexpr int THREADS = 256, INPUTS = ALPHA_INPUTS, STEPS = ALPHA_STEPS, V = ALPHA_VECTOR;

__device__ __forceinline__ Real expression(Real a, Real b, Real c, Real p, Real q, Real r) { return ALPHA_EXPRESSION; }

template <typename From, int N>
__device__ __forceinline__ Pack<Real, N> converted(const Pack<From, N>& x) {
  Pack<Real, N> result;
#pragma unroll
  for (int j = 0; j < N; j++) result.v[j] = Real(x.v[j]);
  return result;
}

// The branches are uniform over the grid; the modulo is the most expensive of them.
template <int N, typename Operand>
__device__ __forceinline__ Pack<Real, N> operand(const Operand* X, Index i, Index period, Index size) {
  if (period == size) return converted(load_pack<N>(X + i));
  if (period == 1) return splat<N>(Real(load_pack<1>(X).v[0]));
  return converted(load_pack<N>(X + i % period));
}

template <int N>
__device__ __forceinline__ Pack<Real, N> evaluate(const Pack<Real, N>& a, const Pack<Real, N>& b,
                                                  const Pack<Real, N>& c, Real p, Real q, Real r) {
  Pack<Real, N> y;
#pragma unroll
  for (int j = 0; j < N; j++) y.v[j] = expression(a.v[j], b.v[j], c.v[j], p, q, r);
  return y;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    map(T* Y, const TypeA* A, const TypeB* B, const TypeC* C, long long a_period, long long b_period,
        long long c_period, long long elements, Real p, Real q, Real r) {
  const Index size = elements, packs = size / V;
  const Index first = Index(blockIdx.x) * (THREADS * STEPS) + threadIdx.x;
  Pack<Real, V> a[STEPS], b[STEPS] = {}, c[STEPS] = {};
  // all loads before the first store: Y may be A, so the compiler may not reorder them
#pragma unroll
  for (int s = 0; s < STEPS; s++) {
    const Index i = first + s * THREADS;
    if (i >= packs) break;
    a[s] = operand<V>(A, i * V, a_period, size);
    if (INPUTS > 1) b[s] = operand<V>(B, i * V, b_period, size);
    if (INPUTS > 2) c[s] = operand<V>(C, i * V, c_period, size);
  }
#pragma unroll
  for (int s = 0; s < STEPS; s++) {
    const Index i = first + s * THREADS;
    if (i >= packs) break;
    store_pack(Y + i * V, evaluate(a[s], b[s], c[s], p, q, r));
  }
  const Index tail = packs * V + first;  // elements that no whole pack covers
  if (V > 1 && first < V && tail < size) {
    const Pack<Real, 1> x = operand<1>(A, tail, a_period, size);
    Pack<Real, 1> y = {}, z = {};
    if (INPUTS > 1) y = operand<1>(B, tail, b_period, size);
    if (INPUTS > 2) z = operand<1>(C, tail, c_period, size);
    store_pack(Y + tail, evaluate(x, y, z, p, q, r));
  }
}
