// fill_16, fill_32, fill_64: every element of an array of that many bits becomes one bit pattern.
// Grid: any number of blocks, grid-stride. Block: any. No shared memory, no macros.
#include "common/cuda.h"

template <typename Word>
__device__ __forceinline__ void fill(Word* target, Word value, long long count) {
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    target[i] = value;
  }
}

extern "C" __global__ void fill_16(uint16_t* target, uint16_t value, long long count) { fill(target, value, count); }

extern "C" __global__ void fill_32(uint32_t* target, uint32_t value, long long count) { fill(target, value, count); }

extern "C" __global__ void fill_64(uint64_t* target, uint64_t value, long long count) { fill(target, value, count); }
