// Y[a, r, b] = sum of X[a, s, b] over s <= r, or over s >= r if `reverse`; X, Y (A, R, B). Sums have a fixed order.
//
// scan_columns: a thread per column (a, b). Grid: ceil(A B / 256), block 256, no shared memory.
// scan_rows (B = 1): a block per row, which goes through it in pieces of 256 elements and carries the sum. Grid: A,
// block 256, shared memory: a number per thread.
// Macro: TYPE float | double | bfloat16 | long long. A sum of bfloat16 is a float, which each element rounds.
#include "common/bfloat16.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Sum = Number<T>;
constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_columns(T* __restrict__ Y, const T* __restrict__ X, long long columns, long long R, long long B, int reverse) {
  wait_for_previous_kernel();
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= columns) return;
  const long long base = i / B * R * B + i % B, step = reverse ? -B : B;
  long long at = base + (reverse ? (R - 1) * B : 0);
  Sum sum = 0;
  for (long long r = 0; r < R; r++, at += step) {
    sum += load_pack<1>(X + at).v[0];
    store_pack(Y + at, Pack<Sum, 1>{{sum}});
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_rows(T* __restrict__ Y, const T* __restrict__ X, long long R, int reverse) {
  wait_for_previous_kernel();
  __shared__ Sum sums[2][THREADS];
  const long long base = blockIdx.x * R;
  const int self = threadIdx.x;
  Sum carried = 0;
  for (long long start = 0; start < R; start += THREADS) {
    const long long r = start + self, at = base + (reverse ? R - 1 - r : r);
    Sum sum = r < R ? load_pack<1>(X + at).v[0] : Sum(0);
    int side = 0;
    sums[side][self] = sum;
    for (int distance = 1; distance < THREADS; distance *= 2, side ^= 1) {
      __syncthreads();  // the sums of the step before are written
      sum = self >= distance ? sums[side][self - distance] + sum : sum;
      sums[side ^ 1][self] = sum;
    }
    __syncthreads();  // the sums of the last step are written
    const Sum total = sums[side][THREADS - 1];
    if (r < R) store_pack(Y + at, Pack<Sum, 1>{{carried + sum}});
    carried += total;
    __syncthreads();  // every thread has read the total
  }
}
