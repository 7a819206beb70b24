// A pipeline of tiles in shared memory: a thread has TMA fill them (the producer), warpgroups use them (the consumers).
#pragma once
#include "common/mbarrier.cuh"

// STAGES tiles of BYTES. Each has a "full" barrier, and an "empty" one where CONSUMERS_PER_STAGE warpgroups arrive.
template <int BYTES, int STAGES, int CONSUMERS_PER_STAGE>
struct Pipeline {
  static constexpr int SHARED = BYTES * STAGES;
  uint32_t tiles, full, empty;

  // `tiles` is a shared address, a multiple of 1024; `barriers` has 2 STAGES. A barrier of the block follows.
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

  // The producer's thread: the i-th tile, once it is empty; announces how many bytes will come.
  __device__ __forceinline__ uint32_t producer_acquire(int i, unsigned bytes) const {
    if (i >= STAGES) mbarrier_wait(empty_barrier(i), parity(i) ^ 1);
    mbarrier_arrive_expect(full_barrier(i), bytes);
    return tile(i);
  }
  // A consumer: the i-th tile, once it is full.
  __device__ __forceinline__ uint32_t consumer_wait(int i) const {
    mbarrier_wait(full_barrier(i), parity(i));
    return tile(i);
  }
  // A consumer warpgroup is done with the i-th tile.
  __device__ __forceinline__ void consumer_release(int i) const {
    if (threadIdx.x % 128 == 0) mbarrier_arrive(empty_barrier(i));
  }
};
