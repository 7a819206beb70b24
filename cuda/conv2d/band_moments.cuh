// Mean and sum of squared deviations of each output channel over the rows of a tile, for a batch normalisation that follows
// (band_gemm.cuh with MOMENTS 1): so it need not read the result once more.
#pragma once
#include "common/barrier.cuh"
#include "common/moments.cuh"
#include "conv2d/band_store.cuh"

constexpr int MOMENT_WARPS = 4 * GROUPS;

// What the warps leave for each other.
struct WarpMoments {
  float mean[MOMENT_WARPS][BN], squares[MOMENT_WARPS][BN], count[MOMENT_WARPS];
};

// Adds up v[c] of the eight lanes 4 g + t that hold the same columns; lane g is left with the sum of c = g.
__device__ __forceinline__ float add_rows(float (&v)[8], int g) {
#pragma unroll
  for (int half = 4; half; half /= 2) {
    const bool upper = g & half;
#pragma unroll
    for (int c = 0; c < half; c++)  // each keeps one half of its columns and gives the other away
      v[c] = (upper ? v[c + half] : v[c]) + __shfl_xor_sync(0xffffffffu, upper ? v[c] : v[c + half], 4 * half);
  }
  return v[0];
}

// A result as it lies in memory.
__device__ __forceinline__ float as_stored(float y) {
  return OPERANDS == BF16 ? __uint_as_float(narrow_pair(0.f, y)) : y;
}

// Writes part[0, z, j] = mean, part[1, z, j] = squared deviations and counts[z] = rows, of those rows that inside(row) says
// are inside. A warp takes the deviations from its own mean, so that nothing large cancels; warps meet by the
// pairwise update of Chan, Golub & LeVeque (1983), in their order. All consumers call it.
template <class Inside>
__device__ __forceinline__ void leave_moments(const float (&sum)[MI][R], const BandProblem& p, int j0, int z, Inside inside) {
  constexpr int CONSUMERS = 128 * GROUPS, BARRIER = 2;
  __shared__ WarpMoments shared;
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane >> 2, t = lane & 3;
  const Finish finish(p, j0);
  unsigned valid = 0;  // a bit each of the rows of a lane
  int rows = 0;
#pragma unroll
  for (int i = 0; i < 2 * MI; i++) {
    const bool is_inside = inside(int((threadIdx.x / 128 * MI + i / 2) * 64 + warp % 4 * 16 + g + i % 2 * 8));
    valid |= unsigned(is_inside) << i;
    rows += __popc(__ballot_sync(0xffffffffu, is_inside)) / 4;
  }
  const float share = rows ? 1.f / rows : 0.f;
#pragma unroll
  for (int j = 0; j < BN / 8; j += 4) {
    float v[8] = {}, squares[8] = {};  // of columns 8 (j + c / 2) + 2 t + c % 2
    auto each = [&](auto run) {
#pragma unroll
      for (int c = 0; c < 8; c++)
#pragma unroll
        for (int i = 0; i < 2 * MI; i++)
          if (valid >> i & 1)
            run(c, as_stored(finish(sum[i / 2][(j + c / 2) * 4 + i % 2 * 2 + c % 2], (j + c / 2) * 8 + t * 2 + c % 2)));
    };
    each([&](int c, float y) { v[c] += y; });
    const float mean = add_rows(v, g) * share;
#pragma unroll
    for (int c = 0; c < 8; c++) v[c] = __shfl_sync(0xffffffffu, mean, 4 * c + t);
    each([&](int c, float y) { squares[c] += (y - v[c]) * (y - v[c]); });
    const int column = (j + g / 2) * 8 + t * 2 + g % 2;
    shared.mean[warp][column] = mean, shared.squares[warp][column] = add_rows(squares, g);
  }
  if (lane == 0) shared.count[warp] = rows;
  named_barrier_sync(BARRIER, CONSUMERS);
  if (threadIdx.x < BN && j0 + int(threadIdx.x) < p.GN) {
    Moments<1> all = {};
#pragma unroll
    for (int w = 0; w < MOMENT_WARPS; w++)
      all += Moments<1>{shared.count[w], {shared.mean[w][threadIdx.x]}, {shared.squares[w][threadIdx.x]}};
    float* place = p.moments + (long)z * p.GN + j0 + threadIdx.x;
    place[0] = all.mean.v[0], place[(long)p.moment_parts * p.GN] = all.squares.v[0];
    if (j0 + threadIdx.x == 0) p.moment_counts[z] = all.count;
  }
  named_barrier_sync(BARRIER, CONSUMERS);  // and the next tile may write
}
