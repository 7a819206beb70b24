// The tasks of a block, one output tile each (sm90/mainloop.cuh). To find out which pixels and taps a tile has takes
// about as long as the products of a small tile, because each division waits for the one before. So a block that
// computes many tiles has a planner, a thread that works out the tasks ahead of the others.
#pragma once
#include "conv2d/sm90/tile.cuh"

struct Task {
  WorkTile work;
  TileTaps taps;
  OutputPixels to;
  int n0, j0;  // the first image and the first output channel
};

// The tasks of a persistent block in shared memory: a ring of slots that the planner fills and that each consumer warp
// reads, in the order of the block's tiles. The producer works its tasks out itself, as it is ahead of the others in
// any case. A block that is not persistent has only one task and no ring (`slots` is null): thread 0 writes the task to
// slots[0] of run_output_tiles before the threads take their roles, and the producer and the consumers read it there.
struct Tasks {
  static constexpr int SLOTS = PERSISTENT ? 4 : 1, BARRIERS = 2 * SLOTS, READERS = 4 * CONSUMER_GROUPS;
  using State = PipelineState<SLOTS>;
  Task* slots;
  uint32_t full;

  // `barriers`: the shared address of BARRIERS barriers of 8 bytes. The caller then needs a __syncthreads.
  __device__ __forceinline__ Tasks(Task* slots, uint32_t barriers) : slots(slots), full(barriers) {
    if (threadIdx.x == 0 && PERSISTENT)
      for (int i = 0; i < SLOTS; i++) mbarrier_init(full_barrier(i), 1), mbarrier_init(empty_barrier(i), READERS);
  }
  __device__ __forceinline__ uint32_t full_barrier(uint32_t slot) const { return full + slot * 8; }
  __device__ __forceinline__ uint32_t empty_barrier(uint32_t slot) const { return full + (SLOTS + slot) * 8; }

  // For the planner of a persistent block: waits until all have read the task that was in the slot before, and returns
  // the slot.
  __device__ __forceinline__ Task& acquire(const State& state) const {
    mbarrier_wait(empty_barrier(state.stage()), state.parity() ^ 1);  // at once in the first round
    return slots[state.stage()];
  }
  __device__ __forceinline__ void publish(const State& state) const { mbarrier_arrive(full_barrier(state.stage())); }
  // For a reader in a persistent block: waits until the planner has published the task of the slot.
  __device__ __forceinline__ const Task& wait(const State& state) const {
    mbarrier_wait(full_barrier(state.stage()), state.parity());
    return slots[state.stage()];
  }
  // For one thread of a reader, all of whose threads have read the task.
  __device__ __forceinline__ void release(const State& state) const {
    if (PERSISTENT) mbarrier_arrive(empty_barrier(state.stage()));
  }
};
