// Blocks that each write a part of a result, of which the last one that comes finishes it. The order in which they come
// does not matter if it reads all parts in an order of their own.
#pragma once
#include "common/cuda.h"

// Whether this block is the last one of `blocks` to call it with `state`, a word that is 0 before and again at the end.
// What other blocks wrote before they called it can be read then. Every thread of the block must call it.
__device__ __forceinline__ bool comes_last(unsigned* state, unsigned blocks) {
  __shared__ bool last;
  __syncthreads();  // all threads have written their parts
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    __threadfence();  // which are known before the block has come
    last = atomicAdd(state, 1u) == blocks - 1;
    if (last) *state = 0;
    __threadfence();  // the parts of the others are read after this
  }
  __syncthreads();  // all threads know it
  return last;
}
