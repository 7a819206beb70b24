// A pipeline of tiles in shared memory: a thread has TMA fill them (the producer), warpgroups use them (the consumers).
#pragma once
#include "common/mbarrier.cuh"

constexpr int GROUP_THREADS = 128;  // of a warpgroup

// Returns x as a value of which the compiler knows nothing. So it keeps a shared-memory address in a register.
// Otherwise it would compute the address anew at each use, and wait for a special register each time.
__device__ __forceinline__ uint32_t kept(uint32_t x) {
#ifndef ALPHA_EMULATED
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// Where a producer or a consumer is in a pipeline of STAGES: the stage, and the parity of the stage's phase, in one
// register. Producer and consumers go through the same stages in the same order.
template <int STAGES>
struct PipelineState {
  uint32_t bits = 0;  // the parity is the highest one

  __device__ __forceinline__ uint32_t stage() const { return bits & 0x7fffffffu; }
  __device__ __forceinline__ uint32_t parity() const { return bits >> 31; }
  // The stage before this one.
  __device__ __forceinline__ uint32_t stage_before() const { return (stage() ? stage() : STAGES) - 1; }
  // Goes on by at most STAGES stages.
  __device__ __forceinline__ void advance(int stages = 1) {
    bits += stages;
    if (stage() >= STAGES) bits = (bits - STAGES) ^ 0x80000000u;
  }
};

// STAGES tiles of BYTES. Each has a "full" barrier, and an "empty" one at which CONSUMERS_PER_STAGE warpgroups arrive.
template <int BYTES, int STAGES, int CONSUMERS_PER_STAGE>
struct Pipeline {
  static constexpr int SHARED = BYTES * STAGES, BARRIERS = 2 * STAGES;
  using State = PipelineState<STAGES>;
  uint32_t tiles, full;

  // Shared addresses: `tiles` is a multiple of 1024, and there are 2 STAGES barriers of 8 bytes. The caller then needs
  // a __syncthreads.
  __device__ __forceinline__ Pipeline(uint32_t tiles, uint32_t barriers) : tiles(tiles), full(barriers) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < STAGES; i++)
        mbarrier_init(full_barrier(i), 1), mbarrier_init(empty_barrier(i), CONSUMERS_PER_STAGE);
      mbarrier_fence_init();
    }
  }
  __device__ __forceinline__ uint32_t tile(uint32_t stage) const { return tiles + stage * BYTES; }
  __device__ __forceinline__ uint32_t full_barrier(uint32_t stage) const { return full + stage * 8; }
  __device__ __forceinline__ uint32_t empty_barrier(uint32_t stage) const { return full + (STAGES + stage) * 8; }

  // For the producer: waits until the tile is empty, announces how many bytes will come, and returns its address.
  __device__ __forceinline__ uint32_t producer_acquire(const State& state, unsigned bytes) const {
    mbarrier_wait(empty_barrier(state.stage()), state.parity() ^ 1);  // at once in the first round: all tiles are empty
    mbarrier_arrive_expect(full_barrier(state.stage()), bytes);
    return tile(state.stage());
  }
  // For a consumer: waits until the tile is full, and returns its address.
  __device__ __forceinline__ uint32_t consumer_wait(const State& state) const {
    mbarrier_wait(full_barrier(state.stage()), state.parity());
    return tile(state.stage());
  }
  // For a consumer warpgroup that has read the tile of a stage.
  __device__ __forceinline__ void consumer_release(uint32_t stage) const {
    if (threadIdx.x % GROUP_THREADS == 0) mbarrier_arrive(empty_barrier(stage));
  }
};
