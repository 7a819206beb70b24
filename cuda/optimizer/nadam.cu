// One NAdam step of many tensors in place: m = beta1 m + gain1 g; v = beta2 v + gain2 g^2;
// W -= (rate_g g + rate_m m) / (root sqrt(v) + eps), where root and the rates hold the bias corrections.
//
// Grid, block and table: optimizer/update.cuh. No macros. The slots are m and v.
#include "optimizer/update.cuh"

struct Rule {
  Decay decay;
  float beta1, gain1, beta2, gain2, root, eps, rate_g, rate_m;

  __device__ __forceinline__ void step(float& w, float g, float (&slots)[2], unsigned) const {
    g = decay.apply(w, g);
    slots[0] = beta1 * slots[0] + gain1 * g;
    slots[1] = beta2 * slots[1] + gain2 * g * g;
    w -= (rate_g * g + rate_m * slots[0]) / (sqrtf(slots[1]) * root + eps);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    nadam(const Row<2>* __restrict__ table, unsigned held, const Rule given, const Rule* __restrict__ replayed) {
  update(table[blockIdx.x], step_value(given, replayed), held);
}
