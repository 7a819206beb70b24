// Y[a, r, b] = sum, or product, of X[a, s, b] over s <= r, or over s >= r if `reverse`; X, Y (A, R, B). Sums and products
// have a fixed order.
//
// scan_columns: a thread per column (a, b). Grid: ceil(A B / 256), block 256, no shared memory.
// scan_rows (B = 1): a block per row, which goes through it in pieces of 256 elements and carries the sum. Grid: A,
// block 256, shared memory: two numbers per thread.
// product_gradient: dX[r] = Y[r - 1] S, S = dY[r] + X[r + 1] S of the row behind, for Y[r] = product of X[s] over s <= r;
// a thread per column. Grid and block as scan_columns.
// Macro: TYPE float | double | bfloat16 | long long. A sum of bfloat16 is a float, which each element rounds.
#include "common/bfloat16.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Sum = Number<T>;
constexpr int THREADS = 256;

__device__ __forceinline__ Sum combined(Sum a, Sum b, int product) { return product ? a * b : a + b; }

__device__ __forceinline__ Sum loaded(const T* X, long long at) { return load_pack<1>(X + at).v[0]; }

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_columns(T* __restrict__ Y, const T* __restrict__ X, long long columns, long long R, long long B, int reverse,
                 int product) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= columns) return;
  const long long base = i / B * R * B + i % B, step = reverse ? -B : B;
  long long at = base + (reverse ? (R - 1) * B : 0);
  Sum sum = product;
  for (long long r = 0; r < R; r++, at += step) {
    sum = combined(sum, loaded(X, at), product);
    store_pack(Y + at, Pack<Sum, 1>{{sum}});
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_rows(T* __restrict__ Y, const T* __restrict__ X, long long R, int reverse, int product) {
  __shared__ Sum sums[2][THREADS];
  const long long base = blockIdx.x * R;
  const int self = threadIdx.x;
  Sum carried = product;
  for (long long start = 0; start < R; start += THREADS) {
    const long long r = start + self, at = base + (reverse ? R - 1 - r : r);
    Sum sum = r < R ? loaded(X, at) : Sum(product);
    int side = 0;
    sums[side][self] = sum;
    for (int distance = 1; distance < THREADS; distance *= 2, side ^= 1) {
      __syncthreads();  // the sums of the step before are written
      sum = self >= distance ? combined(sums[side][self - distance], sum, product) : sum;
      sums[side ^ 1][self] = sum;
    }
    __syncthreads();  // the sums of the last step are written
    const Sum total = sums[side][THREADS - 1];
    if (r < R) store_pack(Y + at, Pack<Sum, 1>{{combined(carried, sum, product)}});
    carried = combined(carried, total, product);
    __syncthreads();  // every thread has read the total
  }
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
