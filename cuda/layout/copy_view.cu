// Y[box] = X[box]: copies a box of elements between two arrays in which it has any strides.
//
// Slices with steps, permutations, flips, joins, padding and repeats are boxes.
// Grid: ceil(words / (256 STEPS)). Block: 256. No shared memory. X and Y do not overlap.
// Macros: WORD an unsigned type of 1, 2, 4, 8 or 16 bytes: an element, or several neighbours of a last axis that is
// contiguous in X and in Y; STEPS words per thread, whose loads are in flight at the same time; INDEX as in
// layout/axes.cuh.
#include "layout/axes.cuh"

using Word = ALPHA_WORD;
using Index = ALPHA_INDEX;
constexpr int THREADS = 256, STEPS = ALPHA_STEPS;

extern "C" __global__ void __launch_bounds__(THREADS)
    copy_view(Word* __restrict__ Y, const Word* __restrict__ X, long long words, const Axes axes) {
  const Index first = Index(blockIdx.x) * (THREADS * STEPS) + threadIdx.x;
  Index number[STEPS];
  Offset<Index> source[STEPS], target[STEPS];
#pragma unroll
  for (int s = 0; s < STEPS; s++) number[s] = first + s * THREADS;
  locate<0>(axes, number, source, target);
  Word word[STEPS];
#pragma unroll
  for (int s = 0; s < STEPS; s++)
    if (first + s * THREADS < Index(words)) word[s] = X[source[s]];
#pragma unroll
  for (int s = 0; s < STEPS; s++)
    if (first + s * THREADS < Index(words)) Y[target[s]] = word[s];
}
