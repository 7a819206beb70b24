// The tile of a block for groups of few channels on tensor cores, and which columns of the source its results read.
//
// Macros: MATH TF32 | BF16; IG, OG channels of a group; FH, FW, SH, SW filter and stride, PW padding of columns. Of a
// block: STRIPS of GROUPS pixel groups (strip_rows.cuh), PIECES of which are a row of the results, VECTORS of 16 bytes
// of the source's channels per pixel, STAGES steps, WN warps by channels and WM by pixels, BLOCKS per SM. Of a warp: NT
// tiles of eight channels, MT fragments of two pixel groups each.
// K_VECTORS: vectors of the source that a tile of eight channels reads (alpha/ops/conv2d/groups/small_groups_sm80.py).
#pragma once
#include <type_traits>

#include "common/ldmatrix.cuh"
#include "common/math_mode.cuh"
#include "common/mma.cuh"
#include "common/vector.cuh"
#include "conv2d/live_rows.cuh"
#include "conv2d/small_groups/strip_rows.cuh"

constexpr bool IS_BF16 = ALPHA_MATH == BF16;
constexpr int IG = ALPHA_IG, OG = ALPHA_OG, K_VECTORS = ALPHA_K_VECTORS, NT = ALPHA_NT, MT = ALPHA_MT;
constexpr int WN = ALPHA_WN, WM = ALPHA_WM, GROUPS = ALPHA_GROUPS, STRIPS = ALPHA_STRIPS, VECTORS = ALPHA_VECTORS;
constexpr int PIECES = ALPHA_PIECES, STAGES = ALPHA_STAGES, BLOCKS = ALPHA_BLOCKS, THREADS = 32 * WN * WM,
              BLOCK_CHANNELS = 8 * NT * WN;
using Element = std::conditional_t<IS_BF16, bfloat16, float>;
constexpr int CHUNK = VECTOR_BYTES / int(sizeof(Element)), SHIFTS = (FW + SW - 1) / SW;
static_assert(NT <= 2, "a warp has 8 or 16 channels");
static_assert(K_VECTORS % 2 == 0 || (IS_BF16 && K_VECTORS == 1), "a product has two vectors of K");

// Y from X: result q of a row is column q; tap fw reads column q SW - PW + fw.
struct ForwardMap : ForwardRows {
  static constexpr int RESIDUES = 1, CLASSES = SW, SLOT_STEP = SW, READS = FW, FIRST = -PW, FIRST_RESULT = 0;
  static constexpr int SOURCE_GROUP = IG, RESULT_GROUP = OG;
  // The i-th read of a pixel group: its first slot, and which tap it is.
  __host__ __device__ static constexpr int slot(int i, int class_slots) { return i % SW * class_slots + i / SW; }
  __host__ __device__ static constexpr int tap_column(int i, int) { return i; }
  __device__ static int column(int q) { return q; }
};

// dX from dY: results q are the columns q SW - PW + r, for each residue r < SW; tap r + k SW reads column q - k.
struct InputMap : InputRows {
  static constexpr int RESIDUES = SW, CLASSES = 1, SLOT_STEP = 1, READS = SHIFTS;
  static constexpr int FIRST_RESULT = PW / SW, FIRST = FIRST_RESULT - (SHIFTS - 1);
  static constexpr int SOURCE_GROUP = OG, RESULT_GROUP = IG;
  __host__ __device__ static constexpr int slot(int i, int) { return SHIFTS - 1 - i; }
  __host__ __device__ static constexpr int tap_column(int i, int residue) { return residue + i * SW; }
  __device__ static int column(int q) { return q * SW - PW; }
};

// The source's first channel, rounded down to whole vectors, that is read for eight channels of the results from
// `channel` on.
template <class Map>
__host__ __device__ constexpr int source_channel(int channel) {
  return channel / Map::RESULT_GROUP * Map::SOURCE_GROUP / CHUNK * CHUNK;
}

// True if all channels of a warp are one group, so that they share the fragments of the source.
template <class Map>
constexpr bool SHARED_SOURCE = Map::RESULT_GROUP % (8 * NT) == 0;

// The rows of the source. Columns that are equal modulo SW lie next to each other in Y's and dW's, CLASS_SLOTS of them.
constexpr int CLASS_SLOTS = PIXELS * GROUPS - 1 + SHIFTS;
template <class Map>
using SourceRows = StripRows<Element, STRIPS, Map::CLASSES * CLASS_SLOTS, Map::SLOT_STEP, CLASS_SLOTS, Map::FIRST,
                             PIXELS * GROUPS * Map::SLOT_STEP, VECTORS, THREADS>;

// The strip, and the slot in it, of the first result of a pixel group that the block has; the last one if it has not so
// many.
template <class Map>
__device__ __forceinline__ int first_slot(int pixel_group) {
  const int group = min(pixel_group, STRIPS * GROUPS - 1);
  return group / GROUPS * Map::CLASSES * CLASS_SLOTS + group % GROUPS * PIXELS;
}
