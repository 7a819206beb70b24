// mbarrier (sm_90): a barrier of `count` arrivals and announced bytes, an aligned uint64_t in shared memory given by
// its shared address. Its phases alternate in parity, beginning with 0; waiting for a parity waits for the end of the
// phase of that parity, so on a new barrier waiting for 1 returns at once.
#pragma once
#include "common/cuda.h"

#ifdef ALPHA_EMULATED
#include "common/emulation/mbarrier.h"

inline void mbarrier_init(uint32_t barrier, unsigned count) { alpha_emulation::init_mbarrier(barrier, count); }
inline void mbarrier_fence_init() {}
inline void mbarrier_arrive(uint32_t barrier) { alpha_emulation::arrive_mbarrier(barrier, 0); }
inline void mbarrier_arrive_expect(uint32_t barrier, unsigned bytes) {
  alpha_emulation::arrive_mbarrier(barrier, bytes);
}
inline bool mbarrier_try_wait(uint32_t barrier, unsigned parity, ALPHA_CALLER) {
  alpha_emulation::wait_mbarrier(barrier, parity, {file, line});  // to the end: trying again would find nothing new
  return true;
}
inline void mbarrier_wait(uint32_t barrier, unsigned parity, ALPHA_CALLER) {
  alpha_emulation::wait_mbarrier(barrier, parity, {file, line});
}
inline void fence_proxy_async() {}
#else
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
// Makes initialised barriers visible to the asynchronous copies; __syncthreads makes them visible to the block.
__device__ __forceinline__ void mbarrier_fence_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and lets the phase wait for `bytes` of asynchronous copies as well.
__device__ __forceinline__ void mbarrier_arrive_expect(uint32_t barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Waits for a time that the hardware chooses; returns whether the phase has ended.
__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, unsigned parity) {
  uint32_t ended;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(ended)
               : "r"(barrier), "r"(parity)
               : "memory");
  return ended;
}
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, unsigned parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}
// Orders the thread's plain accesses to shared memory before the asynchronous ones (TMA, wgmma) that follow.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#endif
