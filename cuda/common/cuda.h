// First include of every kernel file: CUDA on nvcc, the emulation of it on a C++ compiler (macro ALPHA_EMULATED).
#pragma once
#include <stdint.h>

#ifdef ALPHA_EMULATED
#include "common/emulation/cuda.h"
#else
#include <cuda_bf16.h>
#include <cuda_runtime.h>

extern __shared__ __align__(128) unsigned char alpha_dynamic_shared[];

// Dynamic shared memory of a block as `type* name`; 128-byte aligned. Several in one kernel name the same bytes.
#define ALPHA_DYNAMIC_SHARED(type, name) type* const name = reinterpret_cast<type*>(alpha_dynamic_shared)

// The 32-bit address of shared memory that PTX takes.
__device__ __forceinline__ uint32_t shared_address(const void* place) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(place));
}

// The first statement of every kernel, before it reads or writes global memory. In a captured step a kernel is launched
// while the one before it still runs (programmatic dependent launch, sm_90). This lets the next kernel be launched, too,
// and then waits until the one before has ended and all that it wrote can be read.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  // The compiler may move a load of constant memory over the wait, but not over a branch: no SM has this number.
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (sm == ~0u) asm volatile("exit;");
#endif
}
#endif
