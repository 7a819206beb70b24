// Functions that an elementwise expression may call besides those of CUDA's math library.
#pragma once
#include "common/approximate.cuh"
#include "common/bfloat16.cuh"

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

// Phi(x), the normal distribution function, and exp(-x^2 / 2), as accurate as numbers of type Stored need it. For
// negative x the relative error counts, because gelu(x) = x Phi(x).
template <typename Stored>
struct Normal {
  using Real = Number<Stored>;
  Real below, exponential;
  __device__ __forceinline__ explicit Normal(Real x)
      : below(Real(0.5) * erfc(Real(-0.7071067811865476) * x)),  // 1 + erf would cancel
        exponential(exp(Real(-0.5) * x * x)) {}
};

// Phi(-|x|) exp(x^2 / 2) is a polynomial of t = 1 / (1 + 0.31 |x|) without a constant term, whose relative error is
// below 5e-6 as far as Phi is a normal number; with what float32 rounds, that of Phi(-|x|) is below 2e-5. bfloat16
// rounds to 4e-3.
template <>
struct Normal<bfloat16> {
  float below, exponential;
  __device__ __forceinline__ explicit Normal(float x) : exponential(approximate_exp2(x * x * -0.72134752f)) {
    const float t = approximate_reciprocal(fmaf(0.31f, fabsf(x), 1.0f));
    float series = fmaf(t, -0.0739258826f, 0.1804400086f);
    series = fmaf(t, series, 0.0157571565f);
    series = fmaf(t, series, 0.1334227473f);
    series = fmaf(t, series, 0.1204431057f);
    series = fmaf(t, series, 0.1238605380f);
    const float tail = series * t * exponential;
    below = x < 0 ? tail : 1 - tail;
  }
};

// x Phi(x).
template <typename Stored>
__device__ __forceinline__ Number<Stored> gelu(Number<Stored> x) {
  return x * Normal<Stored>(x).below;
}

template <typename Stored>
__device__ __forceinline__ Number<Stored> gelu_slope(Number<Stored> x) {
  const Normal<Stored> normal(x);
  return normal.below + x * (Number<Stored>(0.3989422804014327) * normal.exponential);
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
