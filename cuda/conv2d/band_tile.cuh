// The tile of the Hopper kernels of ConvV2 and KS-deconv: its macros as constants, its taps, its problem (band_gemm.cuh).
#pragma once
#include "common/tma.cuh"
#include "conv2d/ring.cuh"
#include "conv2d/shape.cuh"

enum Operands { HALVES, TF32, BF16 };
constexpr Operands OPERANDS = ALPHA_OPERANDS;
constexpr int BM = ALPHA_BM, BN = ALPHA_BN, PLANES = ALPHA_PLANES, PW = ALPHA_PW, BAND = ALPHA_BAND;
constexpr bool SHARED_BAND = BAND > PW, B_MN = ALPHA_B_MN;
constexpr int GROUPS = 2, MI = BM / (64 * GROUPS), R = BN / 2, IMAGES = BM / PW;
// One block a multiprocessor has a warpgroup for a producer, so that registers can be moved from it to the consumers; of two
// blocks each has a warp, and 96 registers a thread.
constexpr bool MOVE_REGISTERS = ALPHA_BLOCKS == 1;
constexpr int THREADS = 128 * GROUPS + (MOVE_REGISTERS ? 128 : 32);
constexpr int BK = OPERANDS == TF32 ? 32 : 64, STEPS = OPERANDS == TF32 ? 4 : BK / 16;  // of K a tile, products for it
constexpr int A_BOXES = OPERANDS == HALVES ? 2 : 1, A_BOX = BAND * IMAGES * 128, PLANE = BN * 128, B_BYTES = PLANES * PLANE;
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

// The taps of a block: `rows` x `columns`. A is read at (row + r, column + c), column counting input columns, which may be
// negative; B at tap + r tap_row + c tap_column. Input columns `step` apart are neighbours in one map of A;
// the map of tap column c is map + (residue + c) % step.
struct BlockTaps {
  int rows, columns, row, column, tap, tap_row, tap_column, step, residue, map;

  __device__ __forceinline__ int bands() const { return SHARED_BAND ? min(step, columns) : columns; }
  // Of the band that begins with tap column c.
  __device__ __forceinline__ int taps(int c) const { return SHARED_BAND ? (columns - c + step - 1) / step : 1; }
};

// Where a block's rows go: first + i step for its i-th position, of which `count` are inside.
struct BlockPositions {
  int first, step, count;
};

struct BandProblem {
  const TensorMap *A, *B;
  const unsigned* absmax;  // HALVES: bits of the largest magnitudes of A and of B's source
  const float* bias;       // (GN,) or null
  float slope;
  Output* C;
  int N, K, positions, GN, FW, sw;
};
