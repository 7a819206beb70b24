// Words to sort, and the order that the sorted words say: rows of X (A, R) in words (A, P), P a power of two >= R.
//
// A word is the key, 32 bits whose order is that of the numbers, above the place of the element, 32 bits. So words are
// distinct and the order is stable. A type of 64 bits is sorted twice: by its low bits, then by its high ones.
// NaN is the largest number, and -0 equals +0. Words that pad a row are the largest.
// pack: grid ceil(A P / 256). unpack: grid ceil(A R / 256). Block: 256. No shared memory.
// Macro: TYPE float | double | bfloat16 | int | long long | unsigned char | bool of X.
#include "common/bfloat16.cuh"

using T = ALPHA_TYPE;
using Key = unsigned long long;
constexpr int THREADS = 256;

__device__ __forceinline__ Key ordered(float x) {
  if (x != x) return 0xffffffffull;
  const unsigned bits = __float_as_uint(x + 0.0f);  // -0 + 0 is +0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ Key ordered(bfloat16 x) { return ordered(__bfloat162float(x)); }
__device__ __forceinline__ Key ordered(double x) {
  if (x != x) return ~0ull;
  const Key bits = (Key)__double_as_longlong(x + 0.0);
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}
__device__ __forceinline__ Key ordered(long long x) { return (Key)x ^ 1ull << 63; }
__device__ __forceinline__ Key ordered(int x) { return unsigned(x) ^ 0x80000000u; }
__device__ __forceinline__ Key ordered(unsigned char x) { return x; }
__device__ __forceinline__ Key ordered(bool x) { return x; }

// `order`, if not null, is the order (A, R) of an earlier sort by lower bits; keys are shifted right by `shift`.
extern "C" __global__ void __launch_bounds__(THREADS)
    pack(Key* __restrict__ words, const T* __restrict__ X, const long long* __restrict__ order, long long R,
         long long P, long long total, int shift, int descending) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= total) return;
  const long long a = i / P, r = i % P;
  Key word = ~0ull;
  if (r < R) {
    Key key = ordered(X[a * R + (order ? order[a * R + r] : r)]);
    if (descending) key = ~key;
    word = (key >> shift) << 32 | Key(r);
  }
  words[i] = word;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    unpack(long long* __restrict__ target, const Key* __restrict__ words, const long long* __restrict__ order,
           long long R, long long P, long long total) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= total) return;
  const long long a = i / R, at = words[a * P + i % R] & 0xffffffffull;
  target[i] = order ? order[a * R + at] : at;
}
