// The loop that ConvV2 and KS-deconv share: one output position a block, so that all threads share one trimmed filter.
//
//   C[n, position, j] = sum over the taps of the position, over k of A[n, pixel(tap), k] B[tap, j, k]
//
// A tile is BM images x BN output channels of one position. Every tap of the list falls inside the map, so
// there is no padding to test: a row of A is K contiguous channels of one image. 3xTF32 on mma.sync (sm_80 and newer), loads
// by cp.async, STAGES deep, one barrier a 32-deep step.
//
// Block: 32 (BM / WM) (BN / WN) threads. Shared memory: STAGES (BM + BN) 128 bytes. Needs K % 4 == 0 and GN % 2 == 0;
// images, channels and outputs beyond the tile are predicated.
// Macros: ALPHA_BM, ALPHA_BN (tile), ALPHA_WM, ALPHA_WN (warp tile), ALPHA_STAGES.
#pragma once
#include "common/cp_async.cuh"
#include "common/tf32x3.cuh"

// A trimmed filter: a rectangle of `rows` x `columns` taps; one row further is so many pixels and taps further.
struct TapRectangle {
  int rows, columns, pixel, tap, pixel_row, tap_row;
};

struct PositionGemm {
  const float *A, *B;
  float* C;
  int N, pixels, K, positions, GN;  // A (N, pixels, K), C (N, positions, GN)
  long b_row, b_tap;                // floats from one j, and from one tap, to the next in B
};

template <int BM, int BN, int WM, int WN, int STAGES>
struct PositionTile {
  static constexpr int THREADS = BM / WM * (BN / WN) * 32, ROWS = THREADS / 8, BK = TILE_K;
  static constexpr int STAGE_FLOATS = (BM + BN) * BK;
  static_assert(BM % WM == 0 && BN % WN == 0 && WM % 16 == 0 && WN % 16 == 0, "warp tiles of 16 x 16 cover the tile");
  static_assert(BM % ROWS == 0 && BN % ROWS == 0, "eight threads load a row; every pass is whole");

  static __device__ __forceinline__ void run(const PositionGemm& p, const TapRectangle& taps, int position, int n0,
                                             int j0) {
    ALPHA_DYNAMIC_SHARED(float, smem);
    const int warp = threadIdx.x / 32, wm = warp % (BM / WM) * WM, wn = warp / (BM / WM) * WN;
    const int row = threadIdx.x / 8, chunk = threadIdx.x % 8;
    const int blocks = (p.K + BK - 1) / BK, steps = taps.rows * taps.columns * blocks;
    const uint32_t base = shared_address(smem), slot = swizzle_k_major(row, chunk) * 4;

    int r = 0, c = 0, block = 0;  // the next step to load: tap (r, c) and 32 channels of it
    auto load = [&](int stage) {
      const int k = block * BK + chunk * 4, bytes = k < p.K ? 16 : 0;
      const float* a = p.A + (long)(taps.pixel + r * taps.pixel_row + c) * p.K + k;
      const float* b = p.B + (taps.tap + r * taps.tap_row + c) * p.b_tap + k;
      const uint32_t target = base + stage * STAGE_FLOATS * 4 + slot;
#pragma unroll
      for (int i = 0; i < BM; i += ROWS) {
        const int n = n0 + row + i;
        cp_async<16>(target + i * BK * 4, a + (long)n * p.pixels * p.K, n < p.N ? bytes : 0);
      }
#pragma unroll
      for (int i = 0; i < BN; i += ROWS) {
        const int j = j0 + row + i;
        cp_async<16>(target + (BM + i) * BK * 4, b + j * p.b_row, j < p.GN ? bytes : 0);
      }
      if (++block == blocks) {
        block = 0;
        if (++c == taps.columns) c = 0, r++;
      }
    };

    Tf32x3<WM / 16, WN / 8> tile;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
      if (s < steps) load(s);
      cp_async_commit();
    }
    for (int step = 0; step < steps; step++) {
      cp_async_wait<STAGES - 2>();
      __syncthreads();  // the step's tiles are whole, and everyone is done with the stage that is loaded next
      if (step + STAGES - 1 < steps) load((step + STAGES - 1) % STAGES);
      cp_async_commit();
      const uint32_t stage = base + step % STAGES * STAGE_FLOATS * 4;
      tile.multiply_k_major(stage + wm * BK * 4, stage + (BM + wn) * BK * 4);
    }
    tile.each_pair([&](int m, int j, float v0, float v1) {
      const int n = n0 + wm + m, column = j0 + wn + j;
      if (n < p.N && column < p.GN)
        *reinterpret_cast<float2*>(p.C + ((long)n * p.positions + position) * p.GN + column) = make_float2(v0, v1);
    });
  }
};

// Blocks in order: output channels fastest, then images, then positions, those with the most taps first (`order`).
template <class Tile, class Taps>
__device__ __forceinline__ void run_position_block(const PositionGemm& p, const int* order, Taps taps_of) {
  const int tiles_j = (p.GN + ALPHA_BN - 1) / ALPHA_BN, tiles_n = (p.N + ALPHA_BM - 1) / ALPHA_BM;
  const int j = blockIdx.x % tiles_j, n = blockIdx.x / tiles_j % tiles_n, position = order[blockIdx.x / (tiles_j * tiles_n)];
  Tile::run(p, taps_of(position), position, n * ALPHA_BM, j * ALPHA_BN);
}

using Tile = PositionTile<ALPHA_BM, ALPHA_BN, ALPHA_WM, ALPHA_WN, ALPHA_STAGES>;
