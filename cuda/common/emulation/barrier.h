// Barriers of the block: __syncthreads and its reductions, named barriers, and the report of a deadlock.
#pragma once
#include "common/emulation/fault.h"
#include "common/emulation/scheduler.h"
#include "common/emulation/warp.h"

namespace alpha_emulation {

// Barrier 0 is __syncthreads; the hardware has 16 of them.
struct BlockBarrier {
  unsigned arrived = 0, expected = 0;
  int count = 0, all = 1, any = 0;  // of the predicates of those who arrived
  int line = 0;                     // of the first to arrive
  bool several_lines = false;
};
constexpr unsigned kBarriers = 16;
inline BlockBarrier barriers[kBarriers];
inline int barrier_count, barrier_all, barrier_any;  // results of the __syncthreads released last

// Appends the state of the mbarrier at a shared address; set if a kernel uses mbarriers.
inline void (*describe_mbarrier)(unsigned address) = nullptr;

// Releases all threads that `waits_here(thread)` names, in ascending order or, with a seed, in any order of warps.
template <class WaitsHere>
void release_where(WaitsHere waits_here) {
  const unsigned first = released_count;
  for (unsigned warp = (thread_count + kWarpSize - 1) / kWarpSize; warp-- > 0;) {
    unsigned lanes = 0;
    for (unsigned i = warp * kWarpSize; i < (warp + 1) * kWarpSize && i < thread_count; i++)
      lanes |= unsigned(waits_here(threads[i])) << i % kWarpSize;
    release_lanes(warp, lanes);
  }
  for (unsigned i = released_count - first; shuffled() && i > 1; i--) {
    const unsigned j = random_number() % i;
    const ReleasedLanes swapped = released[first + i - 1];
    released[first + i - 1] = released[first + j];
    released[first + j] = swapped;
  }
}

// All threads of the block meet here, at one line of the source.
void sync_block(int predicate, Location location);

// `count` threads meet at barrier `id`; those who only announce themselves (`wait` false) go on at once.
void sync_named(unsigned id, unsigned count, bool wait, Location location);

}  // namespace alpha_emulation

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  alpha_emulation::sync_block(0, {file, line});
}
inline int __syncthreads_or(int predicate, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  alpha_emulation::sync_block(predicate, {file, line});
  return alpha_emulation::barrier_any;
}
inline int __syncthreads_and(int predicate, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  alpha_emulation::sync_block(predicate, {file, line});
  return alpha_emulation::barrier_all;
}
inline int __syncthreads_count(int predicate, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  alpha_emulation::sync_block(predicate, {file, line});
  return alpha_emulation::barrier_count;
}
