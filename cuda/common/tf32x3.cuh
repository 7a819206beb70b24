// 3xTF32: products of floats on tensor cores, as accurate as FFMA if each short block of K is summed apart.
//
// x = big + small, big being x without its 13 low bits (which the hardware ignores), small = x - big exactly;
// a b ~ small_a big_b + big_a small_b + big_a big_b.
#pragma once
#include "common/mma.cuh"

__device__ __forceinline__ uint32_t small_part(uint32_t x) {
  return __float_as_uint(__uint_as_float(x) - __uint_as_float(x & 0xffffe000u));
}

// d += a b, MF x NF fragments of 16 x 8, K = 8.
template <int MF, int NF>
__device__ __forceinline__ void multiply_tf32x3(float (&d)[MF][NF][4], const uint32_t (&a)[MF][4],
                                                const uint32_t (&b)[NF][2]) {
  uint32_t b_small[NF][2];
#pragma unroll
  for (int n = 0; n < NF; n++) b_small[n][0] = small_part(b[n][0]), b_small[n][1] = small_part(b[n][1]);
#pragma unroll
  for (int m = 0; m < MF; m++) {
    uint32_t a_small[4];
#pragma unroll
    for (int e = 0; e < 4; e++) a_small[e] = small_part(a[m][e]);
    mma_m16n8k8_tf32(d[m], a_small, b);
    mma_m16n8k8_tf32(d[m], a[m], b_small);
    mma_m16n8k8_tf32(d[m], a[m], b);
  }
}
