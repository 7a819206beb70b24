// What batch normalisation does to one element. The gradients compute  z  again with the same code as the forward pass,
// so that its sign, which a rectifier behind it asks for, is the same.
#pragma once
#include "common/columns.cuh"
#include "common/rectifier.cuh"

// A weight of at least `smallest` in magnitude, with its sign: what is divided by it stays finite.
__device__ __forceinline__ float away_from_0(float weight, float smallest) {
  return fabsf(weight) < smallest ? copysignf(smallest, weight) : weight;
}

// The numbers of N columns of which  z = (x - mean) scale + bias  with  scale = weight / sqrt(var + eps). If `mean` or
// `bias` is null, it is 0. A weight nearer to 0 than `smallest` counts as that.
template <int N>
struct Normalization {
  Pack<float, N> mean, scale, bias;

  __device__ __forceinline__ Normalization() : mean{}, scale{}, bias{} {}
  __device__ __forceinline__ Normalization(const float* mean_, const float* var, const float* weight,
                                           const float* bias_, float eps, int c, float smallest = 0)
      : mean(mean_ ? load_pack<N>(mean_ + c) : Pack<float, N>{}),
        scale(load_pack<N>(weight + c)),
        bias(bias_ ? load_pack<N>(bias_ + c) : Pack<float, N>{}) {
    const Pack<float, N> s = load_pack<N>(var + c);
#pragma unroll
    for (int i = 0; i < N; i++) scale.v[i] = away_from_0(scale.v[i], smallest) / sqrtf(s.v[i] + eps);
  }

  // z of element i of a pack.
  __device__ __forceinline__ float operator()(const Pack<float, N>& x, int i) const {
    return (x.v[i] - mean.v[i]) * scale.v[i] + bias.v[i];
  }
};

// The way back:  (x - mean) / sqrt(var + eps)  from  y = rectifier(z + residual),  whose slope is not 0.
template <int N>
struct Undone {
  Pack<float, N> bias, inverse;
  float steepness;

  __device__ __forceinline__ Undone() : bias{}, inverse{}, steepness(0) {}
  // in_bfloat16: whether y has that type. Where the weight w is small, y is little but the bias, with a rounding error
  // of up to 2^-9 of it, and 1 / w would make that error large. It counts as noise:   w / (w^2 + (2^-9 bias)^2).
  __device__ __forceinline__ Undone(const float* weight, const float* bias_, float slope, float smallest, int c,
                                    bool in_bfloat16)
      : bias(load_pack<N>(bias_ + c)), inverse(load_pack<N>(weight + c)), steepness(1 / slope) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      const float w = away_from_0(inverse.v[i], smallest), noise = bias.v[i] / 512;
      inverse.v[i] = in_bfloat16 ? w / (w * w + noise * noise) : 1 / w;
    }
  }

  // Element i of a pack.
  __device__ __forceinline__ float operator()(float y, float residual, int i) const {
    const float sum = y > 0 ? y : y * steepness;
    return (sum - residual - bias.v[i]) * inverse.v[i];
  }
};
