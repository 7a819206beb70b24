// The largest magnitude of what the consumers of all blocks have made. A word of shared memory holds that of a warp, so
// that no thread keeps one in a register during the products.
#pragma once
#include "common/barrier.cuh"
#include "common/largest.cuh"
#include "conv2d/sm90/tile.cuh"

using WarpWords = unsigned[4 * CONSUMER_GROUPS];

// Notes the largest of the words of a warp of consumers, whose threads all call it. FIRST: before that there is none.
template <bool FIRST = false>
__device__ __forceinline__ void note_largest(WarpWords& words, unsigned largest) {
  largest = warp_largest(largest);
  if (threadIdx.x % 32 == 0) {
    unsigned& word = words[threadIdx.x / 32];
    word = FIRST ? largest : max(word, largest);
  }
}

// Writes the largest of all words of all blocks. All consumers call it at the end.
__device__ __forceinline__ void write_consumers_largest(const WarpWords& words, unsigned* magnitude,
                                                        unsigned* meeting) {
  constexpr int BARRIER = 2;
  named_barrier_sync(BARRIER, CONSUMERS);
  if (threadIdx.x > 0) return;
  unsigned word = words[0];
#pragma unroll
  for (int w = 1; w < 4 * CONSUMER_GROUPS; w++) word = max(word, words[w]);
  write_largest_of_blocks(magnitude, meeting, word, gridDim.x);
}
