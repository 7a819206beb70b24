// Functions that an elementwise expression may call besides those of CUDA's math library.
#pragma once
#include "common/cuda.h"

// beta x > threshold ? x : log(1 + exp(beta x)) / beta, without overflow.
template <typename T>
__device__ __forceinline__ T softplus(T x, T beta, T threshold) {
  const T z = beta * x;
  if (z > threshold) return x;
  return (z > 0 ? z + log1p(exp(-z)) : log1p(exp(z))) / beta;
}

template <typename T>
__device__ __forceinline__ T softplus_gradient(T dy, T x, T beta, T threshold) {
  const T z = beta * x;
  if (z > threshold) return dy;
  const T e = exp(-fabs(z));
  return dy * ((z < 0 ? e : T(1)) / (1 + e));
}

// x Phi(x). erfc does not cancel for negative x, where 1 + erf does.
template <typename T>
__device__ __forceinline__ T gelu(T x) {
  return T(0.5) * x * erfc(T(-0.7071067811865476) * x);
}

template <typename T>
__device__ __forceinline__ T gelu_slope(T x) {
  const T density = T(0.3989422804014327) * exp(T(-0.5) * x * x);
  return T(0.5) * erfc(T(-0.7071067811865476) * x) + x * density;
}

// x (1 + tanh(k (x + c x^3))) / 2, the tanh form of GELU.
template <typename T>
__device__ __forceinline__ T gelu_tanh(T x) {
  const T k = T(0.7978845608028654), c = T(0.044715);
  return T(0.5) * x * (1 + tanh(k * (x + c * x * x * x)));
}

template <typename T>
__device__ __forceinline__ T gelu_tanh_slope(T x) {
  const T k = T(0.7978845608028654), c = T(0.044715), half = T(0.5);
  const T t = tanh(k * (x + c * x * x * x));
  return half * (1 + t) + half * x * (1 - t * t) * k * (1 + 3 * c * x * x);
}

// dy times the slope of x sigmoid(x).
template <typename T>
__device__ __forceinline__ T silu_gradient(T dy, T x) {
  const T s = 1 / (1 + exp(-x));
  return dy * s * (1 + x * (1 - s));
}

// dy times the slope of x tanh(log(1 + exp(x))).
template <typename T>
__device__ __forceinline__ T mish_gradient(T dy, T x) {
  const T s = 1 / (1 + exp(-x)), t = tanh(log1p(exp(x)));
  return dy * (t + x * s * (1 - t * t));
}
