// Y[a, o, b] = sum of weights[t] X[a, places[t], b] over t in [starts[o], starts[o + 1]): a sparse matrix (O, I) along
// the middle axis of X (A, I, B), in the order of t. The gradient is the same kernel with the transposed matrix.
//
// `weights` is the matrix: `taps` weights, then O + 1 starts, then `taps` places, which are columns of the matrix.
// A thread computes a pack of VECTOR neighbours of an output.
// Grid: ceil(size / (256 VECTOR)). Block: 256. No shared memory.
// Macros: TYPE float | double | bfloat16; VECTOR 1 | 4 | 8 divides B, arrays are aligned to packs; INDEX an unsigned
// type that holds the sizes.
#include "common/cuda.h"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;
using Index = ALPHA_INDEX;
constexpr int THREADS = 256, V = ALPHA_VECTOR;

extern "C" __global__ void __launch_bounds__(THREADS)
    resample(T* __restrict__ Y, const T* __restrict__ X, const Real* __restrict__ weights, long long taps,
             long long size, int I, int O, long long B) {
  const int* starts = reinterpret_cast<const int*>(weights + taps);
  const int* places = starts + O + 1;
  const Index i = (Index(blockIdx.x) * THREADS + threadIdx.x) * V;
  if (i >= Index(size)) return;
  const Index row = i / Index(B), b = i % Index(B), o = row % O, a = row / O;
  const T* source = X + a * I * Index(B) + b;
  Pack<Real, V> sum = {};
  for (int t = starts[o]; t < starts[o + 1]; t++) {
    const Pack<Real, V> x = load_pack<V>(source + Index(places[t]) * Index(B));
    const Real weight = weights[t];
#pragma unroll
    for (int j = 0; j < V; j++) sum.v[j] += weight * x.v[j];
  }
  store_pack(Y + i, sum);
}
