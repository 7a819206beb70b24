// An activation that is a part of another operator's kernel.
#pragma once
#include "common/cuda.h"

// ReLU (slope 0, bound inf), ReLU6 (slope 0, bound 6) or leaky ReLU (slope > 0, bound inf).
template <typename Real>
struct Rectifier {
  Real slope, bound;

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
