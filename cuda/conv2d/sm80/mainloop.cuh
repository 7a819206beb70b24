// The main loop of ConvV2 and KS-deconv on mma.sync: one output pixel per block, so that all threads share one trimmed
// filter.
//
//   C[n, pixel, j] = sum over the taps of the pixel, over k of A[n, pixel(tap), k] B[tap, j, k]
//
// A tile is BM images x BN output channels of one output pixel. Every tap of the list falls inside of the map, so
// there is no padding to test: a row of A is K contiguous channels of one image. mma.sync (sm_80 and newer), loads by
// cp.async with STAGES stages, one barrier per step of 128 bytes of K.
//   MATH TF32X3 | TF32   A, B, C float32
//   MATH BF16            A, B, C bfloat16, sums float32
//
// Block: 32 (BM / WM) (BN / WN) threads. Shared memory: STAGES (BM + BN) 128 bytes. Needs rows of A of whole 16 bytes
// and GN % 2 == 0; images, channels and outputs beyond the tile are predicated.
// Macros: ALPHA_MATH, ALPHA_BM, ALPHA_BN (tile), ALPHA_WM, ALPHA_WN (warp tile), ALPHA_STAGES.
#pragma once
#include "common/cp_async.cuh"
#include "common/divide.cuh"
#include "common/vector.cuh"
#include "common/warp_tile.cuh"

// A trimmed filter: a rectangle of `rows` x `columns` taps. Its first tap is `tap`, which reads `pixel`; the next row
// begins `pixel_row` pixels and `tap_row` taps further.
struct TapRectangle {
  int rows, columns, pixel, tap, pixel_row, tap_row;
};

template <class T>
struct PixelGemm {
  const T *A, *B;
  T* C;
  int N, pixels, K, output_pixels, GN;  // A (N, pixels, K), C (N, output_pixels, GN)
  long b_row, b_tap;                    // elements from one j, and from one tap, to the next in B
};

template <MathMode MATH, int BM, int BN, int WM, int WN, int STAGES>
struct PixelTile {
  using Warp = WarpTile<MATH, WM / 16, WN / 8>;
  using T = typename Warp::Element;
  static constexpr int THREADS = BM / WM * (BN / WN) * 32, ROWS = THREADS / 8, BK = Warp::TILE_K;
  static constexpr int STAGE_BYTES = (BM + BN) * ROW_BYTES;
  static constexpr int RESIDENT = BM * BN > 64 * 64    ? 2
                                  : BM * BN == 64 * 64 ? 3
                                                       : 6;  // blocks that the registers of an SM hold
  static_assert(BM % WM == 0 && BN % WN == 0 && WM % 16 == 0 && WN % 16 == 0, "warp tiles of 16 x 16 cover the tile");
  static_assert(BM % ROWS == 0 && BN % ROWS == 0, "eight threads load a row; every pass is whole");

  static __device__ __forceinline__ void run(const PixelGemm<T>& p, const TapRectangle& taps, int output_pixel, int n0,
                                             int j0) {
    ALPHA_DYNAMIC_SHARED(T, smem);
    const int warp = threadIdx.x / 32, wm = warp % (BM / WM) * WM, wn = warp / (BM / WM) * WN;
    const int row = threadIdx.x / 8, chunk = threadIdx.x % 8;
    const int blocks = (p.K + BK - 1) / BK, steps = taps.rows * taps.columns * blocks;
    const uint32_t base = shared_address(smem), offset = Warp::k_major(row, chunk) * int(sizeof(T));

    int r = 0, c = 0, block = 0;  // the next step to load: tap (r, c) and BK channels of it
    auto load = [&](int stage) {
      const int k = block * BK + chunk * Warp::CHUNK, bytes = k < p.K ? 16 : 0;
      const T* a = p.A + (long)(taps.pixel + r * taps.pixel_row + c) * p.K + k;
      const T* b = p.B + (taps.tap + r * taps.tap_row + c) * p.b_tap + k;
      const uint32_t target = base + stage * STAGE_BYTES + offset;
#pragma unroll
      for (int i = 0; i < BM; i += ROWS) {
        const int n = n0 + row + i;
        cp_async<16>(target + i * ROW_BYTES, a + (long)n * p.pixels * p.K, n < p.N ? bytes : 0);
      }
#pragma unroll
      for (int i = 0; i < BN; i += ROWS) {
        const int j = j0 + row + i;
        cp_async<16>(target + (BM + i) * ROW_BYTES, b + j * p.b_row, j < p.GN ? bytes : 0);
      }
      if (++block == blocks) {
        block = 0;
        if (++c == taps.columns) c = 0, r++;
      }
    };

    Warp tile;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
      if (s < steps) load(s);
      cp_async_commit();
    }
    for (int step = 0; step < steps; step++) {
      cp_async_wait<STAGES - 2>();
      __syncthreads();  // this step's tiles are there, and no thread reads the stage that is loaded next
      if (step + STAGES - 1 < steps) load((step + STAGES - 1) % STAGES);
      cp_async_commit();
      const uint32_t stage = base + step % STAGES * STAGE_BYTES;
      tile.multiply_k_major(stage + wm * ROW_BYTES, stage + (BM + wn) * ROW_BYTES);
    }
    tile.each_pair([&](int m, int j, float v0, float v1) {
      const int n = n0 + wm + m, column = j0 + wn + j;
      if (n < p.N && column < p.GN)
        store_pack<2>(p.C + ((long)n * p.output_pixels + output_pixel) * p.GN + column, Pack<float, 2>{v0, v1});
    });
  }
};

using Tile = PixelTile<ALPHA_MATH, ALPHA_BM, ALPHA_BN, ALPHA_WM, ALPHA_WN, ALPHA_STAGES>;
using Element = Tile::T;

// Raster order: output channels fastest, then images, then output pixels, those with the most taps first (`order`).
template <class Taps>
__device__ __forceinline__ void run_output_pixel(const PixelGemm<Element>& p, const int* order, Taps taps_of) {
  const int tiles_j = (p.GN + ALPHA_BN - 1) / ALPHA_BN, tiles_n = (p.N + ALPHA_BM - 1) / ALPHA_BM;
  const auto [i, j] = divide(blockIdx.x, tiles_j);
  const auto [place, n] = divide(i, tiles_n);
  const int output_pixel = order[place];
  Tile::run(p, taps_of(output_pixel), output_pixel, n * ALPHA_BM, j * ALPHA_BN);
}
