// The sum of partial filter gradients, of which each tap has a number of its own (Sk-dilated on Hopper, sk_dilated/sm90.cu).
//
// dW[oc, tap, ic] = sum over z < splits[tap] of part[z, oc, tap, ic], in the order of z.   part (splits, OC, taps, IC)
// A thread adds up 4 neighbouring channels. Grid: ceil(OC taps IC / 4 / 256). Block: 256.
// Needs: IC % 4 == 0; part and dW aligned to packs of 4.
// Macro: OUTPUT float | bfloat16, of dW.
#include "common/vector.cuh"

constexpr int THREADS = 256, V = 4, AHEAD = 4;  // AHEAD loads are under way at the same time

extern "C" __global__ void __launch_bounds__(THREADS)
    sum_splits(ALPHA_OUTPUT* __restrict__ dW, const float* __restrict__ part, const int* __restrict__ splits, int packs,
               int taps, int IC) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= packs) return;
  const int count = splits[i / (IC / V) % taps];
  const float* of_split = part + size_t(i) * V;
  const size_t stride = size_t(packs) * V;
  Pack<float, V> sum = load_pack<V>(of_split);
  for (int z = 1; z < count; z += AHEAD) {
    Pack<float, V> next[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
      if (z + k < count) next[k] = load_pack<V>(of_split + (z + k) * stride);
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
      if (z + k < count) sum += next[k];
  }
  store_pack(dW + size_t(i) * V, sum);
}
