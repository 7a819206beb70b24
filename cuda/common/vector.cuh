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

// Bits<T, N>: N neighbouring elements as they lie in memory. Loads that stay bits until all of them are under way do
// not wait for each other, as they would if each was widened at once.
template <typename T, int N>
struct Bits {
  Pack<T, N> elements;
  static __device__ __forceinline__ Bits of(T value) {
    Bits result;
#pragma unroll
    for (int i = 0; i < N; i++) result.elements.v[i] = value;
    return result;
  }
  __device__ __forceinline__ Pack<T, N> widened() const { return elements; }
};

// A word has two elements; an element alone is half a word.
template <int N>
struct WordOf {
  using Type = uint32_t;
};
template <>
struct WordOf<1> {
  using Type = uint16_t;
};
template <int N>
struct Bits<bfloat16, N> {
  using Word = typename WordOf<N>::Type;
  static constexpr int WORDS = N == 1 ? 1 : N / 2;
  Pack<Word, WORDS> words;
  // `value` is one that bfloat16 has.
  static __device__ __forceinline__ Bits of(float value) {
    const uint32_t upper = __float_as_uint(value) >> 16;
    Bits result;
#pragma unroll
    for (int i = 0; i < WORDS; i++) result.words.v[i] = Word(N == 1 ? upper : upper << 16 | upper);
    return result;
  }
  __device__ __forceinline__ Pack<float, N> widened() const {
    Pack<float, N> result;
    if constexpr (N == 1) {
      result.v[0] = __uint_as_float(uint32_t(words.v[0]) << 16);
    } else {
#pragma unroll
      for (int i = 0; i < N; i += 2) widen_pair(words.v[i / 2], result.v[i], result.v[i + 1]);
    }
    return result;
  }
};

template <int N, typename T>
__device__ __forceinline__ Bits<T, N> load_bits(const T* source) {
  return *reinterpret_cast<const Bits<T, N>*>(source);
}

template <int N>
__device__ __forceinline__ Pack<float, N> load_pack(const bfloat16* source) {
  return load_bits<N>(source).widened();
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
