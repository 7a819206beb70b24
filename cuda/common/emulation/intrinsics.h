// CUDA's arithmetic functions: C's math library in the global namespace, and the device intrinsics kernels use.
#pragma once
// libstdc++ adds the special functions of C++17 to math.h, which are more than half of the precompiled header.
#if __has_include(<bits/c++config.h>)
#include <bits/c++config.h>
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#endif
#include <math.h>
#include <stdint.h>
#include <string.h>

namespace alpha_emulation {

template <class To, class From>
inline To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From), "a reinterpretation keeps the size");
  To result;
  memcpy(&result, &value, sizeof result);
  return result;
}

// Keeps the compiler from contracting the operation that made `value` with the next one.
template <class Real>
inline Real rounded(Real value) {
  asm("" : "+x"(value));
  return value;
}

}  // namespace alpha_emulation

// CUDA's overloads of min and max mix signed and unsigned; the result is the operands' common type.
template <class A, class B>
constexpr auto min(A a, B b) -> decltype(a + b) {
  return b < decltype(a + b)(a) ? b : a;
}
template <class A, class B>
constexpr auto max(A a, B b) -> decltype(a + b) {
  return decltype(a + b)(a) < b ? b : a;
}

inline int __float_as_int(float x) { return alpha_emulation::bits_as<int>(x); }
inline unsigned __float_as_uint(float x) { return alpha_emulation::bits_as<unsigned>(x); }
inline float __int_as_float(int x) { return alpha_emulation::bits_as<float>(x); }
inline float __uint_as_float(unsigned x) { return alpha_emulation::bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return alpha_emulation::bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return alpha_emulation::bits_as<double>(x); }

inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return alpha_emulation::rounded(a + b); }
inline float __fsub_rn(float a, float b) { return alpha_emulation::rounded(a - b); }
inline float __fmul_rn(float a, float b) { return alpha_emulation::rounded(a * b); }
inline double __dmul_rn(double a, double b) { return alpha_emulation::rounded(a * b); }
inline float __fdiv_rn(float a, float b) { return alpha_emulation::rounded(a / b); }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline float __frcp_rn(float x) { return alpha_emulation::rounded(1.0f / x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp2f(x * 3.3219280948873623f); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline void __sincosf(float x, float* sine, float* cosine) { *sine = sinf(x), *cosine = cosf(x); }
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = float(sin(3.14159265358979323846 * x)), *cosine = float(cos(3.14159265358979323846 * x));
}
inline float cospif(float x) { return float(cos(3.14159265358979323846 * x)); }
inline float sinpif(float x) { return float(sin(3.14159265358979323846 * x)); }

inline int __float2int_rn(float x) { return int(__builtin_rintf(x)); }
inline int __float2int_rz(float x) { return int(x); }
inline int __float2int_rd(float x) { return int(__builtin_floorf(x)); }
inline int __float2int_ru(float x) { return int(__builtin_ceilf(x)); }
inline unsigned __float2uint_rn(float x) { return unsigned(__builtin_rintf(x)); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; i++) reversed |= (x >> i & 1u) << (31 - i);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
inline int __mulhi(int a, int b) { return int(int64_t(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((uint64_t(high) << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) >> (shift & 31));
}
// Byte i of the result is byte `selector nibble i` of the eight bytes b:a.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = uint64_t(b) << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) result |= unsigned(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return result;
}

template <class T>
T __ldg(const T* place) {
  return *place;
}
template <class T>
T __ldcs(const T* place) {
  return *place;
}
template <class T>
T __ldcg(const T* place) {
  return *place;
}
template <class T>
void __stcs(T* place, T value) {
  *place = value;
}
template <class T>
void __stcg(T* place, T value) {
  *place = value;
}
[[noreturn]] inline void __trap() { alpha_emulation::fault("__trap"); }

// sin(pi x) and cos(pi x).
inline void sincospi(double x, double* sine, double* cosine) {
  *sine = sin(x * 3.141592653589793), *cosine = cos(x * 3.141592653589793);
}
