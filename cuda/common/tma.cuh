// TMA (sm_90) loads a box of a tensor into shared memory; the bytes count for an mbarrier. What lies
// outside the tensor is zero. `map` is a tensor map that the driver's encode_tiled_map made, 64-byte aligned in device
// memory; `target` a 128-byte aligned shared address; x is the innermost coordinate, a multiple of 16 bytes.
#pragma once
#include "common/cuda.h"
#include "common/mbarrier.cuh"

struct __align__(64) TensorMap {
  char bytes[128];
};

#ifdef ALPHA_EMULATED
#include "common/emulation/tensor_map.h"

inline void tma_prefetch(const TensorMap*) {}
inline void prefetch_l2(const void*, int) {}

template <class... Coordinates>
void tma_load(uint32_t target, const TensorMap* map, uint32_t barrier, int x, int y, Coordinates... more) {
  static_assert(sizeof...(more) <= 3, "a tensor has 2 to 5 dimensions");
  const int coordinates[5] = {x, y, more...};
  alpha_emulation::load_box(target, map->bytes, barrier, coordinates, 2 + sizeof...(more));
}
#else
// Has the tensor map read before the first load needs it.
__device__ __forceinline__ void tma_prefetch(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Has `bytes` from an address on brought to the L2 cache, both multiples of 16. The lanes of a warp do so one by one.
__device__ __forceinline__ void prefetch_l2(const void* address, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "r"(bytes) : "memory");
}

#define ALPHA_TMA_LOAD(rank) "cp.async.bulk.tensor." #rank "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
__device__ __forceinline__ void tma_load(uint32_t target, const TensorMap* map, uint32_t barrier, int x, int y) {
  asm volatile(ALPHA_TMA_LOAD(2) "[%0], [%1, {%3, %4}], [%2];" ::"r"(target), "l"(map), "r"(barrier), "r"(x), "r"(y)
               : "memory");
}
__device__ __forceinline__ void tma_load(uint32_t target, const TensorMap* map, uint32_t barrier, int x, int y, int z) {
  asm volatile(ALPHA_TMA_LOAD(3) "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(target), "l"(map), "r"(barrier), "r"(x),
               "r"(y), "r"(z)
               : "memory");
}
__device__ __forceinline__ void tma_load(uint32_t target, const TensorMap* map, uint32_t barrier, int x, int y, int z,
                                         int u) {
  asm volatile(ALPHA_TMA_LOAD(4) "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(target), "l"(map), "r"(barrier), "r"(x),
               "r"(y), "r"(z), "r"(u)
               : "memory");
}
__device__ __forceinline__ void tma_load(uint32_t target, const TensorMap* map, uint32_t barrier, int x, int y, int z,
                                         int u, int v) {
  asm volatile(ALPHA_TMA_LOAD(5) "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(target), "l"(map), "r"(barrier),
               "r"(x), "r"(y), "r"(z), "r"(u), "r"(v)
               : "memory");
}
#undef ALPHA_TMA_LOAD
#endif
