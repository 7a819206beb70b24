// range: Y[i] = first + i step for the lower half of Y, and last - (size - 1 - i) step for the upper one, if `both`.
// band: Y[n, i, j] = X[n, i, j] if low <= j - i <= high, else 0; matrices (M, N).
//
// Grid: ceil(size / 256). Block: 256. No shared memory.
// Macro: TYPE float | double | bfloat16 | int | long long | unsigned char | bool of Y.
#include "common/bfloat16.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;
constexpr int THREADS = 256;

template <typename Value>
__device__ __forceinline__ void fill_range(T* Y, long long i, long long size, Value first, Value last, Value step,
                                           bool both) {
  const Value value = both && i >= size / 2 ? last - Value(size - 1 - i) * step : first + Value(i) * step;
  store_pack(Y + i, Pack<Real, 1>{{Real(value)}});
}

extern "C" __global__ void __launch_bounds__(THREADS)
    range_of_floats(T* __restrict__ Y, long long size, double first, double last, double step, int both) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i < size) fill_range(Y, i, size, first, last, step, both);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    range_of_integers(T* __restrict__ Y, long long size, long long first, long long step) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i < size) fill_range(Y, i, size, first, first, step, false);
}

extern "C" __global__ void __launch_bounds__(THREADS) band(T* __restrict__ Y, const T* __restrict__ X, long long size,
                                                           long long M, long long N, long long low, long long high) {
  const long long at = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (at >= size) return;
  const long long j = at % N, i = at / N % M;
  const bool kept = j - i >= low && j - i <= high;
  store_pack(Y + at, kept ? load_pack<1>(X + at) : Pack<Real, 1>{{Real(0)}});
}
