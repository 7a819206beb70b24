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
#endif
