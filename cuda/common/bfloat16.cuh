// bfloat16 in memory, float in registers: the upper half of a float, rounded to nearest even.
// Only cuda_bf16.h's functions, which every architecture has (and the emulation), so there is no twin of this header.
#pragma once
#include "common/cuda.h"

using bfloat16 = __nv_bfloat16;

// Number<T>: the type with which a kernel computes if T lies in memory.
template <typename T>
struct NumberOf {
  using Type = T;
};
template <>
struct NumberOf<bfloat16> {
  using Type = float;
};
template <typename T>
using Number = typename NumberOf<T>::Type;

// Two neighbours in one word, the first in the lower 16 bits.
__device__ __forceinline__ void widen_pair(uint32_t word, float& first, float& second) {
  first = __uint_as_float(word << 16);
  second = __uint_as_float(word & 0xffff0000u);
}
__device__ __forceinline__ uint32_t narrow_pair(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return reinterpret_cast<const uint32_t&>(pair);
}
