// Random numbers of a Philox stream (alpha/ops/array/random_tensors.py): uniform ones, normal ones, or integers.
//
// KIND 0: low + scale u, u in [0, 1) of 24 bits. KIND 1: low + scale z by Box-Muller. KIND 2: low + floor(scale
// w / 2^32). A thread draws one Philox block: four words for four neighbours, of which KIND 1 uses two for two.
// Grid: ceil(size / (256 PER)), PER 4 or 2. Block: 256. No shared memory.
// Macros: TYPE float | double | bfloat16 | int | long long | unsigned char of Y; KIND 0..2.
#include "common/philox.cuh"
#include "common/step_value.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;
constexpr int THREADS = 256, KIND = ALPHA_KIND, PER = KIND == 1 ? 2 : 4;

extern "C" __global__ void __launch_bounds__(THREADS)
    draw(T* __restrict__ Y, long long size, const Stream given, const Stream* __restrict__ replayed, double low,
         double scale, long long least, unsigned long long count) {
  const long long block = (long long)blockIdx.x * THREADS + threadIdx.x;
  const uint4 drawn = philox(step_value(given, replayed), block);
  const unsigned words[4] = {drawn.x, drawn.y, drawn.z, drawn.w};
  double pair[2] = {};
  if (KIND == 1) {
    const double radius = sqrt(-2.0 * log((words[0] + 1.0) * 0x1p-32));
    sincospi(words[1] * 0x1p-31, &pair[1], &pair[0]);  // unlike sin and cos it needs no stack
    pair[0] *= radius, pair[1] *= radius;
  }
#pragma unroll
  for (int j = 0; j < PER; j++) {
    const long long i = block * PER + j;
    if (i >= size) return;
    Real value;
    if (KIND == 0)
      value = Real(low + (words[j] >> 8) * 0x1p-24 * scale);
    else if (KIND == 1)
      value = Real(low + pair[j % 2] * scale);
    else
      value = Real(least + (long long)(words[j] * count >> 32));
    store_pack(Y + i, Pack<Real, 1>{{value}});
  }
}
