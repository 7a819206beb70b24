// Y[i] = X[i] scale if word i of the random stream is at least `threshold`, else 0.
//
// A thread draws one Philox block, four words for four neighbouring elements.
// Grid: ceil(size / (4 * 256)). Block: 256. No shared memory.
// Macros: TYPE float | double | bfloat16; VECTOR 4 if X and Y are aligned to packs of four, else 1.
#include "common/philox.cuh"
#include "common/step_value.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;
constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    dropout(T* __restrict__ Y, const T* __restrict__ X, long long size, const Stream given,
            const Stream* __restrict__ replayed, unsigned threshold, Real scale) {
  const long long block = (long long)blockIdx.x * THREADS + threadIdx.x, first = 4 * block;
  const uint4 words = philox(step_value(given, replayed), block);
  const bool kept[4] = {words.x >= threshold, words.y >= threshold, words.z >= threshold, words.w >= threshold};
  if (ALPHA_VECTOR == 4 && first + 4 <= size) {
    Pack<Real, 4> x = load_pack<4>(X + first);
#pragma unroll
    for (int j = 0; j < 4; j++) x.v[j] = kept[j] ? x.v[j] * scale : Real(0);
    store_pack(Y + first, x);
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; j++)
    if (first + j < size) {
      Pack<Real, 1> x = load_pack<1>(X + first + j);
      x.v[0] = kept[j] ? x.v[0] * scale : Real(0);
      store_pack(Y + first + j, x);
    }
}
