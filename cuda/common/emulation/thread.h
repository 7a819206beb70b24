// A CUDA thread, a warp and a block as the emulator keeps them. Everything here exists once per kernel library.
#pragma once
#include <stdint.h>

#include "common/emulation/vector_types.h"

namespace alpha_emulation {

constexpr unsigned kMaxThreads = 1024, kWarpSize = 32, kMaxWarps = kMaxThreads / kWarpSize;

enum class Wait : uint8_t { none, not_started, block_barrier, named_barrier, warp, warpgroup, mbarrier, exited };

// A line of kernel source; __builtin_FILE() and __builtin_LINE() as default arguments give the caller's.
struct Location {
  const char* file = nullptr;
  int line = 0;
};

struct Thread {
  void* stack_pointer;  // of its fiber while it does not run
  uint3 index;          // threadIdx
  unsigned linear;
  unsigned wait_argument;  // which named barrier, warpgroup, or the mbarrier's shared address
  unsigned wait_parity;
  Location location;  // where it waits
};

struct Warp;

// What the lanes of a warp do together, run once when the last lane arrives, with every lane's operands at hand.
struct WarpOperation {
  const char* name;
  void (*run)(Warp& warp, unsigned lanes);
};

struct Warp {
  struct Lane {
    const WarpOperation* operation;
    unsigned mask;
    void* operands;
  };
  unsigned index;
  unsigned live;     // lanes that exist and have not exited
  unsigned arrived;  // lanes that wait in a warp operation
  Lane lanes[kWarpSize];
  const WarpOperation* last_operation;  // of the lane that arrived last
  unsigned last_mask;
};

inline Thread threads[kMaxThreads];
inline Wait waits[kMaxThreads] __attribute__((aligned(64)));  // what each of them waits for
inline Warp warps[kMaxWarps];
inline Thread* current = nullptr;
inline unsigned thread_count = 0, live_threads = 0;
inline uint3 block_index;
inline dim3 block_shape, grid_shape;

inline Warp& current_warp() { return warps[current->linear / kWarpSize]; }
inline unsigned current_lane() { return current->linear % kWarpSize; }

// Orders and choices that real hardware leaves open; the same seed gives the same run. Seed 0: ascending order.
inline uint32_t random_state = 0;
inline bool shuffled() { return random_state != 0; }
inline uint32_t random_number() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state;
}

}  // namespace alpha_emulation

#define threadIdx (alpha_emulation::current->index)
#define blockIdx (alpha_emulation::block_index)
#define blockDim (alpha_emulation::block_shape)
#define gridDim (alpha_emulation::grid_shape)
#define warpSize 32
