// The loop of ConvV2 and KS-deconv on Hopper: wgmma, operands brought by the copy engine, one trimmed filter a block.
//
//   C[n, position, j] = sum over the taps of the block, over k of A[n, pixel(tap), k] B[tap, j, k]
//
// A tile is 128 rows x BN output channels. Its rows are PW neighbouring positions of one map row x 128 / PW images; PW = 1 is
// the trimmed tile of the paper, PW > 1 serves small batches: its filter is the union of the positions' trimmed
// filters, and what a position has outside is filled with zeros by the copy engine.
//
// Precision: a float is a sum of PLANES half-precision planes after an exact scaling (common/half_pair.cuh). B comes
// as planes (filter_planes.cu); A comes as floats and is split in registers on its way to the tensor cores.
//   PLANES 2: hi hi + hi lo + lo hi, 22 bits, each 64 of K summed apart and promoted to a float32 sum: "float32"
//   PLANES 1: hi hi, 11 bits as TF32 has, one accumulator: "tf32"
//
// Block: two consumer warpgroups of 64 rows each, and a producer. Shared memory: 1024 + STAGES (2 128 128 + PLANES BN 128)
// bytes. Needs sm_90a, K % 4 == 0, GN % 2 == 0.
// Macros: BN 64 | 128 | 256, PLANES 1 | 2, STAGES, PW 1 | 2 | 4 | 8 | 16 | 32.
#pragma once
#include "common/half_pair.cuh"
#include "common/ldmatrix.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"

// The taps of a block: `rows` x `columns`; A is read at (row + r, column + c), B at tap + r tap_row + c. `column` counts input
// columns and may be negative.
struct BlockTaps {
  int rows, columns, row, column, tap, tap_row;
};

// Where a block's rows go: position0 + i step for its i-th position, of which `count` are inside.
struct BlockPositions {
  int first, step, count;
};

struct WgmmaProblem {
  const TensorMap *A, *B;  // A: one map for each phase of the column stride
  const unsigned* absmax;  // bits of the largest magnitudes of A and of B's source
  float* C;
  int N, K, positions, GN, column_step;  // columns of A from one position to the next
};

constexpr int BN = ALPHA_BN, PLANES = ALPHA_PLANES, STAGES = ALPHA_STAGES, PW = ALPHA_PW;
constexpr int GROUPS = 2, BM = 64 * GROUPS, IMAGES = BM / PW, BK = 64, THREADS = 128 * (GROUPS + 1), R = BN / 2;
constexpr int BOX = BM * 128, PLANE = BN * 128, STAGE = 2 * BOX + PLANES * PLANE;  // bytes
static_assert(BM % PW == 0, "a tile is whole images");
static_assert(PLANES == 1 || BN <= 128, "two accumulators of 256 columns do not fit the registers");

struct Stages {
  uint32_t tiles, full, empty;

  __device__ __forceinline__ uint32_t tile(int i) const { return tiles + i % STAGES * STAGE; }
  __device__ __forceinline__ uint32_t full_at(int i) const { return full + i % STAGES * 8; }
  __device__ __forceinline__ uint32_t empty_at(int i) const { return empty + i % STAGES * 8; }
  static __device__ __forceinline__ unsigned parity(int i) { return i / STAGES & 1; }
};

// One thread feeds the ring: for each tap and each 64 of K two boxes of A (32 floats x PW columns x images) and one of B.
__device__ __forceinline__ void produce(const WgmmaProblem& p, const BlockTaps& taps, const Stages& ring, int n0, int j0) {
  const int blocks = (p.K + BK - 1) / BK;
  int i = 0;
  for (int r = 0; r < taps.rows; r++)
    for (int c = 0; c < taps.columns; c++) {
      const int column = taps.column + c, tap = taps.tap + r * taps.tap_row + c;
      // columns of one phase are neighbours in its map: floor division, as `column` may be negative
      const int phase = (column % p.column_step + p.column_step) % p.column_step, x = (column - phase) / p.column_step;
      for (int b = 0; b < blocks; b++, i++) {
        if (i >= STAGES) mbarrier_wait(ring.empty_at(i), ring.parity(i) ^ 1);
        const uint32_t tile = ring.tile(i), full = ring.full_at(i);
        mbarrier_arrive_expect(full, STAGE);
        tma_load(tile, p.A + phase, full, b * BK, x, taps.row + r, n0);
        tma_load(tile + BOX, p.A + phase, full, b * BK + 32, x, taps.row + r, n0);
        tma_load(tile + 2 * BOX, p.B, full, b * BK, j0, tap, 0);
      }
    }
}

// The A fragment of 16 of K for a warp's 16 rows, in planes. A thread holds floats t and t + 4 of each 8 (as for tf32);
// they go where the instruction expects 2t and 2t + 1, and filter_planes.cu orders B alike.
__device__ __forceinline__ void load_a(uint32_t rows, int k, float scale, uint32_t (&hi)[4], uint32_t (&lo)[4]) {
  const int lane = threadIdx.x & 31, matrix = lane >> 3, i = lane & 7;
  const uint32_t box = rows + k / 2 * BOX + ((matrix & 1) * 8 + i) * 128;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    uint32_t v[4];
    ldmatrix_x4(v, box + (((k % 2 * 4 + half * 2 + (matrix >> 1)) ^ i) << 4));
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const float lower = __uint_as_float(v[e]) * scale, upper = __uint_as_float(v[e + 2]) * scale;
      if (PLANES == 2)
        split_pair(lower, upper, hi[half * 2 + e], lo[half * 2 + e]);
      else
        hi[half * 2 + e] = pack_half(lower, upper);
    }
  }
}

__device__ __forceinline__ void consume(const WgmmaProblem& p, int steps, const Stages& ring, float (&sum)[R]) {
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
  const float scale = half_scale(p.absmax[0]);
  float block[R];
  for (int i = 0; i < steps; i++) {
    mbarrier_wait(ring.full_at(i), ring.parity(i));
    const uint32_t rows = ring.tile(i) + (group * 64 + warp * 16) * 128, b = ring.tile(i) + 2 * BOX;
    uint32_t hi[4][4], lo[4][4];
#pragma unroll
    for (int k = 0; k < BK / 16; k++) {
      load_a(rows, k, scale, hi[k], lo[k]);  // the products of the last k are under way
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
    if (threadIdx.x % 128 == 0) mbarrier_arrive(ring.empty_at(i));
    if (PLANES == 2) {
#pragma unroll
      for (int r = 0; r < R; r++) sum[r] += block[r];
    }
  }
}

__device__ __forceinline__ void store_tile(const WgmmaProblem& p, const BlockPositions& to, int n0, int j0,
                                           const float (&sum)[R]) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const float inverse_a = inverse_scale(half_scale(p.absmax[0])), inverse_b = inverse_scale(half_scale(p.absmax[1]));
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int row = threadIdx.x / 32 * 16 + g + 8 * h, n = n0 + row / PW, position = row % PW;
    if (n >= p.N || position >= to.count) continue;
    float* c = p.C + ((long)n * p.positions + to.first + position * to.step) * p.GN;
#pragma unroll
    for (int j = 0; j < BN / 8; j++) {
      const int column = j0 + j * 8 + t * 2;
      if (column < p.GN)
        *reinterpret_cast<float2*>(c + column) =
            make_float2(sum[j * 4 + h * 2] * inverse_a * inverse_b, sum[j * 4 + h * 2 + 1] * inverse_a * inverse_b);
    }
  }
}

// Blocks in order: output channels fastest, then images, then groups of positions, those with the most taps first (`order`).
template <class Taps>
__device__ __forceinline__ void run_wgmma_block(const WgmmaProblem& p, const int* order, Taps taps_of) {
  ALPHA_DYNAMIC_SHARED(unsigned char, smem);
  __shared__ __align__(8) uint64_t barriers[2 * STAGES];
  const Stages ring = {(shared_address(smem) + 1023) & ~1023u, shared_address(barriers), shared_address(barriers + STAGES)};
  const int tiles_j = (p.GN + BN - 1) / BN, tiles_n = (p.N + IMAGES - 1) / IMAGES;
  const int j0 = blockIdx.x % tiles_j * BN, n0 = blockIdx.x / tiles_j % tiles_n * IMAGES;
  BlockTaps taps;
  BlockPositions to;
  taps_of(order[blockIdx.x / (tiles_j * tiles_n)], taps, to);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) mbarrier_init(ring.full_at(i), 1), mbarrier_init(ring.empty_at(i), GROUPS);
    mbarrier_fence_init();
  }
  __syncthreads();
  if (threadIdx.x >= GROUPS * 128) {
    setmaxnreg_decrease<40>();
    if (threadIdx.x == GROUPS * 128) produce(p, taps, ring, n0, j0);
  } else {
    setmaxnreg_increase<232>();
    float sum[R] = {};
    consume(p, taps.rows * taps.columns * ((p.K + BK - 1) / BK), ring, sum);
    store_tile(p, to, n0, j0, sum);
  }
}
