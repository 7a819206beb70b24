// Channel statistics: the mean and the sum of squared deviations of each output channel over the rows that a block
// computes. A batch normalisation that follows need not read the result once more
// (sm90/mainloop.cuh with STATISTICS 1).
#pragma once
#include "common/barrier.cuh"
#include "conv2d/sm90/tile.cuh"

constexpr int CONSUMER_WARPS = 4 * CONSUMER_GROUPS;

// Two sums for each column of a tile, for each warp apart. With 16 columns of padding a warp adds to both sums without
// bank conflicts.
constexpr int SUMS_WIDTH = BN + 16;
template <int WIDTH>
using WarpSums = float[CONSUMER_WARPS][2][WIDTH];

// The sums of deviations and of their squares. Deviations are those from the first row that the block computes, so that
// nothing large cancels.
struct alignas(8) TileStatistics {
  float origin[BN];
  WarpSums<SUMS_WIDTH> sums;
};

// Adds up v[c] over the eight lanes 4 g + t that hold the same columns. Lane 4 g + t returns the sum of c = g.
__device__ __forceinline__ float add_rows(float (&v)[8], int g) {
#pragma unroll
  for (int half = 4; half; half /= 2) {
    const bool upper = g & half;
#pragma unroll
    for (int c = 0; c < half; c++)  // each lane keeps half of its columns and sends the other half
      v[c] = (upper ? v[c + half] : v[c]) + __shfl_xor_sync(0xffffffffu, upper ? v[c] : v[c + half], 4 * half);
  }
  return v[0];
}

// Adds to the sums of a warp v[c], of column 8 (j + c / 2) + 2 t + c % 2 of the rows of a lane, and v[4 + c], the other
// number of that column. `first`: the sums begin anew.
template <int WIDTH>
__device__ __forceinline__ void add_columns(WarpSums<WIDTH>& sums, int j, float (&v)[8], bool first) {
  const int thread = hide_from_optimizer(threadIdx.x), g = thread % 32 / 4, t = thread % 4;
  float& total = sums[thread / 32][g / 4][(j + g % 4 / 2) * 8 + t * 2 + g % 2];
  const float tile = add_rows(v, g);
  total = first ? tile : total + tile;
}

// The two sums of a column over all warps, in their order.
template <int WIDTH>
__device__ __forceinline__ float2 sum_of_warps(const WarpSums<WIDTH>& sums, int column) {
  float2 total = make_float2(0, 0);
#pragma unroll
  for (int w = 0; w < CONSUMER_WARPS; w++) total.x += sums[w][0][column], total.y += sums[w][1][column];
  return total;
}

// A number for the tile of output pixels `to` among all of an image, without gaps.
__device__ __forceinline__ int tile_of_image(const GemmProblem& p, const OutputPixels& to) {
  const int together = TILE_OW * to.distance, whole = (p.columns - 1) / together;  // `distance` tiles lie side by side
  const int tiles_of_row = whole * to.distance + min(to.distance, p.columns - whole * together);
  const int output_row = to.first / p.columns, column = to.first - output_row * p.columns;
  return output_row * tiles_of_row + column / together * to.distance + column % to.distance;
}

// Adds the rows of a tile for which inside(row) is true; the other rows of `sum` are overwritten. `first`: the tile is
// the first one, its first row is inside, and `statistics` begin anew. All consumers call it.
template <class Inside>
__device__ __forceinline__ void add_statistics(TileStatistics& statistics, float (&sum)[MI][R], bool first,
                                               Inside inside) {
  constexpr int BARRIER = 2;
  const int thread = hide_from_optimizer(threadIdx.x), warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  if (first) {
    if (thread < 4)
#pragma unroll
      for (int e = 0; e < R; e += 4)
        *reinterpret_cast<float2*>(&statistics.origin[e * 2 + t * 2]) = make_float2(sum[0][e], sum[0][e + 1]);
    named_barrier_sync(BARRIER, CONSUMERS);
  }
#pragma unroll
  for (int i = 0; i < 2 * MI; i++)
    if (!inside((warp / 4 * MI + i / 2) * 64 + warp % 4 * 16 + g + i % 2 * 8))
#pragma unroll
      for (int c = 0; c < BN / 4; c++)  // such a row deviates by zero
        sum[i / 2][c / 2 * 4 + i % 2 * 2 + c % 2] = statistics.origin[c / 2 * 8 + t * 2 + c % 2];
#pragma unroll
  for (int j = 0; j < BN / 8; j += 2) {
    float v[8] = {};  // v[c]: the sum of a column, v[4 + c]: that of its squares
#pragma unroll
    for (int c = 0; c < 4; c++) {
      const float origin = statistics.origin[(j + c / 2) * 8 + t * 2 + c % 2];
#pragma unroll
      for (int i = 0; i < 2 * MI; i++) {
        const float deviation = sum[i / 2][(j + c / 2) * 4 + i % 2 * 2 + c % 2] - origin;
        v[c] += deviation, v[4 + c] += deviation * deviation;
      }
    }
    add_columns(statistics.sums, j, v, first);
  }
}

// Writes part[0, z, j] = mean and part[1, z, j] = sum of squared deviations of the `count` rows that were added, and
// counts[z] = count. All consumers call it. A tile that is added afterwards must be `first`.
__device__ __forceinline__ void write_statistics(const TileStatistics& statistics, const GemmProblem& p, int j0, int z,
                                                 int count) {
  constexpr int BARRIER = 2;
  const int column = threadIdx.x;
  // read before other warps may begin the next tile, whose sums are written after a barrier
  const float origin = column < BN ? statistics.origin[column] : 0.f;
  named_barrier_sync(BARRIER, CONSUMERS);
  if (column < BN && j0 + column < p.GN) {
    const float2 sums = sum_of_warps(statistics.sums, column);
    const float mean = sums.x / count, rest = sums.y - sums.x * mean;
    float* target = p.statistics + (long)z * p.GN + j0 + column;
    target[0] = origin + mean, target[(long)p.statistics_parts * p.GN] = rest < 0 ? 0 : rest;
    if (j0 + column == 0) p.statistics_counts[z] = count;
  }
}
