// Barriers for a part of a block: `threads` threads (a multiple of 32) meet at barrier `id`
// (1 to 15; 0 is __syncthreads).
#pragma once
#include "common/cuda.h"

#ifdef ALPHA_EMULATED
inline void named_barrier_sync(unsigned id, unsigned threads, ALPHA_CALLER) {
  alpha_emulation::sync_named(id, threads, true, {file, line});
}
inline void named_barrier_arrive(unsigned id, unsigned threads, ALPHA_CALLER) {
  alpha_emulation::sync_named(id, threads, false, {file, line});
}
#else
__device__ __forceinline__ void named_barrier_sync(unsigned id, unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Arrives without waiting.
__device__ __forceinline__ void named_barrier_arrive(unsigned id, unsigned threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
#endif
