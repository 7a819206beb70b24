// The sum of partial filter gradients, of which each tap has a number of its own
// (Sk-dilated on Hopper, sk_dilated/sm90.cu).
//
// dW[oc, tap, ic] = sum over z < splits[tap] of part[z, oc, tap, ic].   part (most splits, OC, taps, IC)
// A pack is 4 neighbouring channels. If packs are few and splits many, LANES threads share a pack: thread l adds up the
// splits l, l + LANES, .., and the sums of the threads are added in their order. So the result never depends on the
// order of threads.
// Grid: ceil(packs LANES / 256). Block: 256, LANES rows of packs. Shared memory: 4 KB with several lanes.
// Needs: IC % 4 == 0; part and dW aligned to packs.
// Macros: OUTPUT float | bfloat16, of dW; LANES, a power of two up to 32.
#include "common/vector.cuh"

constexpr int THREADS = 256, V = 4, LANES = ALPHA_LANES, PACKS = THREADS / LANES, AHEAD = 4;

// The sum of the splits from `first` on, LANES apart; AHEAD loads are under way at the same time.
__device__ __forceinline__ Pack<float, V> sum_of(const float* part, size_t stride, int first, int count) {
  Pack<float, V> sum = {};
  for (int z = first; z < count; z += AHEAD * LANES) {
    Pack<float, V> next[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
      if (z + k * LANES < count) next[k] = load_pack<V>(part + (z + k * LANES) * stride);
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
      if (z + k * LANES < count) sum += next[k];
  }
  return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sum_splits(ALPHA_OUTPUT* __restrict__ dW, const float* __restrict__ part, const int* __restrict__ splits, int packs,
               int taps, int IC) {
  const int pack = threadIdx.x % PACKS, lane = threadIdx.x / PACKS, i = blockIdx.x * PACKS + pack;
  const bool inside = i < packs;
  Pack<float, V> sum = {};
  if (inside) sum = sum_of(part + size_t(i) * V, size_t(packs) * V, lane, splits[i / (IC / V) % taps]);
  if constexpr (LANES > 1) {
    __shared__ Pack<float, V> sums[LANES][PACKS];
    sums[lane][pack] = sum;
    __syncthreads();
    if (lane > 0) return;
#pragma unroll
    for (int l = 1; l < LANES; l++) sum += sums[l][pack];
  }
  if (inside) store_pack(dW + size_t(i) * V, sum);
}
