// Pack<T, N>: N neighbouring elements in one access. A pack is aligned to its size, at most to 16 bytes,
// the widest load there is; larger packs become several of those.
#pragma once
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
