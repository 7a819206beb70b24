// What batch normalisation does to one element. The gradients compute  z  again with the same code as the forward pass,
// so that its sign, which a rectifier behind it asks for, is the same.
#pragma once
#include "common/columns.cuh"
#include "common/rectifier.cuh"

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
