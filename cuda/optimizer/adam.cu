// One Adam step of many tensors in place: m += (1 - beta1) (g - m); v += (1 - beta2) (g^2 - v);
// W -= rate m / (root sqrt(v) + eps), where rate and root hold the bias corrections.
//
// Grid: a block a row of the table (a chunk of one tensor). Block: 256. No shared memory, no macros.
// Decay adds decay W to the gradient, or shrinks W by lr decay first when decoupled.
#include "common/vector.cuh"

constexpr int THREADS = 256;

struct Row {
  float* W;
  const float* g;
  float *m, *v;
  long long start, length;
};

struct Rule {
  float lr, rate, root, gain1, gain2, eps, decay;
  int decoupled;
};

__device__ __forceinline__ void step(float& w, float g, float& m, float& v, const Rule& rule) {
  if (rule.decoupled)
    w *= 1 - rule.lr * rule.decay;
  else
    g += rule.decay * w;
  m += rule.gain1 * (g - m);
  v += rule.gain2 * (g * g - v);
  w -= rule.rate * m / (sqrtf(v) * rule.root + rule.eps);
}

extern "C" __global__ void __launch_bounds__(THREADS) adam(const Row* __restrict__ table, const Rule rule) {
  const Row row = table[blockIdx.x];
  float *W = row.W + row.start, *m = row.m + row.start, *v = row.v + row.start;
  const float* g = row.g + row.start;
  const int length = row.length;
  const bool aligned = ((uintptr_t(W) | uintptr_t(g) | uintptr_t(m) | uintptr_t(v)) & 15) == 0;
  const int vectors = aligned ? length / 4 : 0;
#pragma unroll 2
  for (int i = threadIdx.x; i < vectors; i += THREADS) {
    Pack<float, 4> w4 = load_pack<4>(W + 4 * i), m4 = load_pack<4>(m + 4 * i);
    Pack<float, 4> v4 = load_pack<4>(v + 4 * i), g4 = load_pack<4>(g + 4 * i);
#pragma unroll
    for (int j = 0; j < 4; j++) step(w4.v[j], g4.v[j], m4.v[j], v4.v[j], rule);
    store_pack(W + 4 * i, w4), store_pack(m + 4 * i, m4), store_pack(v + 4 * i, v4);
  }
  for (int i = 4 * vectors + threadIdx.x; i < length; i += THREADS) step(W[i], g[i], m[i], v[i], rule);
}
