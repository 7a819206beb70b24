// One ASGD step of many tensors in place: W -= eta g; mean += mu (W - mean), and mean = W if mu is 1.
//
// Grid, block and table: optimizer/update.cuh. No macros. The only slot is the mean.
#include "optimizer/update.cuh"

struct Rule {
  Decay decay;
  float eta, mu;

  __device__ __forceinline__ void step(float& w, float g, float (&slots)[1], unsigned) const {
    g = decay.apply(w, g);
    w -= eta * g;
    slots[0] = mu == 1 ? w : slots[0] + mu * (w - slots[0]);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    asgd(const Row<1>* __restrict__ table, unsigned held, const Rule given, const Rule* __restrict__ replayed) {
  update(table[blockIdx.x], step_value(given, replayed), held);
}
