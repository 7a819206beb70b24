// What the kernels use of cuda_bf16.h: bfloat16 is the upper half of a float, rounded to nearest even.
#pragma once
#include <stdint.h>

#include "common/emulation/intrinsics.h"

struct __nv_bfloat16_raw {
  unsigned short x;
};

struct __align__(2) __nv_bfloat16 {
  unsigned short bits;

  __nv_bfloat16() = default;
  __nv_bfloat16(float value) {
    const unsigned wide = __float_as_uint(value);
    const bool nan = (wide & 0x7fffffffu) > 0x7f800000u;
    bits = nan ? 0x7fff : (unsigned short)((wide + 0x7fffu + (wide >> 16 & 1u)) >> 16);
  }
  __nv_bfloat16(__nv_bfloat16_raw raw) : bits(raw.x) {}
  operator float() const { return __uint_as_float(unsigned(bits) << 16); }
  operator __nv_bfloat16_raw() const { return {bits}; }
};

struct __align__(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rz(float x) {
  return __nv_bfloat16_raw{(unsigned short)(__float_as_uint(x) >> 16)};
}
inline float __bfloat162float(__nv_bfloat16 x) { return float(x); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16_raw{x}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {float(v.x), float(v.y)}; }
inline float __low2float(__nv_bfloat162 v) { return v.x; }
inline float __high2float(__nv_bfloat162 v) { return v.y; }
