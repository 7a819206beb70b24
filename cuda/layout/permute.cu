// Y[box] = X[box] if X is contiguous along an axis of M elements and Y along another one of N: a transpose, with any
// axes around it. Element (m, n) of a matrix lies at m + n x_step of X and at n + m y_step of Y.
//
// A block reads a tile along M and writes it along N; between, the tile lies in shared memory. A row of the tile there
// has 4 more bytes than 32 banks or a multiple of them, so that a column of it lies in 32 different banks.
// Axis 0 of `axes` counts the tiles along M, axis 1 those along N; the others are the box's other axes.
// Grid: tiles. Block: (32, 8). Shared memory: a tile of 64 x 64 elements, or of 32 x 32 if they have 8 bytes.
// Macros: WORD an unsigned type of the size of an element, up to 8 bytes; INDEX as in layout/axes.cuh.
#include "layout/axes.cuh"

using Word = ALPHA_WORD;
using Index = ALPHA_INDEX;
constexpr int THREADS = 256, WARPS = THREADS / 32, BYTES = sizeof(Word);

extern "C" __global__ void __launch_bounds__(THREADS)
    permute(Word* __restrict__ Y, const Word* __restrict__ X, long long M, long long N, long long x_step,
            long long y_step, const Axes axes) {
  constexpr int TILE = BYTES == 8 ? 32 : 64, PITCH = TILE + (BYTES < 4 ? 4 / BYTES : 1);
  constexpr int ACROSS = TILE / 32, DOWN = TILE / WARPS;  // elements of a thread
  __shared__ Word tile[TILE][PITCH];
  Index rest[1] = {Index(blockIdx.x)};
  const Index m0 = take_axis(axes, 0, rest[0]) * TILE, n0 = take_axis(axes, 1, rest[0]) * TILE;
  Offset<Index> x[1], y[1];
  locate<2>(axes, rest, x, y);
  const int across = threadIdx.x, down = threadIdx.y;
  const Word* source = X + (x[0] + Offset<Index>(m0 + across) + Offset<Index>(n0 + down) * Offset<Index>(x_step));
  Word* target = Y + (y[0] + Offset<Index>(n0 + across) + Offset<Index>(m0 + down) * Offset<Index>(y_step));
  Word held[ACROSS][DOWN] = {};  // all loads before the first use
#pragma unroll
  for (int i = 0; i < DOWN; i++)
#pragma unroll
    for (int j = 0; j < ACROSS; j++)
      if (m0 + across + 32 * j < Index(M) && n0 + down + WARPS * i < Index(N))
        held[j][i] = source[32 * j + WARPS * i * x_step];
#pragma unroll
  for (int i = 0; i < DOWN; i++)
#pragma unroll
    for (int j = 0; j < ACROSS; j++) tile[down + WARPS * i][across + 32 * j] = held[j][i];
  __syncthreads();  // the tile is written
#pragma unroll
  for (int i = 0; i < DOWN; i++)
#pragma unroll
    for (int j = 0; j < ACROSS; j++)
      if (n0 + across + 32 * j < Index(N) && m0 + down + WARPS * i < Index(M))
        target[32 * j + WARPS * i * y_step] = tile[across + 32 * j][down + WARPS * i];
}
