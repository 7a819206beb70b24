// Y[i] = X[i] scale where word i of the random stream is at least `threshold`, else 0.
//
// A thread draws one Philox block, four words for four neighbouring elements.
// Grid: ceil(size / (4 * 256)). Block: 256. No shared memory.
// Macros: TYPE float | double; VECTOR 4 where X and Y are aligned to packs of four, else 1.
#include "common/philox.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    dropout(T* __restrict__ Y, const T* __restrict__ X, long long size, unsigned long long key,
            unsigned long long stream, unsigned threshold, T scale) {
  const long long block = (long long)blockIdx.x * THREADS + threadIdx.x, first = 4 * block;
  const uint4 words = philox(key, stream, block);
  const bool kept[4] = {words.x >= threshold, words.y >= threshold, words.z >= threshold,
                        words.w >= threshold};
  if (ALPHA_VECTOR == 4 && first + 4 <= size) {
    Pack<T, 4> x = load_pack<4>(X + first);
#pragma unroll
    for (int j = 0; j < 4; j++) x.v[j] = kept[j] ? x.v[j] * scale : T(0);
    store_pack(Y + first, x);
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; j++)
    if (first + j < size) Y[first + j] = kept[j] ? X[first + j] * scale : T(0);
}
