// The output Y that stays for the gradient of batch normalisation: as it is, or with Y_HALF 1 (TYPE float) as its fp16
// copy alone (batchnorm/half.cuh).
#pragma once
#include "batchnorm/gradient_rows.cuh"
#include "common/fp16_terms.cuh"

constexpr bool Y_HALF = ALPHA_Y_HALF;
static_assert(!Y_HALF || sizeof(T) == 4, "a copy of floats");

template <bool HALF>
struct KeptOf {
  using Type = T;
};
template <>
struct KeptOf<true> {
  using Type = uint16_t;
};
using Kept = KeptOf<Y_HALF>::Type;

// The factor that undoes the scale of the copy, which follows from its magnitude; 1 if there is no copy.
__device__ __forceinline__ float kept_factor(const unsigned* magnitude) {
  return Y_HALF ? 1 / half_scale(*magnitude) : 1;
}

// The two values of a word of the copy.
__device__ __forceinline__ Pack<float, 2> kept_pair(uint32_t word, float factor) {
  const float2 values = unpack_half(word);
  return {values.x * factor, values.y * factor};
}

template <int N>
__device__ __forceinline__ Pack<float, N> load_kept(const Kept* source, float factor) {
  Pack<float, N> result;
  if constexpr (!Y_HALF) {
    result = load_pack<N>(source);
  } else if constexpr (N == 1) {
    result.v[0] = kept_pair(*source, factor).v[0];
  } else {
    const Pack<uint32_t, N / 2> words = load_pack<N / 2>(reinterpret_cast<const uint32_t*>(source));
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const Pack<float, 2> pair = kept_pair(words.v[i / 2], factor);
      result.v[i] = pair.v[0], result.v[i + 1] = pair.v[1];
    }
  }
  return result;
}
