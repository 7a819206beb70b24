// The fp16 copy of what batch normalisation computes, for the convolution that reads it in place of the floats.
#pragma once
#include "common/fp16_terms.cuh"
#include "common/vector.cuh"

// x times the scale. What is finite stays finite: rounding may bring it above the limit from which the scale follows.
__device__ __forceinline__ float scaled_to_half(float x, float scale) {
  const float most = 65504.f, y = x * scale;
  return fabsf(y) > most && isfinite(x) ? copysignf(most, x) : y;
}

// Stores a pack of values times `scale` at `target`.
template <int N>
__device__ __forceinline__ void store_half(uint16_t* target, const Pack<float, N>& values, float scale) {
  Pack<uint32_t, N / 2> pairs;
#pragma unroll
  for (int i = 0; i < N; i += 2)
    pairs.v[i / 2] = pack_half(scaled_to_half(values.v[i], scale), scaled_to_half(values.v[i + 1], scale));
  store_pack(reinterpret_cast<uint32_t*>(target), pairs);
}
