// An activation that is a part of another operator's kernel.
#pragma once
#include "common/cuda.h"

// ReLU (slope 0, bound inf), ReLU6 (slope 0, bound 6) or leaky ReLU (slope > 0, bound inf).
template <typename Real>
struct Rectifier {
  Real slope, bound = Real(__int_as_float(0x7f800000));

  __device__ __forceinline__ Real operator()(Real z) const {
    if (slope == 0) return z < 0 ? 0 : z > bound ? bound : z;  // NaN stays NaN
    return z > 0 ? z : slope * z;
  }

  // The gradient of z; y has the same sign and may stand for it. What it drops is selected, because 0 times inf is NaN.
  __device__ __forceinline__ Real gradient(Real dy, Real z) const {
    return slope == 0 ? gradient_of<false>(dy, z) : gradient_of<true>(dy, z);
  }

  // The same without a branch, where it is known whether it is SLOPED: whether the slope is not 0.
  template <bool SLOPED>
  __device__ __forceinline__ Real gradient_of(Real dy, Real z) const {
    if (SLOPED) return z > 0 ? dy : slope * dy;
    const bool bounded = bound < Real(__int_as_float(0x7f800000));
    return z <= 0 || (bounded && z >= bound) ? 0 : dy;
  }
};

// A rectifier of which it is known whether its slope is not 0.
template <typename Real, bool SLOPED>
struct KnownRectifier : Rectifier<Real> {
  __device__ __forceinline__ KnownRectifier(Real slope, Real bound) : Rectifier<Real>{slope, bound} {}
  __device__ __forceinline__ Real gradient(Real dy, Real z) const {
    return Rectifier<Real>::template gradient_of<SLOPED>(dy, z);
  }
};

// The larger of two numbers, NaN if one of them is NaN.
__device__ __forceinline__ float larger_or_nan(float a, float b) {
#ifdef ALPHA_EMULATED
  return a != a ? a : b != b ? b : fmaxf(a, b);
#else
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#endif
}

// A rectifier of any slope and no bound, without a branch; -0 may become 0.
struct UnboundedRectifier {
  float slope, least;

  __device__ __forceinline__ explicit UnboundedRectifier(float slope_)
      : slope(slope_), least(slope_ == 0 ? 0 : -__int_as_float(0x7f800000)) {}
  __device__ __forceinline__ float operator()(float z) const { return z <= 0 ? fmaxf(slope * z, least) : z; }
};

// A rectifier of a slope from 0 to 1 and no bound, in three instructions; -0 may become 0. Needs sm_80.
struct SlopeRectifier {
  float slope, least;

  __device__ __forceinline__ explicit SlopeRectifier(float slope_)
      : slope(slope_), least(slope_ == 0 ? 0 : -__int_as_float(0x7f800000)) {}
  __device__ __forceinline__ float operator()(float z) const { return larger_or_nan(z, fmaxf(slope * z, least)); }
};
