// Y (N, M) = X (M, N)^T.
//
// Grid: ceil(N / 32) ceil(M / 32), tiles of one row of tiles next to each other. Block: (32, 8).
// Shared memory: a tile of 32 x 33, so that a column of it lies in 32 different banks.
// Macros: TYPE element type, or an integer of its size.
#include "common/cuda.h"

using T = ALPHA_TYPE;
constexpr int TILE = 32, ROWS = 8;

extern "C" __global__ void __launch_bounds__(TILE* ROWS)
    transpose(T* __restrict__ Y, const T* __restrict__ X, int M, int N) {
  __shared__ T tile[TILE][TILE + 1];
  const int tiles = (N + TILE - 1) / TILE;
  const int m0 = int(blockIdx.x) / tiles * TILE, n0 = int(blockIdx.x) % tiles * TILE;
  const int n = n0 + threadIdx.x, m = m0 + threadIdx.x;
#pragma unroll
  for (int y = threadIdx.y; y < TILE; y += ROWS)
    if (m0 + y < M && n < N) tile[y][threadIdx.x] = X[size_t(m0 + y) * N + n];
  __syncthreads();
#pragma unroll
  for (int y = threadIdx.y; y < TILE; y += ROWS)
    if (n0 + y < N && m < M) Y[size_t(n0 + y) * M + m] = tile[threadIdx.x][y];
}
