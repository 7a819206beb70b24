// The order in which blocks, and the threads of each, begin.
#include "common/cuda.h"

extern "C" __global__ void order(unsigned* blocks, unsigned* threads, unsigned* counts) {
  if (threadIdx.x == 0) blocks[blockIdx.x] = atomicAdd(counts, 1);
  threads[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(counts + 1 + blockIdx.x, 1);
}
