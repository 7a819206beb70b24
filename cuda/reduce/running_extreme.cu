// at[a, r, b] = the last s <= r at which X[a, s, b] is the largest so far, or the smallest unless `largest`; NaN counts
// as an extreme. X, at (A, R, B). A thread per column (a, b) goes through its rows.
//
// Grid: ceil(A B / 256). Block: 256. No shared memory.
// Macro: TYPE float | double | bfloat16 | int | long long | unsigned char | bool.
#include "common/bfloat16.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Wide = Number<T>;
constexpr int THREADS = 256;

__device__ __forceinline__ Wide loaded(const T* X, long long at) { return load_pack<1>(X + at).v[0]; }

extern "C" __global__ void __launch_bounds__(THREADS)
    running_extreme(long long* __restrict__ at, const T* __restrict__ X, long long columns, long long R, long long B,
                    int largest) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= columns) return;
  long long place = i / B * R * B + i % B, found = 0;
  Wide best = loaded(X, place);
  for (long long r = 0; r < R; r++, place += B) {
    const Wide x = loaded(X, place);
    if (x != x || (best == best && (largest ? x >= best : x <= best))) {
      best = x;
      found = r;
    }
    at[place] = found;
  }
}
