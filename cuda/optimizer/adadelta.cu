// One Adadelta step of many tensors in place: v = rho v + gain g^2; d = sqrt(u + eps) / sqrt(v + eps) g;
// u = rho u + gain d^2; W -= lr d.
//
// Grid, block and table: optimizer/update.cuh. No macros. The slots are v and u.
#include "optimizer/update.cuh"

struct Rule {
  Decay decay;
  float rho, gain, eps, lr;

  __device__ __forceinline__ void step(float& w, float g, float (&slots)[2], unsigned) const {
    g = decay.apply(w, g);
    slots[0] = rho * slots[0] + gain * g * g;
    const float d = sqrtf(slots[1] + eps) / sqrtf(slots[0] + eps) * g;
    slots[1] = rho * slots[1] + gain * d * d;
    w -= lr * d;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    adadelta(const Row<2>* __restrict__ table, unsigned held, const Rule given, const Rule* __restrict__ replayed) {
  update(table[blockIdx.x], step_value(given, replayed), held);
}
