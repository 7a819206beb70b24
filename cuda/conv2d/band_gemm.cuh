// The loop of ConvV2 and KS-deconv on Hopper: wgmma, operands brought by the copy engine, one trimmed filter a block.
//
//   C[n, position, j] = f(sum over the taps of the block, over k of A[n, pixel(tap), k] B[tap, j, k] + bias[j])
//   with FUSED 1   f(y) = y > 0 ? y : slope y   and a bias that may be null, else neither
//
// A tile is BM rows x BN output channels. Its rows are PW neighbouring positions of one map row x IMAGES = BM / PW
// images, images fastest. The pixels of a map row that these positions need lie side by side in shared memory, a *band* of
// IMAGES rows a pixel, and the next tap of a filter row reads the same band IMAGES rows further: with BAND > PW a
// pixel is fetched once a filter row, not once a tap. The filter is trimmed to what any of the positions needs (to what the
// position needs for PW = 1, the paper's tile); what lies outside the map is zeros of the copy engine.
//
// Macros: BM 128 | 256, BN 64 | 128 | 256, PW, BAND (pixels a band: PW, or PW + the taps of a filter row that share it - 1),
// A_STAGES, B_STAGES, BLOCKS (a multiprocessor, 1 | 2), FUSED, and OPERANDS:
//   HALVES  A floats, split in registers into scaled half-precision planes; B as PLANES 1 | 2 planes (filter_planes.cu)
//           PLANES 2: hi hi + hi lo + lo hi, 22 bits, each 64 of K summed apart and promoted: "float32"
//           PLANES 1: hi hi, 11 bits
//   TF32    A and B floats, of which the tensor cores read 11 bits
//   BF16    A, B and C bfloat16; B_MN 1: B has the output channels contiguous
// Block: two consumer warpgroups of BM / 2 rows and a producer, of which one thread works.
// Shared memory: 1024 + A_STAGES A_BOXES BAND IMAGES 128 + B_STAGES B_BYTES. Needs sm_90a; rows of A, B and C of whole 16 bytes.
#pragma once
#include "common/half_pair.cuh"
#include "common/ldmatrix.cuh"
#include "common/quad.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"
#include "conv2d/ring.cuh"
#include "conv2d/shape.cuh"

enum Operands { HALVES, TF32, BF16 };
constexpr Operands OPERANDS = ALPHA_OPERANDS;
constexpr int BM = ALPHA_BM, BN = ALPHA_BN, PLANES = ALPHA_PLANES, PW = ALPHA_PW, BAND = ALPHA_BAND;
constexpr bool SHARED_BAND = BAND > PW, B_MN = ALPHA_B_MN;
constexpr int GROUPS = 2, MI = BM / (64 * GROUPS), R = BN / 2, IMAGES = BM / PW;
// One block a multiprocessor has a warpgroup for a producer, so that registers can be moved from it to the consumers; of two
// blocks each has a warp, and 112 registers a thread.
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

// One thread fills the rings for a tile: for each filter row, band and BK of K the band, then B tap by tap. a and b count on.
__device__ __forceinline__ void produce(const BandProblem& p, const BlockTaps& taps, const RingA& As, const RingB& Bs, int n0,
                                        int j0, int& a, int& b) {
  for (int r = 0; r < taps.rows; r++)
    for (int c = 0; c < taps.bands(); c++) {
      const int column = taps.column + c, phase = (column % taps.step + taps.step) % taps.step;
      const int x = (column - phase) / taps.step, residue = taps.map + (taps.residue + c) % taps.step;
      const int pixels = SHARED_BAND ? PW + split_size(residue, p.FW, p.sw) - 1 : PW;
      for (int k = 0; k < p.K; k += BK, a++) {
        const uint32_t band = As.begin(a, A_BOXES * pixels * IMAGES * 128);
#pragma unroll
        for (int box = 0; box < A_BOXES; box++)
          tma_load(band + box * A_BOX, p.A + residue, As.full_at(a), k + box * 32, n0, x, taps.row + r);
        for (int t = 0; t < taps.taps(c); t++, b++) {
          const int tap = taps.tap + r * taps.tap_row + (c + t * taps.step) * taps.tap_column;
          const uint32_t tile = Bs.begin(b, B_BYTES);
          if (B_MN) {
#pragma unroll
            for (int j = 0; j < BN; j += 64) tma_load(tile + j * 128, p.B, Bs.full_at(b), j0 + j, tap, k, 0);
          } else {
            tma_load(tile, p.B, Bs.full_at(b), k, tap, j0, 0);
          }
        }
      }
    }
}

// The A fragment of 16 of K for a warp's 16 rows, in planes. A thread holds floats t and t + 4 of each 8 (as for tf32);
// they go where the instruction expects 2t and 2t + 1, and filter_planes.cu orders B alike.
__device__ __forceinline__ void load_halves(uint32_t rows, int k, float scale, uint32_t (&hi)[4], uint32_t (&lo)[4]) {
  const int lane = threadIdx.x & 31, matrix = lane >> 3, i = lane & 7;
  const uint32_t box = rows + k / 2 * A_BOX + ((matrix & 1) * 8 + i) * 128;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    uint32_t v[4];
    ldmatrix_x4(v, box + (((k % 2 * 4 + half * 2 + (matrix >> 1)) ^ i) << 4));
#pragma unroll
    for (int e = 0; e < 2; e++)
      to_planes<PLANES>(__uint_as_float(v[e]) * scale, __uint_as_float(v[e + 2]) * scale, hi[half * 2 + e], lo[half * 2 + e]);
  }
}

// One tap's products of 64 rows of a warpgroup, from the rows of A at `rows` on: done when it returns.
__device__ __forceinline__ void multiply_halves(float (&sum)[R], uint32_t rows, uint32_t b, float scale) {
  float block[R];
  uint32_t hi[STEPS][4], lo[STEPS][4];
#pragma unroll
  for (int k = 0; k < STEPS; k++) {
    load_halves(rows + threadIdx.x % 128 / 32 * 16 * 128, k, scale, hi[k], lo[k]);  // the last products are under way
    wgmma_fence();
    const uint64_t b_hi = wgmma_k_major(b + k * 32);
    if (PLANES == 2) {
      wgmma_f16<0>(block, lo[k], b_hi, k != 0);
      wgmma_f16<0>(block, hi[k], wgmma_k_major(b + PLANE + k * 32), 1);
      wgmma_f16<0>(block, hi[k], b_hi, 1);
    } else {
      wgmma_f16<0>(sum, hi[k], b_hi, 1);
    }
    wgmma_commit();
  }
  wgmma_wait<0>();
  if (PLANES == 2) {
#pragma unroll
    for (int r = 0; r < R; r++) sum[r] += block[r];
  }
}

// The same for operands that the tensor cores read from shared memory themselves; all rows of a warpgroup, under way after it.
__device__ __forceinline__ void start_products(float (&sum)[MI][R], uint32_t rows, uint32_t b) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < STEPS; k++)
#pragma unroll
    for (int m = 0; m < MI; m++) {
      const uint64_t a_tile = wgmma_k_major(rows + m * 64 * 128 + k * 32);
      if (OPERANDS == TF32)
        wgmma_tf32(sum[m], a_tile, wgmma_k_major(b + k * 32), 1);
      else
        wgmma_bf16<0, B_MN>(sum[m], a_tile, B_MN ? wgmma_mn_major(b + k * 2048, 64 * 128) : wgmma_k_major(b + k * 32), 1);
    }
  wgmma_commit();
}

__device__ __forceinline__ void consume(const BandProblem& p, const BlockTaps& taps, const RingA& As, const RingB& Bs,
                                        float (&sum)[MI][R], int& a, int& b) {
  const uint32_t first_row = threadIdx.x / 128 * MI * 64;
  const float scale = OPERANDS == HALVES ? half_scale(p.absmax[0]) : 1.f;
  const int first_a = a, first_b = b;
  for (int r = 0; r < taps.rows; r++)
    for (int c = 0; c < taps.bands(); c++)
      for (int k = 0; k < p.K; k += BK, a++) {
        const uint32_t band = As.wait(a);
        for (int t = 0; t < taps.taps(c); t++, b++) {
          const uint32_t rows = band + (t * IMAGES + first_row) * 128, tile = Bs.wait(b);
          if (OPERANDS == HALVES) {
#pragma unroll
            for (int m = 0; m < MI; m++) multiply_halves(sum[m], rows + m * 64 * 128, tile, scale);
            Bs.release(b);
          } else {
            start_products(sum, rows, tile);
            wgmma_wait<1>();  // the products of the tap before are done
            if (b > first_b) Bs.release(b - 1);
            if (t == 0 && a > first_a) As.release(a - 1);
          }
        }
        if (OPERANDS == HALVES) As.release(a);
      }
  wgmma_wait<0>();
  if (OPERANDS != HALVES && b > first_b) As.release(a - 1), Bs.release(b - 1);
}

// Adds bias, activates and stores 64 rows of a warpgroup: row_of(row) is where row begins, or null; `columns` of it are inside.
template <class RowOf>
__device__ __forceinline__ void store_rows(const float (&sum)[R], const BandProblem& p, int j0, RowOf row_of) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, columns = p.GN - j0;
  float inverse_0 = 1.f, inverse_1 = 1.f;
  if (OPERANDS == HALVES) inverse_0 = inverse_scale(half_scale(p.absmax[0])), inverse_1 = inverse_scale(half_scale(p.absmax[1]));
  auto finish = [&](float v, int column) {
    if (OPERANDS == HALVES) v = v * inverse_0 * inverse_1;
    if (!ALPHA_FUSED) return v;
    if (p.bias != nullptr && column < columns) v += p.bias[j0 + column];
    return v > 0 ? v : p.slope * v;
  };
#pragma unroll
  for (int h = 0; h < 2; h++) {
    Output* c = row_of(int(threadIdx.x % 128 / 32 * 16 + g + 8 * h));
    if constexpr (OPERANDS == BF16) {
#pragma unroll
      for (int j = 0; j < BN / 8; j += 4) {  // four neighbours' pairs of one 8 columns become one thread's
        uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int column = (j + i) * 8 + t * 2, e = (j + i) * 4 + h * 2;
          v[i] = pack_bfloat16(finish(sum[e], column), finish(sum[e + 1], column + 1));
        }
        transpose_quad(v, t);
        const int column = (j + t) * 8;
        if (c != nullptr && column < columns) *reinterpret_cast<uint4*>(c + column) = make_uint4(v[0], v[1], v[2], v[3]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < BN / 8; j++) {
        const int column = j * 8 + t * 2, e = j * 4 + h * 2;
        if (c != nullptr && column < columns)
          *reinterpret_cast<float2*>(c + column) = make_float2(finish(sum[e], column), finish(sum[e + 1], column + 1));
      }
    }
  }
}

// The tiles of a block: every gridDim.x-th of `tiles`, so that the producer fetches the next while this one is stored. Tiles in
// order: output channels fastest, then images, then groups of positions, those with the most taps first (`order`).
template <class Taps>
__device__ __forceinline__ void run_band_block(const BandProblem& p, const int* order, int tiles, Taps taps_of) {
  ALPHA_DYNAMIC_SHARED(unsigned char, smem);
  __shared__ __align__(8) uint64_t barriers[2 * (ALPHA_A_STAGES + ALPHA_B_STAGES)];
  const uint32_t base = (shared_address(smem) + 1023) & ~1023u;
  const RingA As(base, barriers);
  const RingB Bs(base + RingA::SHARED, barriers + 2 * ALPHA_A_STAGES);
  __syncthreads();
  const int tiles_j = (p.GN + BN - 1) / BN, tiles_n = (p.N + IMAGES - 1) / IMAGES;
  int a = 0, b = 0;
  auto each_tile = [&](auto work) {
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      BlockTaps taps;
      BlockPositions to;
      taps_of(order[tile / (tiles_j * tiles_n)], taps, to);
      work(taps, to, tile / tiles_j % tiles_n * IMAGES, tile % tiles_j * BN);
    }
  };
  if (threadIdx.x >= GROUPS * 128) {
    if (MOVE_REGISTERS) setmaxnreg_decrease<24>();
    if (threadIdx.x > GROUPS * 128) return;
    each_tile([&](const BlockTaps& taps, const BlockPositions&, int n0, int j0) { produce(p, taps, As, Bs, n0, j0, a, b); });
    return;
  }
  if (MOVE_REGISTERS) setmaxnreg_increase<240>();
  each_tile([&](const BlockTaps& taps, const BlockPositions& to, int n0, int j0) {
    float sum[MI][R] = {};
    consume(p, taps, As, Bs, sum, a, b);
#pragma unroll
    for (int m = 0; m < MI; m++)
      store_rows(sum[m], p, j0, [&](int row) -> Output* {
        row += (threadIdx.x / 128 * MI + m) * 64;
        const int n = n0 + row % IMAGES, position = row / IMAGES;
        if (n >= p.N || position >= to.count) return nullptr;
        return p.C + ((long)n * p.positions + to.first + position * to.step) * p.GN + j0;
      });
  });
}
