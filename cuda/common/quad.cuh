// The four lanes of a quad, which hold the pairs of neighbouring columns of a tensor-core accumulator.
#pragma once
#include "common/cuda.h"

// Lane t's v[i] becomes lane i's v[t]. All lanes of a warp call it, t = lane % 4.
__device__ __forceinline__ void transpose_quad(uint32_t (&v)[4], int t) {
#pragma unroll
  for (int bit = 1; bit < 4; bit *= 2)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (i & bit) continue;
      const bool upper = t & bit;
      const uint32_t received = __shfl_xor_sync(0xffffffffu, upper ? v[i] : v[i + bit], bit);
      if (upper)
        v[i] = received;
      else
        v[i + bit] = received;
    }
}
