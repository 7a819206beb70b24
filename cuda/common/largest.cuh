// The largest word that the threads of a block, or of a whole grid, have. An order of the blocks changes no bit of it.
#pragma once
#include "common/cuda.h"

// The largest of the words of a warp, known to all its lanes, which must call it.
__device__ __forceinline__ unsigned warp_largest(unsigned word) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) word = max(word, __shfl_xor_sync(~0u, word, distance));
  return word;
}

// The largest of the words of a block of a power of two of threads, known to its first thread. All threads must call
// it, once.
__device__ __forceinline__ unsigned block_largest(unsigned word) {
  __shared__ unsigned words[32];
  const int threads = blockDim.x * blockDim.y * blockDim.z, warps = threads / 32;
  const int self = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  if (warps > 0) {
    word = warp_largest(word);
    if (self % 32 == 0) words[self / 32] = word;
  } else {
    words[self] = word;
  }
  __syncthreads();  // the words of all warps, or of all threads, are there
  if (self == 0)
    for (int i = 1; i < (warps > 0 ? warps : threads); i++) word = max(word, words[i]);
  return word;
}

// Writes the largest of the words of all `blocks` to `out`; one thread of each of them calls it. They meet in `state`,
// two words that are 0 before and again at the end.
__device__ __forceinline__ void write_largest_of_blocks(unsigned* out, unsigned* state, unsigned word,
                                                        unsigned blocks) {
  atomicMax(state, word);
  __threadfence();  // the word is known before the block has come
  if (atomicAdd(state + 1, 1u) < blocks - 1) return;
  *out = atomicExch(state, 0u);
  state[1] = 0;
}

// The same for the largest of the words of the first warp of a block, all of whose threads must call it.
__device__ __forceinline__ void write_largest_of_first_warps(unsigned* out, unsigned* state, unsigned word,
                                                             unsigned blocks) {
  word = warp_largest(word);
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) write_largest_of_blocks(out, state, word, blocks);
}

// The same for the largest of the words of all threads, all of which must call it.
__device__ __forceinline__ void write_largest(unsigned* out, unsigned* state, unsigned word, unsigned blocks) {
  word = block_largest(word);
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) write_largest_of_blocks(out, state, word, blocks);
}
