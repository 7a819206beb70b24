// The loop of ConvV2 and KS-deconv on Hopper: wgmma, operands brought by the copy engine, one trimmed filter a block.
//
//   C[n, position, j] = sum over the taps of the block, over k of A[n, pixel(tap), k] B[tap, j, k]
//
// A tile is 128 rows x BN output channels. Its rows are PW neighbouring positions of one map row x 128 / PW images; PW = 1 is
// the trimmed tile of the paper, PW > 1 serves small batches: its filter is the union of the positions' trimmed
// filters, and what a position has outside is filled with zeros by the copy engine.
//
// B comes as half-precision planes (filter_planes.cu), A as floats; precision and consumers: half_gemm.cuh.
//
// Shared memory: 1024 + STAGES (2 128 128 + PLANES BN 128) bytes. Needs sm_90a, K % 4 == 0, GN % 2 == 0.
// Block and macros: half_gemm.cuh, PW 1 | 2 | 4 | 8 | 16 | 32.
#pragma once
#include "common/ldmatrix.cuh"
#include "conv2d/half_gemm.cuh"

// The taps of a block: `rows` x `columns`; A is read at (row + r, column + c), B at tap + r tap_row + c. `column` counts input
// columns and may be negative.
struct BlockTaps {
  int rows, columns, row, column, tap, tap_row;
};

// Where a block's rows go: position0 + i step for its i-th position, of which `count` are inside.
struct BlockPositions {
  int first, step, count;
};

struct WgmmaProblem {
  const TensorMap *A, *B;  // A: one map for each phase of the column stride
  const unsigned* absmax;  // bits of the largest magnitudes of A and of B's source
  float* C;
  int N, K, positions, GN, column_step;  // columns of A from one position to the next
};

constexpr int IMAGES = BM / PW;
constexpr int BOX = BM * 128, PLANE = BN * 128, STAGE = 2 * BOX + PLANES * PLANE;  // bytes
static_assert(BM % PW == 0, "a tile is whole images");

// One thread feeds the ring: for each tap and each 64 of K two boxes of A (32 floats x PW columns x images) and one of B.
__device__ __forceinline__ void produce(const WgmmaProblem& p, const BlockTaps& taps, const Ring<STAGE>& ring, int n0, int j0) {
  const int blocks = (p.K + BK - 1) / BK;
  int i = 0;
  for (int r = 0; r < taps.rows; r++)
    for (int c = 0; c < taps.columns; c++) {
      const int column = taps.column + c, tap = taps.tap + r * taps.tap_row + c;
      // columns of one phase are neighbours in its map: floor division, as `column` may be negative
      const int phase = (column % p.column_step + p.column_step) % p.column_step, x = (column - phase) / p.column_step;
      for (int b = 0; b < blocks; b++, i++) {
        const uint32_t tile = ring.begin(i), full = ring.full_at(i);
        tma_load(tile, p.A + phase, full, b * BK, x, taps.row + r, n0);
        tma_load(tile + BOX, p.A + phase, full, b * BK + 32, x, taps.row + r, n0);
        tma_load(tile + 2 * BOX, p.B, full, b * BK, j0, tap, 0);
      }
    }
}

// The A fragment of 16 of K for a warp's 16 rows, in planes. A thread holds floats t and t + 4 of each 8 (as for tf32);
// they go where the instruction expects 2t and 2t + 1, and filter_planes.cu orders B alike.
__device__ __forceinline__ void load_a(uint32_t rows, int k, float scale, uint32_t (&hi)[4], uint32_t (&lo)[4]) {
  const int lane = threadIdx.x & 31, matrix = lane >> 3, i = lane & 7;
  const uint32_t box = rows + k / 2 * BOX + ((matrix & 1) * 8 + i) * 128;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    uint32_t v[4];
    ldmatrix_x4(v, box + (((k % 2 * 4 + half * 2 + (matrix >> 1)) ^ i) << 4));
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const float lower = __uint_as_float(v[e]) * scale, upper = __uint_as_float(v[e + 2]) * scale;
      to_planes(lower, upper, hi[half * 2 + e], lo[half * 2 + e]);
    }
  }
}

// Blocks in order: output channels fastest, then images, then groups of positions, those with the most taps first (`order`).
template <class Taps>
__device__ __forceinline__ void run_wgmma_block(const WgmmaProblem& p, const int* order, Taps taps_of) {
  ALPHA_DYNAMIC_SHARED(unsigned char, smem);
  __shared__ __align__(8) uint64_t barriers[2 * STAGES];
  const Ring<STAGE> ring(smem, barriers);
  const int tiles_j = (p.GN + BN - 1) / BN, tiles_n = (p.N + IMAGES - 1) / IMAGES;
  const int j0 = blockIdx.x % tiles_j * BN, n0 = blockIdx.x / tiles_j % tiles_n * IMAGES;
  BlockTaps taps;
  BlockPositions to;
  taps_of(order[blockIdx.x / (tiles_j * tiles_n)], taps, to);
  if (is_producer()) {
    setmaxnreg_decrease<40>();
    if (threadIdx.x == GROUPS * 128) produce(p, taps, ring, n0, j0);
    return;
  }
  setmaxnreg_increase<232>();
  const int first_row = threadIdx.x / 32 * 16;
  const float scale = half_scale(p.absmax[0]);
  float sum[R] = {};
  consume<0>(
      ring, taps.rows * taps.columns * ((p.K + BK - 1) / BK), sum,
      [&](uint32_t tile, int k, uint32_t(&hi)[4], uint32_t(&lo)[4]) { load_a(tile + first_row * 128, k, scale, hi, lo); },
      [&](uint32_t tile, int plane, int k) { return wgmma_k_major(tile + 2 * BOX + plane * PLANE + k * 32); });
  store_rows(sum, p.absmax, p.GN - j0, [&](int row) -> float* {
    const int n = n0 + row / PW, position = row % PW;
    if (n >= p.N || position >= to.count) return nullptr;
    return p.C + ((long)n * p.positions + to.first + position * to.step) * p.GN + j0;
  });
}
