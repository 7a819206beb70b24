// The GPU's own approximations, one instruction each, good to about 2^-22 relative. What is below the smallest normal
// number counts as 0. For numbers that are rounded to bfloat16 afterwards.
#pragma once
#include "common/cuda.h"

__device__ __forceinline__ float approximate_exp2(float x) {
#ifdef ALPHA_EMULATED
  return exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

__device__ __forceinline__ float approximate_reciprocal(float x) {
#ifdef ALPHA_EMULATED
  return 1 / x;
#else
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}
