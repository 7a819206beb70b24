// dX of one element of a batch normalisation, of dZ and the sums of its column.
#pragma once
#include "batchnorm/normalize.cuh"

// dX = scale dZ, and if mean and variance came from the batch   + (X - mean) tilt + shift  with the means over R rows.
// If the elements are `divided`, what is given in place of X - mean is (X - mean) / sqrt(var + eps).
template <int N>
struct InputGradient {
  Pack<float, N> tilt, shift;
  bool batch;

  __device__ __forceinline__ InputGradient(const Normalization<N>& normalized, const float* var, const float* dweight,
                                           const float* dbias, float eps, int R, int c, bool batch_, bool divided)
      : tilt{}, shift{}, batch(batch_) {
    const Pack<float, N> s = load_pack<N>(var + c);
    if (batch) tilt = load_pack<N>(dweight + c), shift = load_pack<N>(dbias + c);
#pragma unroll
    for (int i = 0; i < N; i++) {
      const float a = normalized.scale.v[i];
      const float unit = divided ? 1 : sqrtf(s.v[i] + eps);
      tilt.v[i] = tilt.v[i] / R * (-a / unit);  // a / unit / R may be too small for a float
      shift.v[i] *= -a / R;
    }
  }

  // dX of element i of a pack.
  __device__ __forceinline__ float operator()(const Normalization<N>& normalized, float dZ, float centred,
                                              int i) const {
    const float through = batch ? centred * tilt.v[i] + shift.v[i] : 0;  // not 0 times a mean of inf
    return normalized.scale.v[i] * dZ + through;
  }
};
