// Y[i] = A[i] relation B[i % period], elementwise. `relation` counts ==, !=, <, <=, >, >= from 0.
//
// Grid: ceil(size / 256). Block: 256. No shared memory.
// Macros: TYPE element type of A and B.
#include "common/cuda.h"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    compare(bool* __restrict__ Y, const T* __restrict__ A, const T* __restrict__ B, int relation, long long period,
            long long elements) {
  const long long i = (long long)(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= elements) return;
  const auto a = load_pack<1>(A + i).v[0];
  const auto b = load_pack<1>(B + (period == elements ? i : period == 1 ? 0 : i % period)).v[0];
  const bool less = (a < b), equal = (a == b), greater = (a > b);  // none of them if one is NaN
  Y[i] = relation == 0   ? equal
         : relation == 1 ? !equal
         : relation == 2 ? less
         : relation == 3 ? less || equal
         : relation == 4 ? greater
                         : greater || equal;
}
