// Functions that an elementwise expression may call besides those of CUDA's math library.
#pragma once
#include "common/cuda.h"

// d/dx of x (1 + tanh(k (x + c x^3))) / 2, the tanh form of GELU.
template <typename T>
__device__ __forceinline__ T gelu_slope(T x) {
  const T k = T(0.7978845608028654), c = T(0.044715), half = T(0.5);
  const T t = tanh(k * (x + c * x * x * x));
  return half * (1 + t) + half * x * (1 - t * t) * k * (1 + 3 * c * x * x);
}
