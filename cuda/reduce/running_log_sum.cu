// The logarithm of the sum of exp(X[a, s, b]) over all s <= r, for each r; X (A, R, B). A thread per column (a, b) goes
// through its rows.
//
// log_sum: Y[a, r, b], kept as the largest number and a sum relative to it.
// log_sum_gradient: dX[r] = exp(X[r] - Y[r]) S, S = dY[r] + exp(Y[r] - Y[r + 1]) S of the row behind; both exponents
// are at
//   most 0.
// Grid: ceil(A B / 256). Block: 256. No shared memory.
// Macro: TYPE float | double | bfloat16, which is computed with as float.
#include "common/bfloat16.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Wide = Number<T>;
constexpr int THREADS = 256;

__device__ __forceinline__ Wide loaded(const T* X, long long at) { return load_pack<1>(X + at).v[0]; }

// exp(below - above), also of infinite numbers that are equal.
__device__ __forceinline__ Wide decay(Wide below, Wide above) {
  return below == above ? Wide(1) : Wide(exp(below - above));
}

extern "C" __global__ void __launch_bounds__(THREADS)
    log_sum(T* __restrict__ Y, const T* __restrict__ X, long long columns, long long R, long long B) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= columns) return;
  long long place = i / B * R * B + i % B;
  Wide most = loaded(X, place), sum = 0;
  for (long long r = 0; r < R; r++, place += B) {
    const Wide x = loaded(X, place);
    if (x > most) {
      sum = sum * exp(most - x) + 1;
      most = x;
    } else {
      sum += decay(x, most);
    }
    store_pack(Y + place, Pack<Wide, 1>{{most + Wide(log(sum))}});
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    log_sum_gradient(T* __restrict__ dX, const T* __restrict__ dY, const T* __restrict__ X, const T* __restrict__ Y,
                     long long columns, long long R, long long B) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= columns) return;
  long long place = i / B * R * B + i % B + (R - 1) * B;
  Wide sum = 0;
  for (long long r = R - 1; r >= 0; r--, place -= B) {
    const Wide y = loaded(Y, place);
    sum = loaded(dY, place) + (r + 1 < R ? decay(y, loaded(Y, place + B)) * sum : Wide(0));
    store_pack(dX + place, Pack<Wide, 1>{{decay(loaded(X, place), y) * sum}});
  }
}
