// The norm of many tensors, and the limits of their elements, in place.
//
// `norms` writes one sum of |g|^p per row of the table (a chunk of one tensor), or the largest |g| if p is infinite.
// Sums are doubles, in which no square of a float is too large or too small.
// `total_norm` joins them in a fixed order to the norm of all tensors. `clip` multiplies each element by
// min(1, most / (norm + 1e-6)), if there is a norm, and limits it to [-bound, bound]. A NaN stays in all of them.
// Grid: one block per row; `total_norm` 1. Block: 256. Shared memory: a number per thread. No macros.
#include "common/cuda.h"

constexpr int THREADS = 256;

struct Row {
  float* g;
  long long start, length;
};

__device__ __forceinline__ double join(double a, double b, float p) {
  if (isfinite(p)) return a + b;
  return a > b || a != a ? a : b;
}

__device__ __forceinline__ double term(float x, float p) {
  const double size = fabsf(x);
  return p == 2 ? size * size : p == 1 || !isfinite(p) ? size : pow(size, double(p));
}

// Joins the values of all threads of the block, for thread 0.
__device__ __forceinline__ double join_block(double value, float p) {
  __shared__ double values[THREADS];
  values[threadIdx.x] = value;
  for (int half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) values[threadIdx.x] = join(values[threadIdx.x], values[threadIdx.x + half], p);
  }
  return values[0];
}

extern "C" __global__ void __launch_bounds__(THREADS)
    norms(double* __restrict__ parts, const Row* __restrict__ table, float p) {
  const Row row = table[blockIdx.x];
  const float* g = row.g + row.start;
  const int length = row.length;
  double value = 0;
#pragma unroll 8
  for (int i = threadIdx.x; i < length; i += THREADS) value = join(value, term(g[i], p), p);
  value = join_block(value, p);
  if (threadIdx.x == 0) parts[blockIdx.x] = value;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    total_norm(float* __restrict__ norm, const double* __restrict__ parts, int count, float p) {
  double value = 0;
  for (int i = threadIdx.x; i < count; i += THREADS) value = join(value, parts[i], p);
  value = join_block(value, p);
  if (threadIdx.x == 0)
    *norm = float(p == 2 ? sqrt(value) : p == 1 || !isfinite(p) ? value : pow(value, 1 / double(p)));
}

extern "C" __global__ void __launch_bounds__(THREADS)
    clip(const Row* __restrict__ table, const float* __restrict__ norm, float most, float bound) {
  const Row row = table[blockIdx.x];
  float* g = row.g + row.start;
  const int length = row.length;
  float factor = norm ? most / (*norm + 1e-6f) : 1;
  if (factor > 1) factor = 1;
#pragma unroll 8
  for (int i = threadIdx.x; i < length; i += THREADS) {
    const float x = g[i] * factor;
    g[i] = x < -bound ? -bound : x > bound ? bound : x;
  }
}
