// IEEE half precision by integer arithmetic: rounding to nearest even, subnormals, infinities, NaN.
#pragma once
#include "common/emulation/intrinsics.h"

namespace alpha_emulation {

inline uint16_t half_bits(float value) {
  const uint32_t bits = __float_as_uint(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7fffu);
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // rounds to 65536 or more
  if (magnitude < 0x38800000u) {                                  // below 2^-14: steps of 2^-24
    const float scaled = __uint_as_float(magnitude) * 16777216.f;
    return uint16_t(sign | uint32_t(__builtin_nearbyintf(scaled)));
  }
  return uint16_t(sign | ((magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13));
}

inline float half_value(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000u) << 16, exponent = half >> 10 & 31u, fraction = half & 0x3ffu;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) {
    const float value = float(fraction) * 5.9604644775390625e-8f;
    return sign ? -value : value;
  }
  return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
}

}  // namespace alpha_emulation
