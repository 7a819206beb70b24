// One Lion step of many tensors in place: W -= lr sign(beta1 m + gain1 g); m = beta2 m + gain2 g.
//
// Grid, block and table: optimizer/update.cuh. No macros. The only slot is m.
#include "optimizer/update.cuh"

struct Rule {
  Decay decay;
  float beta1, gain1, beta2, gain2, lr;

  __device__ __forceinline__ void step(float& w, float g, float (&slots)[1], unsigned) const {
    g = decay.apply(w, g);
    w -= lr * sign_of(beta1 * slots[0] + gain1 * g);
    slots[0] = beta2 * slots[0] + gain2 * g;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    lion(const Row<1>* __restrict__ table, unsigned held, const Rule given, const Rule* __restrict__ replayed) {
  update(table[blockIdx.x], step_value(given, replayed), held);
}
