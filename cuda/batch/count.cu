// sums += (loss * samples, hits, samples, first), where a hit is a row of logits (R, C) whose first maximum is at its
// label; NaN is a maximum. sums[8] += the rows whose label is in [0, C); only those are hits.
// sums[4] and sums[5] become the number and the loss of the first step whose loss is not finite; sums[6] and sums[7]
// the first of its labels that is outside [0, C) and not IGNORED, and C, if there is one.
//
// Grid: 1 block, since the sums are added in the order of the steps. Block: 1024 threads, of which LANES share a row.
// No shared memory. Macros: TYPE float | bfloat16 of logits; LABEL int | long long | uint8_t;
// LANES, a power of two up to 32.
#include "common/bfloat16.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Label = ALPHA_LABEL;
constexpr int THREADS = 1024, LANES = ALPHA_LANES, ROWS = THREADS / LANES;  // ROWS: at a time
constexpr int AHEAD = 8;                                                    // loads under way in a thread
constexpr int IGNORED = -100;                                               // of cross_entropy: rows without a label

// Whether the maximum of a row, of which NaN is one, is not b at index j because of value a at index i.
__device__ __forceinline__ bool beats(float a, int i, float b, int j) {
  return b != b ? a != a && i < j : i < j ? !(a < b) : i > j && !(a <= b);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    count_batch(double* __restrict__ sums, const float* __restrict__ loss, const T* __restrict__ logits,
                const Label* __restrict__ labels, int R, int C, long long samples, int first) {
  const int lane = threadIdx.x % LANES;
  int total = 0, rows = 0;
  for (int first_row = 0; first_row < R; first_row += ROWS) {
    const int n = first_row + threadIdx.x / LANES;
    const long long label = n < R ? (long long)(labels[n]) : IGNORED;
    const bool inside = label >= 0 && label < C;
    const T* row = logits + (long long)min(n, R - 1) * C;
    auto at = [row](int c) { return float(Number<T>(load_pack<1>(row + c).v[0])); };
    const float x = inside ? at(int(label)) : 0.f;
    bool beaten = !inside;  // by another column
    int c = lane;
    for (; c + (AHEAD - 1) * LANES < C; c += AHEAD * LANES) {
      float others[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; i++) others[i] = at(c + i * LANES);
#pragma unroll
      for (int i = 0; i < AHEAD; i++) beaten |= beats(others[i], c + i * LANES, x, int(label));
    }
    for (; c < C; c += LANES) beaten |= beats(at(c), c, x, int(label));
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) beaten |= __shfl_xor_sync(~0u, int(beaten), step);
    total += __syncthreads_count(lane == 0 && !beaten);
    rows += __syncthreads_count(lane == 0 && inside);
  }
  if (threadIdx.x > 0) return;
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
