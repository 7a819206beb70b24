// The update of many tensors in place, one element of each array at a time: what the kernels of optimizers share.
//
// Grid: one block per row of the table (a chunk of one tensor). Block: 256. Shared memory: a word per warp. No macros.
// A kernel has a struct Rule of the numbers of a step, which the host computes in double, because 1 - beta would
// cancel in float. `rule.step(w, g, slots, held)` updates a parameter w and its state `slots` by the gradient g. Bit s
// of `held` says whether there is a state array s; without it the slot is neither read nor written.
//
// Beside a parameter the kernel writes what operators read of it: the bfloat16 copy, rounded to nearest even as by
// elementwise/cast.cu, and the bits of the largest finite magnitude, as reduce/absmax.cu finds them. A null address
// means that it is not wanted.
#pragma once
#include "common/fp16_terms.cuh"
#include "common/largest.cuh"
#include "common/step_value.cuh"
#include "common/vector.cuh"

constexpr int THREADS = 256;

template <int SLOTS>
struct Row {
  float* W;
  const float* g;
  float* slots[SLOTS];
  bfloat16* copy;
  unsigned* magnitude;  // and two words in which the blocks of the tensor meet, and the number of these blocks
  long long start, length;
};

__device__ __forceinline__ float sign_of(float x) {
  return x > 0 ? 1.f : x < 0 ? -1.f : x;  // of a NaN it is a NaN, as in numpy
}

// The larger one, or a NaN if there is one, as numpy's and PyTorch's maximum.
__device__ __forceinline__ float larger(float a, float b) { return a > b || a != a ? a : b; }

struct Decay {
  float sign, shrink, shift, l2, l1;

  // Changes w and returns the gradient with which it is updated.
  __device__ __forceinline__ float apply(float& w, float g) const {
    const float old = w;
    g *= sign;
    if (l2 != 0) g += l2 * old;
    if (l1 != 0) g += l1 * sign_of(old);
    w *= shrink;
    if (shift != 0) w -= shift * sign_of(old);
    return g;
  }
};

template <int SLOTS, class Rule>
__device__ __forceinline__ void update(const Row<SLOTS>& row, const Rule& rule, unsigned held) {
  float* W = row.W + row.start;
  const float* g = row.g + row.start;
  bfloat16* copy = row.copy ? row.copy + row.start : nullptr;
  float* slots[SLOTS];
  unsigned largest = 0;
  uintptr_t addresses = uintptr_t(W) | uintptr_t(g) | uintptr_t(copy);
#pragma unroll
  for (int s = 0; s < SLOTS; s++) {
    slots[s] = row.slots[s] + row.start;
    addresses |= uintptr_t(slots[s]);
  }
  const int length = row.length;
  const int vectors = addresses & 15 ? 0 : length / 4;
#pragma unroll(SLOTS > 2 ? 1 : 2)
  for (int i = threadIdx.x; i < vectors; i += THREADS) {
    Pack<float, 4> w4 = load_pack<4>(W + 4 * i), g4 = load_pack<4>(g + 4 * i), s4[SLOTS] = {};
#pragma unroll
    for (int s = 0; s < SLOTS; s++)
      if (held >> s & 1) s4[s] = load_pack<4>(slots[s] + 4 * i);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      float own[SLOTS];
#pragma unroll
      for (int s = 0; s < SLOTS; s++) own[s] = s4[s].v[j];
      rule.step(w4.v[j], g4.v[j], own, held);
#pragma unroll
      for (int s = 0; s < SLOTS; s++) s4[s].v[j] = own[s];
      largest = max(largest, finite_magnitude(w4.v[j]));
    }
    store_pack(W + 4 * i, w4);
    if (copy) store_pack(copy + 4 * i, w4);
#pragma unroll
    for (int s = 0; s < SLOTS; s++)
      if (held >> s & 1) store_pack(slots[s] + 4 * i, s4[s]);
  }
  for (int i = 4 * vectors + threadIdx.x; i < length; i += THREADS) {
    float own[SLOTS];
#pragma unroll
    for (int s = 0; s < SLOTS; s++) own[s] = held >> s & 1 ? slots[s][i] : 0.f;
    Pack<float, 1> w = load_pack<1>(W + i);
    rule.step(w.v[0], g[i], own, held);
    largest = max(largest, finite_magnitude(w.v[0]));
    store_pack(W + i, w);
    if (copy) store_pack(copy + i, w);
#pragma unroll
    for (int s = 0; s < SLOTS; s++)
      if (held >> s & 1) slots[s][i] = own[s];
  }
  if (row.magnitude) write_largest(row.magnitude, row.magnitude + 1, largest, row.magnitude[3]);
}
