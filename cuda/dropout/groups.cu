// Y[n, r, c] = X[n, r, c] scale + shift if word n C + c of the random stream is at least `threshold`, else `value`: the
// elements of a channel, or with C = 1 those of an image, are kept or dropped together. X (N, R, C), `group` is R C.
//
// A thread computes VECTOR neighbours and draws a Philox block when the next word is in another one.
// Grid: ceil(size / (256 VECTOR)). Block: 256. No shared memory.
// Macros: TYPE float | double | bfloat16; VECTOR 1 | 4 | 8 divides the size, arrays are aligned to packs; INDEX an
// unsigned type that holds the size.
#include "common/philox.cuh"
#include "common/step_value.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;
using Index = ALPHA_INDEX;
constexpr int THREADS = 256, V = ALPHA_VECTOR;

extern "C" __global__ void __launch_bounds__(THREADS)
    drop_groups(T* __restrict__ Y, const T* __restrict__ X, long long size, long long group, long long C,
                const Stream given, const Stream* __restrict__ replayed, unsigned threshold, Real scale, Real shift,
                Real value) {
  const Index first = (Index(blockIdx.x) * THREADS + threadIdx.x) * V;
  if (first >= Index(size)) return;
  const Stream stream = step_value(given, replayed);
  Pack<Real, V> x = load_pack<V>(X + first);
  unsigned long long drawn = ~0ull;
  uint4 words = {};
#pragma unroll
  for (int j = 0; j < V; j++) {
    const Index i = first + j, word = i / Index(group) * Index(C) + i % Index(C);
    if (word / 4 != drawn) drawn = word / 4, words = philox(stream, drawn);
    const unsigned low = word & 1 ? words.y : words.x, high = word & 1 ? words.w : words.z;
    const bool kept = (word & 2 ? high : low) >= threshold;
    x.v[j] = !kept ? value : shift == 0 ? x.v[j] * scale : x.v[j] * scale + shift;
  }
  store_pack(Y + first, x);
}
