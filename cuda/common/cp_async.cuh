// cp.async (sm_80 and newer): copies from global to shared memory that run beside the arithmetic.
// `target` is a shared address (shared_address), 4-, 8- or 16-byte aligned like `source`; 16-byte copies skip L1. The
// variants with `valid_bytes` copy that many and fill the rest with zeros: 0 reads nothing, whatever `source` is.
#pragma once
#include "common/cuda.h"

#ifdef ALPHA_EMULATED
#include "common/emulation/async_copy.h"
#endif

template <int bytes>
__device__ __forceinline__ void cp_async(uint32_t target, const void* source, int valid_bytes) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
#ifdef ALPHA_EMULATED
  alpha_emulation::start_copy(target, source, bytes, valid_bytes);
#else
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(valid_bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(source), "n"(bytes),
                 "r"(valid_bytes)
                 : "memory");
#endif
}

template <int bytes>
__device__ __forceinline__ void cp_async(uint32_t target, const void* source) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
#ifdef ALPHA_EMULATED
  alpha_emulation::start_copy(target, source, bytes, bytes);
#else
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(source) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(target), "l"(source), "n"(bytes) : "memory");
#endif
}

// Closes the group of the thread's copies since the last commit (it may be empty).
__device__ __forceinline__ void cp_async_commit() {
#ifdef ALPHA_EMULATED
  alpha_emulation::commit_copies();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most the `pending` newest groups of the thread are under way.
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
#ifdef ALPHA_EMULATED
  alpha_emulation::finish_copies(pending);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#endif
}
