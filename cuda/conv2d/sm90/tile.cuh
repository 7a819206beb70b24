// The tile of the Hopper kernels of ConvV2 and KS-deconv: macros as constants, taps, and the problem
// (sm90/mainloop.cuh).
#pragma once
#include "common/math_mode.cuh"
#include "common/tma.cuh"
#include "conv2d/sm90/pipeline.cuh"
#include "conv2d/shape.cuh"

constexpr MathMode MATH = ALPHA_MATH;
constexpr bool IS_FP16 = in_fp16_terms(MATH);
constexpr int BM = ALPHA_BM, BN = ALPHA_BN, TERMS = terms_of(MATH), TILE_OW = ALPHA_TILE_OW, TILE_IW = ALPHA_TILE_IW;
constexpr bool HAS_HALO = TILE_IW > TILE_OW, B_MN = ALPHA_B_MN, SPLIT_K = ALPHA_SPLIT_K, STATISTICS = ALPHA_STATISTICS;
constexpr bool RAGGED = ALPHA_RAGGED, KEEP_B = ALPHA_KEEP_B, TRANSPOSE_B = ALPHA_TRANSPOSE_B;
constexpr int NDIM = ALPHA_NDIM;
using Shape = ShapeOf<NDIM>::Type;
constexpr int CONSUMER_GROUPS = BM == 64    ? 1
                                : BM == 192 ? 3
                                            : 2,
              MI = BM / (64 * CONSUMER_GROUPS), R = BN / 2, IMAGES = BM / TILE_OW;
// With one block per SM, the block computes many tiles. If it has several consumer warpgroups, the producer and the
// planner are in a warpgroup of their own, so that registers can be moved from it to them. With two blocks of 288
// threads a thread has 96 registers.
constexpr bool PERSISTENT = ALPHA_BLOCKS == 1, MOVE_REGISTERS = PERSISTENT && CONSUMER_GROUPS > 1;
constexpr int OTHER_WARPS = MOVE_REGISTERS ? 4 : PERSISTENT ? 2 : 1;  // the producer, the planner, and idle ones
constexpr int THREADS = 128 * CONSUMER_GROUPS + 32 * OTHER_WARPS;
// Registers per thread: the warpgroups share what they were launched with, 3 x 168 or 4 x 128. With three axes the
// planner and the producer need more. With split-K consumers have fewer, unless they need them for two terms, or for
// statistics of 256 columns. With other shares ptxas spills.
constexpr bool FEWER = SPLIT_K && TERMS == 1 && !(STATISTICS && BN == 256);
constexpr int LAUNCHED_REGISTERS = CONSUMER_GROUPS == 3 ? 128 : 168,
              CONSUMER_REGISTERS = CONSUMER_GROUPS == 3 ? (NDIM == 3 ? 136 : 144)
                                   : NDIM == 3          ? (BN == 192 ? 208 : 200)
                                   : FEWER              ? 208
                                                        : 216,
              OTHER_REGISTERS = (CONSUMER_GROUPS + 1) * LAUNCHED_REGISTERS - CONSUMER_GROUPS * CONSUMER_REGISTERS;
constexpr int BK = MATH == TF32 ? 32 : 64, STEPS = 4,
              LAST_STEPS = ALPHA_LAST_STEPS;  // K of a stage; its wgmma instructions, and those of the last stage
constexpr int A_BOXES = IS_FP16 ? 2 : 1, A_BOX = TILE_IW * IMAGES * 128, TERM_BYTES = BN * 128,
              B_BYTES = TERMS * TERM_BYTES;
static_assert(BM % TILE_OW == 0 && (IMAGES % 8 == 0 || !HAS_HALO),
              "taps that share a tile begin at whole groups of 8 rows");
static_assert(TILE_IW * IMAGES >= BM, "a tap reads BM rows");
static_assert(!B_MN || BN % 64 == 0, "boxes of 64 channels");
static_assert(!TRANSPOSE_B || (KEEP_B && MATH == TF32), "a filter of floats that stays");
template <MathMode>
struct OutputOf {
  using Type = float;
};
template <>
struct OutputOf<BF16> {
  using Type = uint16_t;
};
using Output = OutputOf<MATH>::Type;

// Without a halo each tap has an input-row tile of its own. The two tiles share a stage, and nobody uses PipelineB.
// With KEEP_B the stages of B hold all K of one tap and of the block's output channels, and are filled once.
constexpr bool PAIRED = !HAS_HALO && !KEEP_B;
static_assert(!KEEP_B || (!HAS_HALO && !SPLIT_K && PERSISTENT),
              "a filter that stays has one tap, and many tiles use it");
constexpr int A_BYTES = A_BOXES * A_BOX, B_STAGES = PAIRED ? 1 : ALPHA_B_STAGES;
using PipelineA = Pipeline<A_BYTES + PAIRED * B_BYTES, ALPHA_A_STAGES, CONSUMER_GROUPS>;
using PipelineB = Pipeline<B_BYTES, B_STAGES, CONSUMER_GROUPS>;
using StateA = PipelineA::State;
using StateB = PipelineB::State;

// For blocks with few registers: values derived from the result are computed after the main loop, and do not stay live
// across it.
__device__ __forceinline__ int hide_from_optimizer(int x) { return PERSISTENT ? x : int(kept(x)); }

// The filter rows of an output tile with NDIM 3. They lie in planes of `height` rows. Rows of a plane are `row_step`
// map rows apart, planes are `plane_step` map rows and `tap_plane` taps apart, and tap columns are `column_step` map
// columns apart.
struct FilterPlanes {
  int height, row_step, plane_step, tap_plane, column_step;
};

// Where the filter rows of an output tile are. With NDIM 2 there is one plane, whose rows and columns are neighbours.
template <int>
struct FilterRows {
  static constexpr int column_step = 1;

  __device__ __forceinline__ void set_planes(const FilterPlanes&) {}
  __device__ __forceinline__ int row(int r) const { return r; }
  __device__ __forceinline__ int tap(int r, int tap_row) const { return r * tap_row; }
};
template <>
struct FilterRows<3> : FilterPlanes {
  __device__ __forceinline__ void set_planes(const FilterPlanes& planes) { static_cast<FilterPlanes&>(*this) = planes; }
  __device__ __forceinline__ int row(int r) const {
    const auto [fd, fh] = divide(r, height);
    return fd * plane_step + fh * row_step;
  }
  __device__ __forceinline__ int tap(int r, int tap_row) const {
    const auto [fd, fh] = divide(r, height);
    return fd * tap_plane + fh * tap_row;
  }
};

// The taps of an output tile: `rows` x `columns`. A is read at (first_row + row(r), column + c column_step), column
// counting input columns, which may be negative; B at first_tap + tap(r, tap_row) + c tap_column. Input columns `step`
// apart are neighbours in one map of A; the map of tap column c is map + (residue + c) % step. A column_step above 1
// has step 1.
struct TileTaps : FilterRows<NDIM> {
  int rows, columns, first_row, column, first_tap, tap_row, tap_column, step, residue, map;

  __device__ __forceinline__ int input_tiles() const { return HAS_HALO ? min(step, columns) : columns; }
  // The number of taps that share the input-row tile which begins with tap column c.
  __device__ __forceinline__ int taps(int c) const { return HAS_HALO ? ceil_divide(columns - c, step) : 1; }
};

// A work tile: the output tile that begins with `output_pixel`, or with SPLIT_K 1 one of the `num_splits` splits of its
// K (the paper's G_Z, section IV.C). `workspace_slot` is the place of its first split among the splits of all tiles.
struct WorkTile {
  int output_pixel, split, num_splits, workspace_slot;
};

// Calls run(row, first, from, to) for each input-row tile of a work tile: filter row, first tap column, and its part of
// K.
template <class Run>
__device__ __forceinline__ void each_input_tile(const TileTaps& taps, const WorkTile& work, int K, Run run) {
  const int across = (K + BK - 1) / BK, all = taps.rows * taps.input_tiles() * across;
  const auto [begin, end] = split_steps(all, work.split, work.num_splits);
  int i = 0;
  for (int row = 0; row < taps.rows; row++)
    for (int first = 0; first < taps.input_tiles(); first++, i += across)
      if (!SPLIT_K)
        run(row, first, 0, K);
      else if (begin < i + across && i < end)
        run(row, first, max(begin - i, 0) * BK, min((end - i) * BK, K));
}

// Staggered row order: a tile begins with the filter row whose map row is a multiple of the number of rows. So
// neighbouring tiles, which run at the same time, read a shared row of A at the same time, and it comes from memory
// once.
__device__ __forceinline__ int staggered_row(const TileTaps& taps, int row) {
  return floor_divide(row - taps.first_row, taps.rows).remainder;
}

// The output pixels of a tile: first + i step for i < count; the others are outside of the map.
struct OutputPixels {
  int first, step, count;
};

struct GemmProblem {
  const TensorMap *A, *B;
  const unsigned *absmax_a, *absmax_b;  // fp16 terms: bits of the largest magnitude of A and of the source of B
  const float* bias;                    // (GN,) or null
  float slope;
  Output* C;
  float* workspace;  // partial sums, BM x BN for each slot and tile of images and output channels, or null
  // Two for each of these tiles, at the tile's first slot: how many splits have arrived, and how many have left their
  // sums. They are zeros before and after.
  unsigned* semaphores;
  int N, K, output_pixels, GN, FW, sw;  // output_pixels: of an image
  int num_work_tiles, raster_order;     // raster_order: 0 | 1, see OutputTiles
  // With STATISTICS 1: (2, statistics_parts, GN) and (statistics_parts,). There is one part per block among those that
  // share output channels, or with SPLIT_K 1 one per tile of output pixels and images.
  float *statistics, *statistics_counts;
  int statistics_parts, columns;  // of the map of C
  const float* filter;            // (K, GN), with TRANSPOSE_B 1; B then is not read
};
