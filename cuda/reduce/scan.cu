// Y[a, r, b] = sum, or product, of X[a, s, b] over s <= r, or over s >= r if `reverse`; X, Y (A, R, B), B > 1.
// Rows of neighbours (B = 1) have scan_rows.cu. Sums and products have a fixed order.
//
// scan_columns: a thread per column (a, b) and segment of `rows` rows, counted in the direction of the scan. `before`
//   (A, segments, B), null for one segment, is a scan of the sums of the segments.
// segment_columns: sums (A, segments, B), each of a whole segment.
//   Grid: (ceil(A B / 256), segments). Both read eight rows before they use the first.
// product_gradient: dX[r] = Y[r - 1] S, S = dY[r] + X[r + 1] S of the row behind, for Y[r] = product of X[s] over
// s <= r;
//   a thread per column. Grid: ceil(A B / 256).
// Block: 256. No shared memory.
// Macro: TYPE float | double | bfloat16 | long long. A sum of bfloat16 is a float, which each element rounds.
#include "common/bfloat16.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Sum = Number<T>;
constexpr int THREADS = 256, AHEAD = 8;

__device__ __forceinline__ Sum combined(Sum a, Sum b, int product) { return product ? a * b : a + b; }

__device__ __forceinline__ Sum loaded(const T* X, long long at) { return load_pack<1>(X + at).v[0]; }

template <bool WRITE>
__device__ __forceinline__ void scan(T* __restrict__ Y, Sum* __restrict__ sums, const T* __restrict__ X,
                                     const Sum* __restrict__ before, long long columns, long long R, long long B,
                                     long long rows, int reverse, int product) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= columns) return;
  const long long a = i / B, b = i - a * B, first = blockIdx.y * rows;
  const long long stop = first + rows < R ? first + rows : R, step = reverse ? -B : B;
  const long long sums_at = (a * gridDim.y + blockIdx.y) * B + b;
  long long r = first, at = (a * R + (reverse ? R - 1 - first : first)) * B + b;
  Sum sum = before && first > 0 ? before[sums_at - B] : Sum(product);
  for (; r + AHEAD <= stop; r += AHEAD) {
    Bits<T, 1> x[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; k++) x[k] = load_bits<1>(X + at + k * step);
#pragma unroll
    for (int k = 0; k < AHEAD; k++, at += step) {
      sum = combined(sum, x[k].widened().v[0], product);
      if (WRITE) store_pack(Y + at, Pack<Sum, 1>{{sum}});
    }
  }
  for (; r < stop; r++, at += step) {
    sum = combined(sum, loaded(X, at), product);
    if (WRITE) store_pack(Y + at, Pack<Sum, 1>{{sum}});
  }
  if (!WRITE) sums[sums_at] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_columns(T* __restrict__ Y, const T* __restrict__ X, const Sum* __restrict__ before, long long columns,
                 long long R, long long B, long long rows, int reverse, int product) {
  scan<true>(Y, nullptr, X, before, columns, R, B, rows, reverse, product);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    segment_columns(Sum* __restrict__ sums, const T* __restrict__ X, long long columns, long long R, long long B,
                    long long rows, int reverse, int product) {
  scan<false>(nullptr, sums, X, nullptr, columns, R, B, rows, reverse, product);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    product_gradient(T* __restrict__ dX, const T* __restrict__ dY, const T* __restrict__ X, const T* __restrict__ Y,
                     long long columns, long long R, long long B) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= columns) return;
  long long at = i / B * R * B + i % B + (R - 1) * B;
  Sum sum = 0;
  for (long long r = R - 1; r >= 0; r--, at -= B) {
    sum = loaded(dY, at) + (r + 1 < R ? loaded(X, at + B) * sum : Sum(0));
    store_pack(dX + at, Pack<Sum, 1>{{r > 0 ? loaded(Y, at - B) * sum : sum}});
  }
}
