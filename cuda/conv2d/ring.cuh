// A ring of tiles in shared memory between a thread that has TMA fill them and the warpgroups that use them.
#pragma once
#include "common/mbarrier.cuh"

// Tiles of BYTES, STAGES of them: each has a barrier for "full" and one for "empty", where USERS warpgroups arrive.
template <int BYTES, int STAGES, int USERS>
struct Ring {
  static constexpr int SHARED = BYTES * STAGES;
  uint32_t tiles, full, empty;

  // `tiles` is a shared address, a multiple of 1024; `barriers` has 2 STAGES. A barrier of the block follows.
  __device__ __forceinline__ Ring(uint32_t tiles, uint64_t* barriers)
      : tiles(tiles), full(shared_address(barriers)), empty(shared_address(barriers + STAGES)) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < STAGES; i++) mbarrier_init(full_at(i), 1), mbarrier_init(empty_at(i), USERS);
      mbarrier_fence_init();
    }
  }
  __device__ __forceinline__ uint32_t tile(int i) const { return tiles + i % STAGES * BYTES; }
  __device__ __forceinline__ uint32_t full_at(int i) const { return full + i % STAGES * 8; }
  __device__ __forceinline__ uint32_t empty_at(int i) const { return empty + i % STAGES * 8; }
  static __device__ __forceinline__ unsigned parity(int i) { return i / STAGES & 1; }

  // The producer's thread: the i-th tile, once it is free, with the bytes announced that will come.
  __device__ __forceinline__ uint32_t begin(int i, unsigned bytes) const {
    if (i >= STAGES) mbarrier_wait(empty_at(i), parity(i) ^ 1);
    mbarrier_arrive_expect(full_at(i), bytes);
    return tile(i);
  }
  // A user: the i-th tile once it is full.
  __device__ __forceinline__ uint32_t wait(int i) const {
    mbarrier_wait(full_at(i), parity(i));
    return tile(i);
  }
  // A user's warpgroup is done with the i-th tile.
  __device__ __forceinline__ void release(int i) const {
    if (threadIdx.x % 128 == 0) mbarrier_arrive(empty_at(i));
  }
};
