// One Adam step of many tensors in place: m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
// W -= rate m / (root sqrt(v) + eps), where rate and root hold the bias corrections.
// With ALPHA_AMSGRAD=1 `top` keeps the largest v so far, which replaces v in the last line; else it is not read.
//
// Grid: one block per row of the table (a chunk of one tensor). Block: 256. No shared memory. Macro: ALPHA_AMSGRAD.
// The host computes every factor in double: 1 - beta would cancel in float. g is multiplied by sign, W by
// shrink (decoupled decay), and l2 W is added to g.
#include "common/step_value.cuh"
#include "common/vector.cuh"

constexpr int THREADS = 256;
constexpr bool AMSGRAD = ALPHA_AMSGRAD;

struct Row {
  float* W;
  const float* g;
  float *m, *v, *top;
  long long start, length;
};

struct Rule {
  float sign, shrink, l2, beta1, gain1, beta2, gain2, root, eps, rate;
};

__device__ __forceinline__ void step(float& w, float g, float& m, float& v, float& top, const Rule& rule) {
  g *= rule.sign;
  w *= rule.shrink;
  if (rule.l2 != 0) g += rule.l2 * w;
  m = rule.beta1 * m + rule.gain1 * g;
  v = rule.beta2 * v + rule.gain2 * g * g;
  if (AMSGRAD && !(top > v || top != top)) top = v;  // a NaN stays, as in numpy's and PyTorch's maximum
  w -= rule.rate * m / (sqrtf(AMSGRAD ? top : v) * rule.root + rule.eps);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    adam(const Row* __restrict__ table, const Rule given, const Rule* __restrict__ replayed) {
  const Rule rule = step_value(given, replayed);
  const Row row = table[blockIdx.x];
  float *W = row.W + row.start, *m = row.m + row.start, *v = row.v + row.start, *top = row.top + row.start;
  const float* g = row.g + row.start;
  const int length = row.length;
  const bool aligned = ((uintptr_t(W) | uintptr_t(g) | uintptr_t(m) | uintptr_t(v) | uintptr_t(top)) & 15) == 0;
  const int vectors = aligned ? length / 4 : 0;
#pragma unroll 2
  for (int i = threadIdx.x; i < vectors; i += THREADS) {
    Pack<float, 4> w4 = load_pack<4>(W + 4 * i), m4 = load_pack<4>(m + 4 * i), top4 = {};
    Pack<float, 4> v4 = load_pack<4>(v + 4 * i), g4 = load_pack<4>(g + 4 * i);
    if (AMSGRAD) top4 = load_pack<4>(top + 4 * i);
#pragma unroll
    for (int j = 0; j < 4; j++) step(w4.v[j], g4.v[j], m4.v[j], v4.v[j], top4.v[j], rule);
    store_pack(W + 4 * i, w4), store_pack(m + 4 * i, m4), store_pack(v + 4 * i, v4);
    if (AMSGRAD) store_pack(top + 4 * i, top4);
  }
  for (int i = 4 * vectors + threadIdx.x; i < length; i += THREADS) {
    float largest = AMSGRAD ? top[i] : 0;
    step(W[i], g[i], m[i], v[i], largest, rule);
    if (AMSGRAD) top[i] = largest;
  }
}
