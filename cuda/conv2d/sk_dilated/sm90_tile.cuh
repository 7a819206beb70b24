// The tile of the Hopper kernel of Sk-dilated: its macros as constants, its pipeline, the terms of floats
// (sk_dilated/sm90.cu).
#pragma once
#include "common/bf16_terms.cuh"
#include "common/fp16_terms.cuh"
#include "common/math_mode.cuh"
#include "common/tma.cuh"
#include "conv2d/sm90/pipeline.cuh"
#include "conv2d/shape.cuh"

constexpr MathMode MATH = ALPHA_MATH;
constexpr bool IS_FP16 = in_fp16_terms(MATH), IN_TERMS = in_terms(MATH), PREPARED = ALPHA_PREPARED > 0,
               BOTH = ALPHA_PREPARED == 2, CONVERTS = IN_TERMS && !PREPARED;
constexpr int BM = ALPHA_BM, BN = ALPHA_BN, TERMS = terms_of(MATH), TAPS = ALPHA_TAPS, TILE_OW = ALPHA_TILE_OW,
              TILE_IW = ALPHA_TILE_IW;
constexpr int NDIM = ALPHA_NDIM, TAP_STEP = ALPHA_DW;  // pixels from a tap to the next of the same input-row tile
using Shape = ShapeOf<NDIM>::Type;
constexpr int NUM_INPUT_TILES = ALPHA_NUM_INPUT_TILES, CONSUMER_GROUPS = 2, TRANSFORM_WARPS = ALPHA_TRANSFORM_WARPS,
              OTHER_GROUPS = (1 + TRANSFORM_WARPS) / 4, THREADS = 128 * (CONSUMER_GROUPS + OTHER_GROUPS),
              PING_PONG = 128 / BM, R = BN / 2;
constexpr int BK = 64, INSTRUCTIONS = BK / 16, IMAGES = BK / TILE_OW;  // INSTRUCTIONS: of wgmma, per step and term
constexpr int CHANNELS = MATH == BF16 || BOTH ? 64 : 32;               // of dY in 128 bytes
constexpr int A_BOX = BK * 128, A_BYTES = BM / CHANNELS * A_BOX;       // dY
// X: a term consists of BLOCKs of 64 channels of 16 bits. Floats fill two terms: channels 0 .. 31 of each 64 lie in the
// first, 32 .. 63 in the second.
constexpr int B_BOX = TILE_IW * IMAGES * 128, BLOCK = NUM_INPUT_TILES * B_BOX, BLOCKS_OF_X = (BN + 63) / 64,
              TERM_BYTES = BLOCKS_OF_X * BLOCK;
constexpr int STAGE = A_BYTES + (CONVERTS ? 2 : TERMS) * TERM_BYTES;
// Registers per thread. The warpgroups share what they were launched with, 3 x 168 or 4 x 128. Transform warps need 40,
// a producer alone 24.
constexpr int WARPGROUPS = CONSUMER_GROUPS + OTHER_GROUPS, LAUNCHED = OTHER_GROUPS == 1 ? 168 : 128,
              CONSUMER_REGISTERS = OTHER_GROUPS == 2 ? (NDIM == 3 ? 200 : 208) : (CONVERTS ? 232 : 240),
              OTHER_REGISTERS = (WARPGROUPS * LAUNCHED - CONSUMER_GROUPS * CONSUMER_REGISTERS) / OTHER_GROUPS;
static_assert(OTHER_GROUPS == 1 || BN <= 128,
              "a product of 256 columns needs more registers than a thread is launched with");
static_assert(!BOTH || (IS_FP16 && TERMS == 1), "one fp16 term of both");
static_assert(ALPHA_STAGES >= 2, "a warpgroup holds a step until its next, or the other's, has begun");
static_assert(PING_PONG == 1 || ALPHA_STAGES * STAGE >= TAPS * R * 128 * 4, "a warpgroup's sums fit the tiles");
static_assert(IMAGES % 8 == 0 || TILE_IW == TILE_OW, "taps that share a tile begin at whole groups of 8 rows");

using Tiles = Pipeline<STAGE, ALPHA_STAGES, CONSUMER_GROUPS / PING_PONG>;

// A barrier for each stage, at which the transform warps arrive when the stage's X has become terms of 16 bits.
struct Converted {
  uint32_t barriers;

  __device__ __forceinline__ uint32_t barrier(uint32_t stage) const { return barriers + stage * 8; }
};

// The terms of two scaled values: hi, and with two terms what is left of them in lo.
__device__ __forceinline__ void split(float lower, float upper, uint32_t& hi, uint32_t& lo) {
  if (MATH == BF16X3)
    split_into_bfloat16(lower, upper, hi, lo);
  else
    to_terms<TERMS>(lower, upper, hi, lo);
}
