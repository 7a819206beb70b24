// A float as a sum of fp16 terms, for tensor cores: two fp16 in a register, and the scale that keeps them in range.
//
// With hi = fp16(x s), lo = fp16(x s - hi), hi + lo has 22 bits of x. The scale s is a power of two, so that it
// rounds nothing: it brings the largest finite magnitude of the whole array to 2^14 .. 2^15. What is below 2^-39 of
// that largest magnitude is lost in lo, which a norm does not notice.
#pragma once
#include "common/cuda.h"

#ifdef ALPHA_EMULATED
#include "common/emulation/half.h"

// (lower, upper) 16 bits of a register, rounded to nearest even.
inline uint32_t pack_half(float lower, float upper) {
  return alpha_emulation::half_bits(lower) | uint32_t(alpha_emulation::half_bits(upper)) << 16;
}
inline float2 unpack_half(uint32_t pair) {
  return {alpha_emulation::half_value(uint16_t(pair)), alpha_emulation::half_value(uint16_t(pair >> 16))};
}
#else
__device__ __forceinline__ uint32_t pack_half(float lower, float upper) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(upper), "f"(lower));
  return pair;
}
__device__ __forceinline__ float2 unpack_half(uint32_t pair) {
  float2 values;
  asm("{ .reg .b16 l, u; mov.b32 {l, u}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, u; }"
      : "=f"(values.x), "=f"(values.y)
      : "r"(pair));
  return values;
}
#endif

// The bits of |x|, which have the order of the magnitudes, or 0 if x is infinite or NaN: no scale brings these into
// range, and the numbers beside them keep the scale that they have without them. Every scale is computed by this rule.
__device__ __forceinline__ unsigned finite_magnitude(float x) {
  const unsigned magnitude = __float_as_uint(x) & 0x7fffffffu;
  return magnitude < 0x7f800000u ? magnitude : 0;
}

// The bits of a limit that is computed from finite numbers, as if floats had no end; 0 if one of them is not `finite`.
__device__ __forceinline__ unsigned finite_limit(float limit, bool finite) {
  return finite ? __float_as_uint(fminf(limit, 3.402823466e+38f)) : 0;
}

// The scale of an array whose largest finite magnitude has these bits; 1 if all of its finite numbers are zeros.
__device__ __forceinline__ float half_scale(unsigned absmax_bits) {
  if (absmax_bits == 0) return 1.f;
  const int wanted = 268 - int(absmax_bits >> 23);  // biased exponent of 2^(14 - (exponent - 127)); at most 2^126
  return __uint_as_float(unsigned(wanted > 253 ? 253 : wanted) << 23);
}

// Undoes the scales of both operands: sum -> sum / (s t), exactly. Two factors of about the same size, so that nothing
// on the way overflows or underflows unless the result does.
struct Unscale {
  float first = 1.f, second = 1.f;

  __device__ __forceinline__ Unscale() {}
  __device__ __forceinline__ Unscale(float s, float t) {
    const int exponents = int(__float_as_uint(s) >> 23) + int(__float_as_uint(t) >> 23), half = exponents / 2;
    first = __uint_as_float(unsigned(254 - half) << 23),
    second = __uint_as_float(unsigned(254 - exponents + half) << 23);
  }
  __device__ __forceinline__ float operator()(float sum) const { return sum * first * second; }
};

// The terms of two scaled values: hi, and what is left of them in lo.
__device__ __forceinline__ void split_pair(float lower, float upper, uint32_t& hi, uint32_t& lo) {
  hi = pack_half(lower, upper);
  const float2 rounded = unpack_half(hi);
  lo = pack_half(lower - rounded.x, upper - rounded.y);
}

// The same in one term or two; one term leaves lo as it is.
template <int terms>
__device__ __forceinline__ void to_terms(float lower, float upper, uint32_t& hi, uint32_t& lo) {
  if (terms == 2)
    split_pair(lower, upper, hi, lo);
  else
    hi = pack_half(lower, upper);
}
