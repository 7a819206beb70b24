// What batch normalisation, and a rectifier behind it, do to one element. The gradients compute  z  again with the same
// code as the forward pass, so that its sign is the same.
#pragma once
#include "common/columns.cuh"

// The numbers of N columns of which  z = (x - mean) scale + bias  with  scale = weight / sqrt(var + eps). If `bias` is
// null, it is 0.
template <int N>
struct Normalization {
  Pack<float, N> mean, scale, bias;

  __device__ __forceinline__ Normalization(const float* mean_, const float* var, const float* weight,
                                           const float* bias_, float eps, int c)
      : mean(load_pack<N>(mean_ + c)),
        scale(load_pack<N>(weight + c)),
        bias(bias_ ? load_pack<N>(bias_ + c) : Pack<float, N>{}) {
    const Pack<float, N> s = load_pack<N>(var + c);
#pragma unroll
    for (int i = 0; i < N; i++) scale.v[i] = scale.v[i] / sqrtf(s.v[i] + eps);
  }

  // z of element i of a pack.
  __device__ __forceinline__ float operator()(const Pack<float, N>& x, int i) const {
    return (x.v[i] - mean.v[i]) * scale.v[i] + bias.v[i];
  }
};

// ReLU (slope 0, bound inf), ReLU6 (slope 0, bound 6) or leaky ReLU (slope > 0, bound inf).
struct Rectifier {
  float slope, bound;

  __device__ __forceinline__ float operator()(float z) const {
    if (slope == 0) return z < 0 ? 0 : z > bound ? bound : z;  // NaN stays NaN
    return z > 0 ? z : slope * z;
  }

  // The gradient of z; y has the same sign and may stand for it. What it drops is selected, because 0 times inf is NaN.
  __device__ __forceinline__ float gradient(float dy, float z) const {
    const bool bounded = bound < __int_as_float(0x7f800000);
    if (slope == 0) return z <= 0 || (bounded && z >= bound) ? 0 : dy;
    return z > 0 ? dy : slope * dy;
  }
};
