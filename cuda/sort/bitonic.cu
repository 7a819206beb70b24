// Sorts rows of P words in place, P a power of two, by bitonic merges.
//
// sort_chunks runs the stages `first` to `last` (lengths of the sequences that are merged) as far as words are less
// than a chunk apart; exchange runs one step of a stage, of words that are further apart.
// sort_chunks: grid ceil(total / 2048), block 512, shared memory: 2048 words. exchange: grid ceil(total / 512), block
// 256. No macros.
#include "common/cuda.h"

using Word = unsigned long long;
constexpr int CHUNK = 2048, THREADS = 512, PAIRS = 256;

// Word number i of a row begins an ascending sequence of `length` words if that bit of i is 0.
__device__ __forceinline__ void order_pair(Word& a, Word& b, bool ascending) {
  if ((a > b) == ascending) {
    const Word held = a;
    a = b, b = held;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sort_chunks(Word* __restrict__ words, long long total, long long P, long long first, long long last) {
  __shared__ Word chunk[CHUNK];
  const long long base = (long long)blockIdx.x * CHUNK;
  for (int i = threadIdx.x; i < CHUNK; i += THREADS) chunk[i] = base + i < total ? words[base + i] : ~0ull;
  for (long long length = first; length <= last; length *= 2) {
    const int widest = int(length / 2 < CHUNK / 2 ? length / 2 : CHUNK / 2);
    for (int distance = widest; distance > 0; distance /= 2) {
      __syncthreads();  // the words of the step before are written
      for (int pair = threadIdx.x; pair < CHUNK / 2; pair += THREADS) {
        const int low = pair % distance + pair / distance * 2 * distance;
        const bool ascending = ((base + low) % P & length) == 0;
        order_pair(chunk[low], chunk[low + distance], ascending);
      }
    }
  }
  __syncthreads();  // the words of the last step are written
  for (int i = threadIdx.x; i < CHUNK; i += THREADS)
    if (base + i < total) words[base + i] = chunk[i];
}

extern "C" __global__ void __launch_bounds__(PAIRS)
    exchange(Word* __restrict__ words, long long pairs, long long P, long long length, long long distance) {
  const long long pair = (long long)blockIdx.x * PAIRS + threadIdx.x;
  if (pair >= pairs) return;
  const long long low = pair % distance + pair / distance * 2 * distance;
  order_pair(words[low], words[low + distance], (low % P & length) == 0);
}
