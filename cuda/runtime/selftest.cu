// Y[i] = scale * X[j] + ALPHA_SHIFT, where j is i mirrored within its block: it needs every part of a
// launch (arguments of three kinds, a macro, dynamic shared memory, a barrier) to come out right.
// Grid: count / block. Block: any size that divides count. Shared memory: 4 bytes per thread.
#include "common/cuda.h"

extern "C" __global__ void selftest(const float* X, float* Y, float scale, int count) {
  ALPHA_DYNAMIC_SHARED(float, tile);
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) tile[threadIdx.x] = X[i];
  __syncthreads();
  // Without the barrier a thread would read what its mirror image has not written yet.
  if (i < count) Y[i] = scale * tile[blockDim.x - 1 - threadIdx.x] + ALPHA_SHIFT;
}
