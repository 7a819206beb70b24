// One RMSprop step of many tensors in place: v = alpha v + gain g^2; d = g / (sqrt(v) + eps); W -= lr d.
//
// Grid, block and table: optimizer/update.cuh. No macros. The slots are v, and two that not every setting has: the
// velocity = momentum velocity + d, which replaces d in W -= lr d; and the mean = alpha mean + gain g, whose square is
// subtracted from v under the root.
#include "optimizer/update.cuh"

struct Rule {
  Decay decay;
  float alpha, gain, eps, momentum, lr;

  __device__ __forceinline__ void step(float& w, float g, float (&slots)[3], unsigned held) const {
    g = decay.apply(w, g);
    float variance = slots[0] = alpha * slots[0] + gain * g * g;
    if (held & 4) {
      slots[2] = alpha * slots[2] + gain * g;
      variance -= __fmul_rn(slots[2], slots[2]);  // rounded as v is, so that equal ones leave 0
      if (variance < 0) variance = 0;             // by rounding only
    }
    float d = g / (sqrtf(variance) + eps);
    if (held & 2) d = slots[1] = momentum * slots[1] + d;
    w -= lr * d;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    rmsprop(const Row<3>* __restrict__ table, unsigned held, const Rule given, const Rule* __restrict__ replayed) {
  update(table[blockIdx.x], step_value(given, replayed), held);
}
