// The turns of warpgroups that compute tiles of their own (sm90/ping_pong.cuh).
#pragma once
#include "conv2d/sm90/tile.cuh"

// With PING_PONG a warpgroup begins its products when the one before has begun all of its own; otherwise nobody waits.
// A full barrier tells two phases apart, so nobody may wait for a stage before its last user has waited for it.
class Turns {
  uint32_t barriers;
  int group;
  uint32_t taken = 0;

 public:
  static constexpr int BARRIERS = PING_PONG ? CONSUMER_GROUPS : 0;

  // `barriers`: the shared address of BARRIERS barriers of 8 bytes. The caller then needs a __syncthreads.
  __device__ __forceinline__ explicit Turns(uint32_t barriers)
      : barriers(barriers), group(threadIdx.x / GROUP_THREADS) {
    if (threadIdx.x == 0)
      for (int i = 0; i < BARRIERS; i++) mbarrier_init(barriers + i * 8, GROUP_THREADS / 32);
  }
  // The first turn of the first warpgroup begins at once.
  __device__ __forceinline__ void wait() {
    if (PING_PONG) mbarrier_wait(barriers + group * 8, (taken++ & 1) ^ unsigned(group == 0));
  }
  __device__ __forceinline__ void pass() const {
    if (PING_PONG && threadIdx.x % 32 == 0) mbarrier_arrive(barriers + (group + 1) % CONSUMER_GROUPS * 8);
  }
};
