// A float as a sum of two bfloat16 terms, for tensor cores. bfloat16 has the range of a float, so the terms need no
// scale.
//
// With hi = bf16(x), lo = bf16(x - hi), hi + lo has 16 bits of x, and hi hi + hi lo + lo hi has a relative error of
// 2^-16, a thirtieth of that of TF32. Numbers above 3.39e38, 2^-9 below the largest float, become infinite in hi and
// NaN in lo.
#pragma once
#include "common/bfloat16.cuh"

// The terms of two values: hi, and what is left of them in lo. The first value lies in the lower 16 bits.
__device__ __forceinline__ void split_into_bfloat16(float first, float second, uint32_t& hi, uint32_t& lo) {
  hi = narrow_pair(first, second);
  float rounded_first, rounded_second;
  widen_pair(hi, rounded_first, rounded_second);
  lo = narrow_pair(first - rounded_first, second - rounded_second);
}
