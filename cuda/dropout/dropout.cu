// Y[i] = X[i] scale if word i of the random stream is at least `threshold`, else 0.
//
// RECTIFIED says what a rectifier before it (rectifier.cuh) does: 0 there is none; 1 X is what it is given; 2 X is a
// gradient, and Z is what it was given.
// A thread draws one Philox block, four words for four neighbouring elements.
// Grid: ceil(size / (4 * 256)). Block: 256. No shared memory.
// Macros: TYPE float | double | bfloat16; VECTOR 4 if X, Z and Y are aligned to packs of four, else 1; RECTIFIED
// 0 | 1 | 2.
#include "common/philox.cuh"
#include "common/rectifier.cuh"
#include "common/step_value.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;
constexpr int THREADS = 256, RECTIFIED = ALPHA_RECTIFIED;

extern "C" __global__ void __launch_bounds__(THREADS)
    dropout(T* __restrict__ Y, const T* __restrict__ X, long long size, const Stream given,
            const Stream* __restrict__ replayed, unsigned threshold, Real scale, const T* __restrict__ Z, Real slope,
            Real bound) {
  const long long block = (long long)blockIdx.x * THREADS + threadIdx.x, first = 4 * block;
  const uint4 words = philox(step_value(given, replayed), block);
  const bool kept[4] = {words.x >= threshold, words.y >= threshold, words.z >= threshold, words.w >= threshold};
  const Rectifier<Real> rectifier = {slope, bound};
  auto rectified = [=](Real x, Real z) {
    return RECTIFIED == 2 ? rectifier.gradient(x, z) : RECTIFIED == 1 ? rectifier(x) : x;
  };
  if (ALPHA_VECTOR == 4 && first + 4 <= size) {
    Pack<Real, 4> x = load_pack<4>(X + first);
    const Pack<Real, 4> z = RECTIFIED == 2 ? load_pack<4>(Z + first) : x;
#pragma unroll
    for (int j = 0; j < 4; j++) x.v[j] = kept[j] ? rectified(x.v[j], z.v[j]) * scale : Real(0);
    store_pack(Y + first, x);
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; j++)
    if (first + j < size) {
      Pack<Real, 1> x = load_pack<1>(X + first + j);
      const Pack<Real, 1> z = RECTIFIED == 2 ? load_pack<1>(Z + first + j) : x;
      x.v[0] = kept[j] ? rectified(x.v[0], z.v[0]) * scale : Real(0);
      store_pack(Y + first + j, x);
    }
}
