// One AdaMod step of many tensors in place: m = beta1 m + gain1 g; v = beta2 v + gain2 g^2;
// r = rate / (root sqrt(v) + eps), where rate and root hold the bias corrections; mean = beta3 mean + gain3 r;
// W -= min(r, mean) m.
//
// Grid, block and table: optimizer/update.cuh. No macros. The slots are m, v and the mean.
#include "optimizer/update.cuh"

struct Rule {
  Decay decay;
  float beta1, gain1, beta2, gain2, beta3, gain3, root, eps, rate;

  __device__ __forceinline__ void step(float& w, float g, float (&slots)[3], unsigned) const {
    g = decay.apply(w, g);
    slots[0] = beta1 * slots[0] + gain1 * g;
    slots[1] = beta2 * slots[1] + gain2 * g * g;
    const float r = rate / (sqrtf(slots[1]) * root + eps);
    slots[2] = beta3 * slots[2] + gain3 * r;
    w -= -larger(-r, -slots[2]) * slots[0];  // the smaller of the two, or a NaN
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    adamod(const Row<3>* __restrict__ table, unsigned held, const Rule given, const Rule* __restrict__ replayed) {
  update(table[blockIdx.x], step_value(given, replayed), held);
}
