// sums += (loss * N, hits, N, 1), where a hit is a row of logits whose first maximum is at its label; NaN is a maximum.
// sums[4] and sums[5] become the number and the loss of the first step whose loss is not finite; sums[6] and sums[7]
// the first of its labels that is outside [0, C) and not IGNORED, and C, if there is one.
//
// Grid: 1 block, since the sums are added in the order of the steps. Block: 1024 threads, a warp per row in turn.
// Shared memory: the hits of the warps. Macros: TYPE float | bfloat16 of logits; LABEL int | long long | uint8_t.
#include "common/bfloat16.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Label = ALPHA_LABEL;
constexpr int THREADS = 1024, WARPS = THREADS / 32;
constexpr int IGNORED = -100;  // of cross_entropy: rows without a label

// Whether value a at index i comes before b at j as the maximum of a row.
__device__ __forceinline__ bool before(float a, int i, float b, int j) {
  const bool a_nan = a != a, b_nan = b != b;
  if (a_nan || b_nan) return a_nan && (!b_nan || i < j);
  return a > b || (a == b && i < j);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    count_batch(double* __restrict__ sums, const float* __restrict__ loss, const T* __restrict__ logits,
                const Label* __restrict__ labels, int N, int C) {
  __shared__ int hits[WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int mine = 0;
  for (int n = warp; n < N; n += WARPS) {
    float best = -INFINITY;
    int at = C;
    for (int c = lane; c < C; c += 32) {
      const float x = float(Number<T>(load_pack<1>(logits + (long long)n * C + c).v[0]));
      if (at == C || before(x, c, best, at)) best = x, at = c;
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, best, step);
      const int place = __shfl_xor_sync(0xffffffffu, at, step);
      if (place < C && (at == C || before(other, place, best, at))) best = other, at = place;
    }
    mine += at == int(labels[n]);
  }
  if (lane == 0) hits[warp] = mine;
  __syncthreads();
  if (threadIdx.x > 0) return;
  int total = 0;
  for (int w = 0; w < WARPS; w++) total += hits[w];
  const double value = *loss;
  sums[0] = sums[0] + __dmul_rn(value, double(N));
  sums[1] += total;
  sums[2] += N;
  sums[3] += 1;
  if (isfinite(value) || sums[4] != 0) return;
  sums[4] = sums[3], sums[5] = value;
  for (int n = 0; n < N; n++) {  // once in a run, which ends here
    const long long label = labels[n];
    if (label == IGNORED || (label >= 0 && label < C)) continue;
    sums[6] = double(label), sums[7] = C;
    return;
  }
}
