// Y[a, i] = how many elements of row a of S lie before V[a, i]: those that are less, or with `right` not more. NaN is
// the largest number.
//
// S (A, C) or (1, C), each row in ascending order, V (A, I), Y (A, I). A thread halves a row for one element of V.
// Grid: ceil(A I / 256). Block: 256. No shared memory.
// Macro: TYPE float | double | bfloat16 | int | long long | unsigned char | bool of S and V.
#include "common/bfloat16.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;
constexpr int THREADS = 256;

__device__ __forceinline__ bool less(Real a, Real b) { return a < b || (b != b && a == a); }

extern "C" __global__ void __launch_bounds__(THREADS)
    search(long long* __restrict__ Y, const T* __restrict__ S, const T* __restrict__ V, long long C, long long I,
           long long stride, long long size, int right) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= size) return;
  const T* const row = S + i / I * stride;
  const Real value = load_pack<1>(V + i).v[0];
  long long first = 0, stop = C;
  while (first < stop) {
    const long long middle = first + (stop - first) / 2;
    const Real found = load_pack<1>(row + middle).v[0];
    if (right ? !less(value, found) : less(found, value))
      first = middle + 1;
    else
      stop = middle;
  }
  Y[i] = first;
}
