// One Adam step of many tensors in place: m = beta1 m + gain1 g; v = beta2 v + gain2 g^2;
// W -= rate m / (root sqrt(v) + eps), where rate and root hold the bias corrections.
//
// Grid, block and table: optimizer/update.cuh. No macros. The slots are m, v and, for AMSGrad only, the largest v so
// far, which replaces v in the last line.
#include "optimizer/update.cuh"

struct Rule {
  Decay decay;
  float beta1, gain1, beta2, gain2, root, eps, rate;

  __device__ __forceinline__ void step(float& w, float g, float (&slots)[3], unsigned held) const {
    g = decay.apply(w, g);
    const float m = slots[0] = beta1 * slots[0] + gain1 * g;
    float v = slots[1] = beta2 * slots[1] + gain2 * g * g;
    if (held & 4) v = slots[2] = larger(slots[2], v);
    w -= rate * m / (sqrtf(v) * root + eps);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    adam(const Row<3>* __restrict__ table, unsigned held, const Rule given, const Rule* __restrict__ replayed) {
  update(table[blockIdx.x], step_value(given, replayed), held);
}
