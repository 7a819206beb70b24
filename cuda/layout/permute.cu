// Y[box] = X[box] if X is contiguous along axis `tiled` and Y along the last one: tiles of both go through shared memory.
//
// Grid: tiles of 32 x 32 of these two axes, times the elements of all others. Block: (32, 8).
// Shared memory: a tile of 32 x 33, so that a column of it lies in 32 different banks.
// Macros: WORD an unsigned type of the size of an element.
#include "layout/axes.cuh"

using Word = ALPHA_WORD;
constexpr int TILE = 32, ROWS = 8;

extern "C" __global__ void __launch_bounds__(TILE* ROWS)
    permute(Word* __restrict__ Y, const Word* __restrict__ X, const Axes axes) {
  __shared__ Word tile[TILE][TILE + 1];
  const int last = axes.count - 1, tiled = axes.tiled;
  const long long M = axes.length[tiled], N = axes.length[last];
  long long rest = blockIdx.x, x = axes.x_base, y = axes.y_base;
  const long long tiles_m = (M + TILE - 1) / TILE, tiles_n = (N + TILE - 1) / TILE;
  const long long n0 = rest % tiles_n * TILE;
  rest /= tiles_n;
  const long long m0 = rest % tiles_m * TILE;
  rest /= tiles_m;
  for (int axis = last - 1; axis >= 0; axis--) {
    if (axis == tiled) continue;
    const long long at = rest % axes.length[axis];
    x += at * axes.x[axis], y += at * axes.y[axis];
    rest /= axes.length[axis];
  }
  const long long m = m0 + threadIdx.x, n = n0 + threadIdx.x;
#pragma unroll
  for (int i = threadIdx.y; i < TILE; i += ROWS)
    if (m < M && n0 + i < N) tile[i][threadIdx.x] = X[x + m + (n0 + i) * axes.x[last]];
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.y; i < TILE; i += ROWS)
    if (n < N && m0 + i < M) Y[y + n + (m0 + i) * axes.y[tiled]] = tile[threadIdx.x][i];
}
