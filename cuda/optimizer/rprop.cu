// One Rprop step of many tensors in place: each number has a length of its own, which grows by `bigger` while its
// gradient keeps its sign, shrinks by `smaller` if the sign has turned, and stays in [least, most]. W -= sign(g)
// length, unless the sign has turned.
//
// Grid, block and table: optimizer/update.cuh. No macros. The slots are the gradient of the step before, 0 where the
// sign had turned, and the length.
#include "optimizer/update.cuh"

struct Rule {
  Decay decay;
  float smaller, bigger, least, most;

  __device__ __forceinline__ void step(float& w, float g, float (&slots)[2], unsigned) const {
    g = decay.apply(w, g);
    const float turn = g * slots[0];
    const float length = slots[1] * (turn > 0 ? bigger : turn < 0 ? smaller : 1.f);
    slots[1] = length < least ? least : length > most ? most : length;
    slots[0] = turn < 0 ? 0.f : g;
    w -= sign_of(slots[0]) * slots[1];
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    rprop(const Row<2>* __restrict__ table, unsigned held, const Rule given, const Rule* __restrict__ replayed) {
  update(table[blockIdx.x], step_value(given, replayed), held);
}
