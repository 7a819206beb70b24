// A running mean of many tensors in place: W += weight (g - W), in which g is a tensor of the newest model.
//
// weight is gain, or 1 / (count + 1) if gain is negative; and 1 if count is 0. A null count has weight = gain.
// `count_up` adds 1 to count. Grid, block and table: optimizer/update.cuh; `count_up` 1 and 1. No macros, no slots.
#include "optimizer/update.cuh"

struct Rule {
  float weight;

  __device__ __forceinline__ void step(float& w, float g, float (&)[1], unsigned) const {
    w = weight == 1 ? g : w + weight * (g - w);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    average(const Row<1>* __restrict__ table, const long long* __restrict__ count, float gain) {
  const long long before = count ? *count : 1;
  update(table[blockIdx.x], Rule{before == 0 ? 1 : gain < 0 ? 1 / float(before + 1) : gain}, 0);
}

extern "C" __global__ void count_up(long long* __restrict__ count) { *count += 1; }
