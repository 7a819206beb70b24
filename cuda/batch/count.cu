// sums += (loss * samples, hits, samples, first), where a hit is a row of logits (R, C) whose first maximum is at its
// label; NaN is a maximum. sums[8] += the rows whose label is not IGNORED; only those are hits.
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
                const Label* __restrict__ labels, int R, int C, long long samples, int first) {
  __shared__ int hits[WARPS], rated[WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int mine = 0, seen = 0;
  for (int n = warp; n < R; n += WARPS) {
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
    const bool counts = (long long)(labels[n]) != IGNORED;
    mine += counts && at == int(labels[n]);
    seen += counts;
  }
  if (lane == 0) hits[warp] = mine, rated[warp] = seen;
  __syncthreads();
  if (threadIdx.x > 0) return;
  int total = 0, rows = 0;
  for (int w = 0; w < WARPS; w++) total += hits[w], rows += rated[w];
  const double value = *loss;
  sums[0] = sums[0] + __dmul_rn(value, double(samples));
  sums[1] += total;
  sums[2] += samples;
  sums[3] += first;
  sums[8] += rows;
  if (isfinite(value) || sums[4] != 0) return;
  sums[4] = sums[3], sums[5] = value;
  for (int n = 0; n < R; n++) {  // once in a run, which ends here
    const long long label = labels[n];
    if (label == IGNORED || (label >= 0 && label < C)) continue;
    sums[6] = double(label), sums[7] = C;
    return;
  }
}
