// The tile of the Hopper kernels of ConvV2 and KS-deconv: macros as constants, taps, and the problem
// (sm90/mainloop.cuh).
#pragma once
#include "common/math_mode.cuh"
#include "common/tma.cuh"
#include "conv2d/sm90/pipeline.cuh"
#include "conv2d/shape.cuh"

constexpr MathMode MATH = ALPHA_MATH;
constexpr bool IS_FP16 = in_fp16_terms(MATH), PREPARED = ALPHA_PREPARED, SPLITS_A = IS_FP16 && !PREPARED;
constexpr int BM = ALPHA_BM, BN = ALPHA_BN, TERMS = terms_of(MATH), TILE_OW = ALPHA_TILE_OW, TILE_IW = ALPHA_TILE_IW;
constexpr bool HAS_HALO = TILE_IW > TILE_OW, B_MN = ALPHA_B_MN, SPLIT_K = ALPHA_SPLIT_K, STATISTICS = ALPHA_STATISTICS;
constexpr bool MAGNITUDE = ALPHA_MAGNITUDE, RAGGED = ALPHA_RAGGED, KEEP_B = ALPHA_KEEP_B,
               TRANSPOSE_B = ALPHA_TRANSPOSE_B, PING_PONG = ALPHA_PING_PONG;
constexpr int NDIM = ALPHA_NDIM;
using Shape = ShapeOf<NDIM>::Type;
constexpr int CONSUMER_GROUPS = BM == 64    ? 1
                                : BM == 192 ? 3
                                            : 2,
              CONSUMERS = GROUP_THREADS * CONSUMER_GROUPS;  // threads
// MI: the groups of 64 rows of a consumer warpgroup; one wgmma instruction computes 64 rows. R: the sums of one such
// group that a thread holds. With PING_PONG the rows of an instruction are output channels. TILE_GROUPS: the warpgroups
// that compute a tile together. IMAGES: the images of an output tile.
constexpr int MI = PING_PONG ? BN / 64 : BM / (64 * CONSUMER_GROUPS), R = PING_PONG ? BM / 2 : BN / 2,
              TILE_GROUPS = PING_PONG ? 1 : CONSUMER_GROUPS, IMAGES = BM / TILE_OW;
// With one block per SM, the block computes many tiles. If it has several consumer warpgroups, the producer and the
// planner are in a warpgroup of their own, so that registers can be moved from it to the consumers.
constexpr bool PERSISTENT = ALPHA_BLOCKS == 1, MOVE_REGISTERS = PERSISTENT && CONSUMER_GROUPS > 1;
constexpr int OTHER_WARPS = MOVE_REGISTERS ? 4 : PERSISTENT ? 2 : 1;  // the producer, the planner, and idle ones
constexpr int THREADS = CONSUMERS + 32 * OTHER_WARPS;
// Registers per thread: the warpgroups share what they were launched with, 3 x 168 or 4 x 128. With NDIM 3 the planner
// and the producer need more, so consumers have 200, or 136 in three warpgroups. Two warpgroups of 192 columns have
// 208, because in BF16 with split-K and statistics they spill with 200. With NDIM 2 and split-K consumers have fewer,
// unless they need them for two terms, or for statistics of 256 columns. With other shares ptxas spills.
constexpr bool FEWER = SPLIT_K && TERMS == 1 && !(STATISTICS && BN == 256);
constexpr int LAUNCHED_REGISTERS = CONSUMER_GROUPS == 3 ? 128 : 168,
              CONSUMER_REGISTERS = CONSUMER_GROUPS == 3 ? (NDIM == 3 ? 136 : 144)
                                   : NDIM == 3          ? (BN == 192 ? 208 : 200)
                                   : FEWER              ? 208
                                                        : 216,
              OTHER_REGISTERS = (CONSUMER_GROUPS + 1) * LAUNCHED_REGISTERS - CONSUMER_GROUPS * CONSUMER_REGISTERS;
// BK: the part of K that a step multiplies. INSTRUCTIONS: the wgmma instructions of a step, for 64 rows and one term.
// LAST_INSTRUCTIONS: those of the last step of a tap, which has only the rest of K.
constexpr int BK = MATH == TF32 ? 32 : 64, INSTRUCTIONS = 4, LAST_INSTRUCTIONS = ALPHA_LAST_STEPS;
// A row of a tile in shared memory has 128 bytes, the length of the swizzle of TMA and wgmma: of K, or of the output
// channels of B with B_MN 1. A that is split into fp16 terms has two boxes, because it comes as floats: BK = 64 floats
// have 256 bytes.
constexpr int ROW_BYTES = 128, A_BOXES = SPLITS_A ? 2 : 1, A_BOX = TILE_IW * IMAGES * ROW_BYTES,
              TERM_BYTES = BN * ROW_BYTES, B_BYTES = TERMS * TERM_BYTES;
static_assert(BM % TILE_OW == 0 && (IMAGES % 8 == 0 || !HAS_HALO),
              "taps that share a tile begin at whole groups of 8 rows");
static_assert(TILE_IW * IMAGES >= BM, "a tap reads BM rows");
static_assert(!B_MN || BN % 64 == 0, "boxes of 64 channels");
static_assert(!PREPARED || MATH == FP16, "one fp16 term is prepared");
static_assert(!TRANSPOSE_B || (KEEP_B && MATH == TF32), "a filter of floats that stays");
static_assert(!PING_PONG || (KEEP_B && MATH == BF16 && BM == 256 && BN == 64 && ALPHA_BLOCKS == 1 && !RAGGED),
              "two warpgroups whose tiles fill their registers");
template <MathMode>
struct OutputOf {
  using Type = float;
};
template <>
struct OutputOf<BF16> {
  using Type = uint16_t;
};
using Output = OutputOf<MATH>::Type;

// PAIRED: without a halo each tap has an input-row tile of its own. The input-row tile and the tap's tile of B then
// share a stage of PipelineA, and nobody uses PipelineB. But with KEEP_B the stages of PipelineB hold all taps and all
// K, for the output channels of the block, and are filled once.
constexpr bool PAIRED = !HAS_HALO && !KEEP_B;
static_assert(!KEEP_B || (!SPLIT_K && PERSISTENT && (PING_PONG || !HAS_HALO)), "many tiles use a filter that stays");
constexpr int A_BYTES = A_BOXES * A_BOX, B_STAGES = PAIRED ? 1 : ALPHA_B_STAGES;
using PipelineA = Pipeline<A_BYTES + (PAIRED ? B_BYTES : 0), ALPHA_A_STAGES, TILE_GROUPS>;
using PipelineB = Pipeline<B_BYTES, B_STAGES, TILE_GROUPS>;
using StateA = PipelineA::State;
using StateB = PipelineB::State;

// Returns x. If blocks share an SM, a thread has few registers. Then the compiler cannot know x, so what is derived
// from it is computed after the main loop, and does not stay live across it. For example, with two blocks of 288
// threads a thread has at most 96 registers: each of the four parts of an SM has 16384 registers, and one part has five
// of the 18 warps.
__device__ __forceinline__ int hide_from_optimizer(int x) { return PERSISTENT ? x : int(kept(x)); }

// The filter rows of an output tile with NDIM 3. They lie in planes of `height` filter rows. From a filter row to the
// next one of its plane A is read `row_distance` input rows further; from a plane to the next, A is read
// `plane_distance` input rows and B `taps_per_plane` taps further. From a filter column to the next A is read
// `column_distance` input columns further.
struct FilterPlanes {
  int height, row_distance, plane_distance, taps_per_plane, column_distance;
};

// Where the filter rows of an output tile are: filter row r reads A row(r) input rows and B tap(r, taps_per_row) taps
// further than the first. With NDIM 2 there is one plane, whose rows and columns are neighbours.
template <int>
struct FilterRows {
  static constexpr int column_distance = 1;

  __device__ __forceinline__ void set_planes(const FilterPlanes&) {}
  __device__ __forceinline__ int row(int r) const { return r; }
  __device__ __forceinline__ int tap(int r, int taps_per_row) const { return r * taps_per_row; }
};
template <>
struct FilterRows<3> : FilterPlanes {
  __device__ __forceinline__ void set_planes(const FilterPlanes& planes) { static_cast<FilterPlanes&>(*this) = planes; }
  __device__ __forceinline__ int row(int r) const {
    const auto [fd, fh] = divide(r, height);
    return fd * plane_distance + fh * row_distance;
  }
  __device__ __forceinline__ int tap(int r, int taps_per_row) const {
    const auto [fd, fh] = divide(r, height);
    return fd * taps_per_plane + fh * taps_per_row;
  }
};

// The taps of an output tile: `rows` filter rows x `columns` filter columns, which trimming leaves. The tap of filter
// row r and filter column c reads
//   A in input row first_row + row(r), from input column column + c column_distance on, which may be negative
//   B at tap first_tap + tap(r, taps_per_row) + c taps_per_column
// taps_per_row and taps_per_column are the distances, in taps of B, from a filter row or column to the next; they are
// negative if the filter is read backwards. Input columns that are `stride` apart are neighbours in one tensor map of
// A. Filter column c reads the tensor map of number tensor_map + (residue + c) % stride. If column_distance is above 1,
// `stride` is 1.
// Example: ConvV2 with FW 3, stride 2 and no padding, the tile of output column 5. Its taps read input columns 10, 11
// and 12, so column is 10, stride 2 and residue 0. Taps 0 and 2 read tensor map 0 (even columns) at 5 and 6 and, with a
// halo, share an input-row tile. Tap 1 reads tensor map 1 (odd columns) at 5.
struct TileTaps : FilterRows<NDIM> {
  int rows, columns, first_row, column, first_tap, taps_per_row, taps_per_column, stride, residue, tensor_map;

  // The number of input-row tiles for a filter row. With a halo the taps that are `stride` apart share one.
  __device__ __forceinline__ int input_tiles() const { return HAS_HALO ? min(stride, columns) : columns; }
  // The tap of B of filter row r and filter column c.
  __device__ __forceinline__ int first(int r, int c) const {
    return first_tap + this->tap(r, taps_per_row) + c * taps_per_column;
  }
  // The number of taps that share the input-row tile which begins with filter column c.
  __device__ __forceinline__ int taps(int c) const { return HAS_HALO ? ceil_divide(columns - c, stride) : 1; }
};

// A work tile: the output tile that begins with `output_pixel`, or with SPLIT_K 1 one of the `num_splits` splits of its
// K (the paper's G_Z, section IV.C). `workspace_slot` is the place of its first split among the splits of all tiles.
struct WorkTile {
  int output_pixel, split, num_splits, workspace_slot;
};

// Calls run(row, first, from, to) for each input-row tile of a work tile: its filter row, the filter column of its
// first tap, and the part of K, from `from` to `to`, that the work tile multiplies there.
template <class Run>
__device__ __forceinline__ void each_input_tile(const TileTaps& taps, const WorkTile& work, int K, Run run) {
  const int steps_of_K = (K + BK - 1) / BK, all = taps.rows * taps.input_tiles() * steps_of_K;
  const auto [begin, end] = split_steps(all, work.split, work.num_splits);
  int i = 0;
  for (int row = 0; row < taps.rows; row++)
    for (int first = 0; first < taps.input_tiles(); first++, i += steps_of_K)
      if (!SPLIT_K)
        run(row, first, 0, K);
      else if (begin < i + steps_of_K && i < end)
        run(row, first, max(begin - i, 0) * BK, min((end - i) * BK, K));
}

// Staggered row order: returns the filter row that a tile reads as its `row`-th. With NDIM 2 a tile begins with the
// filter row whose input row is a multiple of the number of filter rows. So neighbouring tiles, which run at the same
// time, read a shared row of A at the same time, and it comes from memory once. With NDIM 3 the indices of the filter
// rows are staggered in the same way, but neighbouring indices need not be neighbouring rows of A.
__device__ __forceinline__ int staggered_row(const TileTaps& taps, int row) {
  return floor_divide(row - taps.first_row, taps.rows).remainder;
}

// The output pixels of a tile: first + i distance for i < count; the others are outside of the image.
struct OutputPixels {
  int first, distance, count;
};

// What the kernel computes, as a product of matrices: C (N output_pixels x GN) = A (N output_pixels x K) B (K x GN),
// added up over the taps. GN: the output channels of the product. FW, sw: the taps of a filter row, and their stride.
struct GemmProblem {
  const TensorMap *A, *B;
  const unsigned *absmax_a, *absmax_b;  // fp16 terms: bits of the largest magnitude of A and of the source of B
  const float* bias;                    // (GN,) or null
  float slope;
  Output* C;
  float* workspace;  // partial sums, BM x BN for each slot and tile of images and output channels, or null
  // Two for each (work tile, tile of images and output channels), at its first slot: how many splits have arrived, and
  // how many have left their sums. They are zeros before and after the launch.
  unsigned* semaphores;
  int N, K, output_pixels, GN, FW, sw;  // output_pixels: of an image
  int num_work_tiles, raster_order;     // raster_order: 0 | 1, see OutputTiles
  // With STATISTICS 1: (2, statistics_parts, GN) and (statistics_parts,). There is one part per block among those that
  // share output channels, or with SPLIT_K 1 one per tile of output pixels and images.
  float *statistics, *statistics_counts;
  int statistics_parts, columns;  // columns: of an image of C
  // With MAGNITUDE 1: gets the bits of the largest finite magnitude of C; the blocks meet in two words `meeting`, which
  // are 0 before and again at the end.
  unsigned *magnitude, *meeting;
  const float* filter;  // (K, GN), with TRANSPOSE_B 1; B then is not read
};
