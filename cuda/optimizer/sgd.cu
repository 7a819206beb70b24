// One SGD step of many tensors in place: v = momentum v + gain g; W -= rate v, or rate (g + momentum v) with nesterov.
//
// Grid, block and table: optimizer/update.cuh. No macros. The only slot is v; without it W -= rate g.
#include "optimizer/update.cuh"

struct Rule {
  Decay decay;
  float rate, momentum, gain;
  int nesterov;

  __device__ __forceinline__ void step(float& w, float g, float (&slots)[1], unsigned held) const {
    g = decay.apply(w, g);
    if (held) {
      slots[0] = momentum * slots[0] + gain * g;
      g = nesterov ? g + momentum * slots[0] : slots[0];
    }
    w -= rate * g;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    sgd(const Row<1>* __restrict__ table, unsigned held, const Rule given, const Rule* __restrict__ replayed) {
  update(table[blockIdx.x], step_value(given, replayed), held);
}
