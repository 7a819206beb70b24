// One Adamax step of many tensors in place: m = beta1 m + gain1 g; largest = max(beta2 largest, |g| + eps);
// W -= rate m / largest, where rate holds the bias correction.
//
// Grid, block and table: optimizer/update.cuh. No macros. The slots are m and the largest.
#include "optimizer/update.cuh"

struct Rule {
  Decay decay;
  float beta1, gain1, beta2, eps, rate;

  __device__ __forceinline__ void step(float& w, float g, float (&slots)[2], unsigned) const {
    g = decay.apply(w, g);
    slots[0] = beta1 * slots[0] + gain1 * g;
    slots[1] = larger(beta2 * slots[1], fabsf(g) + eps);
    w -= rate * (slots[0] / slots[1]);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    adamax(const Row<2>* __restrict__ table, unsigned held, const Rule given, const Rule* __restrict__ replayed) {
  update(table[blockIdx.x], step_value(given, replayed), held);
}
