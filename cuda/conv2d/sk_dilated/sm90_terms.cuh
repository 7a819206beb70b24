// The terms of the floats of a block, by its math mode (sk_dilated/sm90.cu).
#pragma once
#include "common/bf16_terms.cuh"
#include "common/fp16_terms.cuh"
#include "conv2d/sk_dilated/sm90_tile.cuh"

// The terms of two scaled values: hi, and with two terms what is left of them in lo.
__device__ __forceinline__ void split(float lower, float upper, uint32_t& hi, uint32_t& lo) {
  if (MATH == BF16X3)
    split_into_bfloat16(lower, upper, hi, lo);
  else
    to_terms<TERMS>(lower, upper, hi, lo);
}
