// take: Y[a, i, c] = X[a, F[i], c]. put: X[a, F[i], c] = Y[a, i, c], where the places are distinct.
//
// X (A, R, C), F (I,), Y (A, I, C), C counted in words. A place -1 is taken as bits that are all 0, or all 1 (NaN) if
// `ones`, and nothing is put there.
// Grid: ceil(A I C / (256 STEPS)). Block: 256. No shared memory.
// Macros: WORD an unsigned type of 1, 2, 4, 8 or 16 bytes, of one or several neighbouring elements; STEPS words per
// thread; INDEX an unsigned type that holds the number of words.
#include "common/cuda.h"

using Word = ALPHA_WORD;
using Index = ALPHA_INDEX;
constexpr int THREADS = 256, STEPS = ALPHA_STEPS;

union Filled {
  Word word;
  unsigned char bytes[sizeof(Word)];
};

__device__ __forceinline__ Word filled(bool ones) {
  Filled result;
#pragma unroll
  for (int i = 0; i < int(sizeof(Word)); i++) result.bytes[i] = ones ? 255 : 0;
  return result.word;
}

// The word of X for word i of Y, or -1.
__device__ __forceinline__ long long source_of(const long long* F, Index i, long long R, Index I, Index C) {
  const Index row = i / C, a = row / I;
  const long long at = F[row - a * I];
  return at < 0 ? -1 : ((long long)(a)*R + at) * C + i % C;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    take(Word* __restrict__ Y, const Word* __restrict__ X, const long long* __restrict__ F, long long R, long long I,
         long long C, long long words, int ones) {
  const Index first = Index(blockIdx.x) * (THREADS * STEPS) + threadIdx.x;
  Word word[STEPS] = {};
#pragma unroll
  for (int s = 0; s < STEPS; s++) {
    const Index i = first + s * THREADS;
    if (i >= Index(words)) break;
    const long long from = source_of(F, i, R, Index(I), Index(C));
    word[s] = from < 0 ? filled(ones) : X[from];
  }
#pragma unroll
  for (int s = 0; s < STEPS; s++)
    if (first + s * THREADS < Index(words)) Y[first + s * THREADS] = word[s];
}

extern "C" __global__ void __launch_bounds__(THREADS)
    put(Word* __restrict__ X, const Word* __restrict__ Y, const long long* __restrict__ F, long long R, long long I,
        long long C, long long words) {
  const Index first = Index(blockIdx.x) * (THREADS * STEPS) + threadIdx.x;
#pragma unroll
  for (int s = 0; s < STEPS; s++) {
    const Index i = first + s * THREADS;
    if (i >= Index(words)) break;
    const long long to = source_of(F, i, R, Index(I), Index(C));
    if (to >= 0) X[to] = Y[i];
  }
}
