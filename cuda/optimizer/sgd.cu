// One SGD step of many tensors in place: v = momentum v + gain g; W -= lr v, or lr (g + momentum v) with nesterov.
//
// Grid: one block per row of the table (a chunk of one tensor). Block: 256. No shared memory, no macros.
// g is multiplied by sign first, then decay W is added to it. Without velocities W -= lr g, and v is not read.
#include "common/step_value.cuh"
#include "common/vector.cuh"

constexpr int THREADS = 256;

struct Row {
  float* W;
  const float* g;
  float* v;
  long long start, length;
};

struct Rule {
  float sign, lr, momentum, gain, decay;
  int nesterov, velocities;
};

__device__ __forceinline__ void step(float& w, float g, float& v, const Rule& rule) {
  g *= rule.sign;
  if (rule.decay != 0) g += rule.decay * w;
  if (rule.velocities) {
    v = rule.momentum * v + rule.gain * g;
    g = rule.nesterov ? g + rule.momentum * v : v;
  }
  w -= rule.lr * g;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sgd(const Row* __restrict__ table, const Rule given, const Rule* __restrict__ replayed) {
  const Rule rule = step_value(given, replayed);
  const Row row = table[blockIdx.x];
  float *W = row.W + row.start, *v = row.v + row.start;
  const float* g = row.g + row.start;
  const int length = row.length;
  const bool held = rule.velocities;
  const bool aligned = ((uintptr_t(W) | uintptr_t(g) | uintptr_t(v)) & 15) == 0;
  const int vectors = aligned ? length / 4 : 0;
#pragma unroll 2
  for (int i = threadIdx.x; i < vectors; i += THREADS) {
    Pack<float, 4> w4 = load_pack<4>(W + 4 * i), g4 = load_pack<4>(g + 4 * i), v4 = {};
    if (held) v4 = load_pack<4>(v + 4 * i);
#pragma unroll
    for (int j = 0; j < 4; j++) step(w4.v[j], g4.v[j], v4.v[j], rule);
    store_pack(W + 4 * i, w4);
    if (held) store_pack(v + 4 * i, v4);
  }
  for (int i = 4 * vectors + threadIdx.x; i < length; i += THREADS) {
    float velocity = held ? v[i] : 0;
    step(W[i], g[i], velocity, rule);
    if (held) v[i] = velocity;
  }
}
