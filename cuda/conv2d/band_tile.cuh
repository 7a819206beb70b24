// The tile of the Hopper kernels of ConvV2 and KS-deconv: its macros as constants, its taps, its problem (band_gemm.cuh).
#pragma once
#include "common/tma.cuh"
#include "conv2d/ring.cuh"
#include "conv2d/shape.cuh"

enum Operands { HALVES, TF32, BF16 };
constexpr Operands OPERANDS = ALPHA_OPERANDS;
constexpr int BM = ALPHA_BM, BN = ALPHA_BN, PLANES = ALPHA_PLANES, PW = ALPHA_PW, BAND = ALPHA_BAND;
constexpr bool SHARED_BAND = BAND > PW, B_MN = ALPHA_B_MN, CUT = ALPHA_CUT, MOMENTS = ALPHA_MOMENTS;
constexpr int GROUPS = 2, MI = BM / (64 * GROUPS), R = BN / 2, IMAGES = BM / PW;
// One block per SM has a warpgroup for a producer, so that registers can be moved from it to the consumers; of two
// blocks each has a warp, and 96 registers a thread.
constexpr bool MOVE_REGISTERS = ALPHA_BLOCKS == 1;
constexpr int THREADS = 128 * GROUPS + (MOVE_REGISTERS ? 128 : 32);
constexpr int BK = OPERANDS == TF32 ? 32 : 64, STEPS = OPERANDS == TF32 ? 4 : BK / 16;  // of K a tile, products for it
constexpr int A_BOXES = OPERANDS == HALVES ? 2 : 1, A_BOX = BAND * IMAGES * 128, PLANE = BN * 128,
              B_BYTES = PLANES * PLANE;
static_assert(BM % PW == 0 && IMAGES % 8 == 0, "a band's pixels are whole groups of 8 rows");
static_assert(BAND * IMAGES >= BM, "a tap reads BM rows");
static_assert(OPERANDS == HALVES || PLANES == 1, "only halves come in planes");
template <Operands>
struct OutputOf {
  using Type = float;
};
template <>
struct OutputOf<BF16> {
  using Type = uint16_t;
};
using Output = OutputOf<OPERANDS>::Type;

using RingA = Ring<A_BOXES * A_BOX, ALPHA_A_STAGES, GROUPS>;
using RingB = Ring<B_BYTES, ALPHA_B_STAGES, GROUPS>;

// x; of 96 registers a thread none holds what follows from it from before this call, through the products.
__device__ __forceinline__ int late(int x) {
  if (!MOVE_REGISTERS) asm volatile("" : "+r"(x));
  return x;
}

// The taps of a block: `rows` x `columns`. A is read at (row + r, column + c), column counting input columns, which may be
// negative; B at tap + r tap_row + c tap_column. Input columns `step` apart are neighbours in one map of A;
// the map of tap column c is map + (residue + c) % step.
struct BlockTaps {
  int rows, columns, row, column, tap, tap_row, tap_column, step, residue, map;

  __device__ __forceinline__ int bands() const { return SHARED_BAND ? min(step, columns) : columns; }
  // Of the band that begins with tap column c.
  __device__ __forceinline__ int taps(int c) const { return SHARED_BAND ? (columns - c + step - 1) / step : 1; }
};

// What a block takes up for some images and output channels: a group of positions, by its first, or with CUT 1 one of the
// segments into which its products are cut (the paper's GZ, section IV.C). `slot` is the first of the group's, among
// those of all groups that are cut.
struct Work {
  int position, segment, segments, slot;
};

// Calls run(row, band, from, to) for each band of a piece of work, and that part of K which is the work's.
template <class Run>
__device__ __forceinline__ void each_band(const BlockTaps& taps, const Work& work, int K, Run run) {
  const int across = (K + BK - 1) / BK, all = taps.rows * taps.bands() * across;
  const int begin = all * work.segment / work.segments, end = all * (work.segment + 1) / work.segments;
  int i = 0;
  for (int row = 0; row < taps.rows; row++)
    for (int band = 0; band < taps.bands(); band++, i += across)
      if (!CUT)
        run(row, band, 0, K);
      else if (begin < i + across && i < end)
        run(row, band, max(begin - i, 0) * BK, min((end - i) * BK, K));
}

// Filter rows begin with the one whose map row is a multiple of their number: neighbouring groups, which run at the same
// time, read a row of A that they share at the same time, and it comes from memory once.
__device__ __forceinline__ int rotated_row(const BlockTaps& taps, int row) {
  const int r = (row - taps.row) % taps.rows;
  return r < 0 ? r + taps.rows : r;
}

// Where a block's rows go: first + i step for its i-th position, of which `count` are inside.
struct BlockPositions {
  int first, step, count;
};

struct BandProblem {
  const TensorMap *A, *B;
  const unsigned *absmax_a, *absmax_b;  // HALVES: bits of the largest magnitude of A, of B's source
  const float* bias;                    // (GN,) or null
  float slope;
  Output* C;
  float* parts;  // sums of segments, BM x BN for each slot and tile of images and output channels, or null
  unsigned*
      arrived;  // of each of these tiles at the group's first slot: segments that came, and that left their sums; zeros
                // before and after
  int N, K, positions, GN, FW, sw;
  int works, works_first;  // how many in all; 0 | 1, the order of tiles (run_band_block)
  // with MOMENTS 1 (2, moment_parts, GN), (moment_parts,): a part a block, of those that share output channels; with CUT 1 a
  // group and tile of images
  float *moments, *moment_counts;
  int moment_parts, columns;  // of the map of C
};
