// Pack<T, N>: N neighbouring elements in one access. A pack is aligned to its size, at most to 16 bytes,
// the widest load there is; larger packs become several of those. bfloat16 in memory is a pack of floats in
// registers: `load_pack` widens and `store_pack` rounds.
#pragma once
#include "common/bfloat16.cuh"
#include "common/cuda.h"

template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T v[N];
};

template <int N, typename T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* source) {
  return *reinterpret_cast<const Pack<T, N>*>(source);
}

template <int N, typename T>
__device__ __forceinline__ void store_pack(T* target, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(target) = pack;
}

template <int N>
__device__ __forceinline__ Pack<float, N> load_pack(const bfloat16* source) {
  Pack<float, N> result;
  if constexpr (N == 1) {
    result.v[0] = __bfloat162float(*source);
  } else {
    const auto words = load_pack<N / 2>(reinterpret_cast<const uint32_t*>(source));
#pragma unroll
    for (int i = 0; i < N; i += 2) widen_pair(words.v[i / 2], result.v[i], result.v[i + 1]);
  }
  return result;
}

template <int N>
__device__ __forceinline__ void store_pack(bfloat16* target, const Pack<float, N>& pack) {
  if constexpr (N == 1) {
    *target = __float2bfloat16_rn(pack.v[0]);
  } else {
    Pack<uint32_t, N / 2> words;
#pragma unroll
    for (int i = 0; i < N; i += 2) words.v[i / 2] = narrow_pair(pack.v[i], pack.v[i + 1]);
    store_pack(reinterpret_cast<uint32_t*>(target), words);
  }
}

template <int N, typename T>
__device__ __forceinline__ Pack<T, N> splat(T value) {
  Pack<T, N> result;
#pragma unroll
  for (int i = 0; i < N; i++) result.v[i] = value;
  return result;
}

template <typename T, int N>
__device__ __forceinline__ void operator+=(Pack<T, N>& sum, const Pack<T, N>& term) {
#pragma unroll
  for (int i = 0; i < N; i++) sum.v[i] += term.v[i];
}
