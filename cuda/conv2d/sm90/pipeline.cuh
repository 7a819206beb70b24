// A pipeline of tiles in shared memory: a thread has TMA fill them (the producer), warpgroups use them (the consumers).
#pragma once
#include "common/mbarrier.cuh"

// STAGES tiles of BYTES. Each has a "full" barrier, and an "empty" one at which CONSUMERS_PER_STAGE warpgroups arrive.
template <int BYTES, int STAGES, int CONSUMERS_PER_STAGE>
struct Pipeline {
  static constexpr int SHARED = BYTES * STAGES;
  uint32_t tiles, full, empty;

  // `tiles` is a shared address, a multiple of 1024; `barriers` has 2 STAGES elements. The caller then needs a __syncthreads.
  __device__ __forceinline__ Pipeline(uint32_t tiles, uint64_t* barriers)
      : tiles(tiles), full(shared_address(barriers)), empty(shared_address(barriers + STAGES)) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < STAGES; i++)
        mbarrier_init(full_barrier(i), 1), mbarrier_init(empty_barrier(i), CONSUMERS_PER_STAGE);
      mbarrier_fence_init();
    }
  }
  __device__ __forceinline__ uint32_t tile(int i) const { return tiles + i % STAGES * BYTES; }
  __device__ __forceinline__ uint32_t full_barrier(int i) const { return full + i % STAGES * 8; }
  __device__ __forceinline__ uint32_t empty_barrier(int i) const { return empty + i % STAGES * 8; }
  static __device__ __forceinline__ unsigned parity(int i) { return i / STAGES & 1; }

  // For the producer: waits until the i-th tile is empty, announces how many bytes will come, and returns its address.
  __device__ __forceinline__ uint32_t producer_acquire(int i, unsigned bytes) const {
    if (i >= STAGES) mbarrier_wait(empty_barrier(i), parity(i) ^ 1);
    mbarrier_arrive_expect(full_barrier(i), bytes);
    return tile(i);
  }
  // For a consumer: waits until the i-th tile is full, and returns its address.
  __device__ __forceinline__ uint32_t consumer_wait(int i) const {
    mbarrier_wait(full_barrier(i), parity(i));
    return tile(i);
  }
  // For a consumer warpgroup that has read the i-th tile.
  __device__ __forceinline__ void consumer_release(int i) const {
    if (threadIdx.x % 128 == 0) mbarrier_arrive(empty_barrier(i));
  }
};
