// One RAdam step of many tensors in place: m = beta1 m + gain1 g; v = beta2 v + gain2 g^2;
// W -= rate m / (sqrt(v) + eps), or rate m if not adaptive; rate holds the bias corrections and the rectification.
//
// Grid, block and table: optimizer/update.cuh. No macros. The slots are m and v.
#include "optimizer/update.cuh"

struct Rule {
  Decay decay;
  float beta1, gain1, beta2, gain2, eps, rate;
  int adaptive;

  __device__ __forceinline__ void step(float& w, float g, float (&slots)[2], unsigned) const {
    g = decay.apply(w, g);
    slots[0] = beta1 * slots[0] + gain1 * g;
    slots[1] = beta2 * slots[1] + gain2 * g * g;
    w -= rate * (adaptive ? slots[0] / (sqrtf(slots[1]) + eps) : slots[0]);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    radam(const Row<2>* __restrict__ table, unsigned held, const Rule given, const Rule* __restrict__ replayed) {
  update(table[blockIdx.x], step_value(given, replayed), held);
}
