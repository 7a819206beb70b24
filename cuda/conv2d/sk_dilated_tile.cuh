// The tile of the Hopper kernel of Sk-dilated: its macros as constants, its rings (sk_dilated_wgmma.cu).
#pragma once
#include "common/tma.cuh"
#include "conv2d/ring.cuh"
#include "conv2d/shape.cuh"

enum Operands { FLOATS, HALVES, BF16 };
constexpr Operands OPERANDS = ALPHA_OPERANDS;
constexpr int BM = ALPHA_BM, BN = ALPHA_BN, PLANES = ALPHA_PLANES, TAPS = ALPHA_TAPS, PW = ALPHA_PW, BAND = ALPHA_BAND;
constexpr int BANDS = ALPHA_BANDS, GROUPS = 2, THREADS = 128 * (GROUPS + 1), TURNS = 128 / BM, R = BN / 2;
constexpr int BK = 64, STEPS = BK / 16, IMAGES = BK / PW;
constexpr int CHANNELS = OPERANDS == BF16 ? 64 : 32;              // of dY in 128 bytes
constexpr int A_BOX = BK * 128, A_BYTES = BM / CHANNELS * A_BOX;  // dY
// X: BLOCKs of 64 channels make a plane of 16 bits. Floats fill two: channels 0 .. 31 of each 64 the first, 32 .. 63 the second.
constexpr int B_BOX = BAND * IMAGES * 128, BLOCK = BANDS * B_BOX, PLANE = BN / 64 * BLOCK;
constexpr int STAGE = A_BYTES + (OPERANDS == FLOATS ? 2 : PLANES) * PLANE;
// Splitting in two takes makers of more than 24 registers; 3 x 168 are there for the three warpgroups.
constexpr int MAKERS = 3, CONSUMER_REGISTERS = OPERANDS == FLOATS && PLANES == 2 ? 232 : 240,
              OTHER_REGISTERS = 3 * 168 - 2 * CONSUMER_REGISTERS;
static_assert(ALPHA_STAGES >= 2, "a warpgroup holds a step until its next, or the other's, has begun");
static_assert(TURNS == 1 || ALPHA_STAGES * STAGE >= TAPS * R * 128 * 4, "a warpgroup's sums fit the tiles");
static_assert(IMAGES % 8 == 0, "a band's pixels are whole groups of 8 rows");

using Tiles = Ring<STAGE, ALPHA_STAGES, GROUPS / TURNS>;

// A barrier for each stage, where the maker warps arrive: its X is planes now.
struct Made {
  uint32_t barriers;

  __device__ __forceinline__ uint32_t at(int i) const { return barriers + i % ALPHA_STAGES * 8; }
};
