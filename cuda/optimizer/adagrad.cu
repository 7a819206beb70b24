// One Adagrad step of many tensors in place: total = total + g^2; W -= rate g / (sqrt(total) + eps).
//
// Grid, block and table: optimizer/update.cuh. No macros. The only slot is the total.
#include "optimizer/update.cuh"

struct Rule {
  Decay decay;
  float eps, rate;

  __device__ __forceinline__ void step(float& w, float g, float (&slots)[1], unsigned) const {
    g = decay.apply(w, g);
    slots[0] += g * g;
    w -= rate * (g / (sqrtf(slots[0]) + eps));
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    adagrad(const Row<1>* __restrict__ table, unsigned held, const Rule given, const Rule* __restrict__ replayed) {
  update(table[blockIdx.x], step_value(given, replayed), held);
}
