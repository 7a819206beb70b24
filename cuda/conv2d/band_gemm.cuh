// The loop of ConvV2 and KS-deconv on Hopper: wgmma, operands brought by TMA, one trimmed filter a block.
//
//   C[n, position, j] = f(sum over the taps of the block, over k of A[n, pixel(tap), k] B[tap, j, k] + bias[j])
//   with FUSED 1   f(y) = y > 0 ? y : slope y   and a bias that may be null, else neither
//
// A tile is BM rows x BN output channels. Its rows are PW neighbouring positions of one map row x IMAGES = BM / PW
// images, images fastest. The pixels of a map row that these positions need lie side by side in shared memory, a *band* of
// IMAGES rows a pixel, and the next tap of a filter row reads the same band IMAGES rows further: with BAND > PW a
// pixel is fetched once a filter row, not once a tap. The filter is trimmed to what any of the positions needs (to what the
// position needs for PW = 1, the paper's tile); TMA gives zeros for what lies outside of the map.
//
// Macros: BM 128 | 256, BN 64 | 128 | 256, PW, BAND (pixels a band: PW, or PW + the taps of a filter row that share it - 1),
// A_STAGES, B_STAGES, BLOCKS (per SM, 1 | 2), FUSED, CUT (1: some products in segments), MOMENTS (1: of the columns
// of C, too), and OPERANDS:
//   HALVES  A floats, split in registers into scaled half-precision planes; B as PLANES 1 | 2 planes (filter_planes.cu)
//           PLANES 2: hi hi + hi lo + lo hi, 22 bits, each 64 of K summed apart and promoted: "float32"
//           PLANES 1: hi hi, 11 bits
//   TF32    A and B floats, of which the tensor cores read 11 bits
//   BF16    A, B and C bfloat16; B_MN 1: B has the output channels contiguous
// Block: two consumer warpgroups of BM / 2 rows and a producer, of which one thread works.
// Shared memory: 1024 + A_STAGES A_BOXES BAND IMAGES 128 + B_STAGES B_BYTES, with MOMENTS a static 68 BN + 1024, too.
// Needs sm_90a; rows of A, B and C of whole 16 bytes.
#pragma once
#include "conv2d/band_moments.cuh"
#include "conv2d/band_products.cuh"
#include "conv2d/band_segments.cuh"
#include "conv2d/band_store.cuh"

// One thread fills the rings: for each BK of K the band, then B tap by tap. a and b count on.
__device__ __forceinline__ void produce(const BandProblem& p, const BlockTaps& taps, const Work& work, const RingA& As,
                                        const RingB& Bs, int n0, int j0, int& a, int& b) {
  each_band(taps, work, p.K, [&](int row, int c, int from, int to) {
    const int r = rotated_row(taps, row), column = taps.column + c,
              phase = (column % taps.step + taps.step) % taps.step;
    const int x = (column - phase) / taps.step, residue = taps.map + (taps.residue + c) % taps.step;
    const int pixels = SHARED_BAND ? PW + split_size(residue, p.FW, p.sw) - 1 : PW;
    const int count = taps.taps(c), first_tap = taps.tap + r * taps.tap_row + c * taps.tap_column;
    for (int k = from; k < to; k += BK, a++) {
      const uint32_t band = As.begin(a, A_BOXES * pixels * IMAGES * 128);
#pragma unroll
      for (int box = 0; box < A_BOXES; box++)
        tma_load(band + box * A_BOX, p.A + residue, As.full_at(a), k + box * 32, n0, x, taps.row + r);
      for (int t = 0; t < count; t++, b++) {
        const int tap = first_tap + t * taps.step * taps.tap_column;
        const uint32_t tile = Bs.begin(b, B_BYTES);
        if (B_MN) {
#pragma unroll
          for (int j = 0; j < BN; j += 64) tma_load(tile + j * 128, p.B, Bs.full_at(b), j0 + j, tap, k, 0);
        } else {
          tma_load(tile, p.B, Bs.full_at(b), k, tap, j0, 0);
        }
      }
    }
  });
}

__device__ __forceinline__ void consume(const BandProblem& p, const BlockTaps& taps, const Work& work, const RingA& As,
                                        const RingB& Bs, float (&sum)[MI][R], int& a, int& b) {
  const uint32_t first_row = threadIdx.x / 128 * MI * 64;
  const float scale = OPERANDS == HALVES ? half_scale(*p.absmax_a) : 1.f;
  const int first_b = b;
  each_band(taps, work, p.K, [&](int, int c, int from, int to) {
    for (int k = from; k < to; k += BK, a++) {
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
          if (b == first_b) continue;
          Bs.release(b - 1);
          if (t == 0) As.release(a - 1);
        }
      }
      if (OPERANDS == HALVES) As.release(a);
    }
  });
  wgmma_wait<0>();
  if (OPERANDS != HALVES && b > first_b) As.release(a - 1), Bs.release(b - 1);
}

// The tiles of a block: every gridDim.x-th of all, so that the producer fetches the next while this one is stored; where
// blocks share an SM, the grid has a block for each tile. Tiles in order: output channels fastest, then images,
// then `works`, which come longest first; with `works_first` all works of some images, which share rows of A, then the next.
// With MOMENTS 1, but not CUT, the grid is a multiple of the tiles of output channels: a block keeps to its channels.
template <class Taps>
__device__ __forceinline__ void run_band_block(const BandProblem& p, const Work* works, Taps taps_of) {
  ALPHA_DYNAMIC_SHARED(unsigned char, smem);
  __shared__ __align__(8) uint64_t barriers[2 * (ALPHA_A_STAGES + ALPHA_B_STAGES)];
  const uint32_t base = (shared_address(smem) + 1023) & ~1023u;
  const RingA As(base, barriers);
  const RingB Bs(base + RingA::SHARED, barriers + 2 * ALPHA_A_STAGES);
  const int tiles_j = (p.GN + BN - 1) / BN, tiles_n = (p.N + IMAGES - 1) / IMAGES;
  int a = 0, b = 0;
  struct Task {
    Work work;
    BlockTaps taps;
    BlockPositions to;
    int n0, j0;
  };
  auto task_of = [&](int tile) {
    const int i = tile / tiles_j, fastest = p.works_first ? p.works : tiles_n, q = i / fastest, r = i - q * fastest;
    Task task;
    task.work = works[p.works_first ? r : q];
    task.n0 = (p.works_first ? q : r) * IMAGES, task.j0 = (tile - i * tiles_j) * BN;
    taps_of(task.work.position, task.taps, task.to);
    return task;
  };
  const int tiles = p.works * tiles_n * tiles_j;
  const int next = MOVE_REGISTERS ? int(gridDim.x) : tiles;
  // with 96 registers a thread none holds the task, which is the only one, through the products
  __shared__ Task only;
  if (!MOVE_REGISTERS && threadIdx.x == 0) only = task_of(blockIdx.x);
  __syncthreads();
  if (threadIdx.x >= GROUPS * 128) {
    if (MOVE_REGISTERS) setmaxnreg_decrease<24>();
    if (threadIdx.x > GROUPS * 128) return;
    for (int tile = blockIdx.x; tile < tiles; tile += next) {
      const Task task = MOVE_REGISTERS ? task_of(tile) : only;
      produce(p, task.taps, task.work, As, Bs, task.n0, task.j0, a, b);
    }
    return;
  }
  if (MOVE_REGISTERS) setmaxnreg_increase<240>();
  __shared__ BlockMoments moments;
  int rows = 0;  // whose moments are in there
  for (int tile = blockIdx.x; tile < tiles; tile += next) {
    float sum[MI][R] = {};
    const Task task = MOVE_REGISTERS ? task_of(tile) : only;
    consume(p, task.taps, task.work, As, Bs, sum, a, b);
    const auto [work, taps, to, n0, j0] = MOVE_REGISTERS ? task : only;
    if (!CUT || work.segments == 1 || join_segments(sum, p, work, n0 / IMAGES * tiles_j + j0 / BN, tiles_n * tiles_j)) {
      auto place_of = [&, n0 = n0, j0 = j0, to = to](int row) -> Output* {
        const int n = n0 + row % IMAGES, position = row / IMAGES;
        if (n >= p.N || position >= to.count) return nullptr;
        return p.C + ((long)n * p.positions + to.first + position * to.step) * p.GN + j0;
      };
#pragma unroll
      for (int m = 0; m < MI; m++)
        store_rows(sum[m], p, j0, [&](int row) { return place_of(row + (late(threadIdx.x) / 128 * MI + m) * 64); });
      if (MOMENTS) {
        add_moments(moments, sum, rows == 0, [&](int row) { return place_of(row) != nullptr; });
        rows += min(IMAGES, p.N - n0) * to.count;
        if (CUT) {  // which block finishes a tile differs from run to run
          const int row = to.first / p.columns,
                    group = row * ((p.columns + PW - 1) / PW) + (to.first - row * p.columns) / PW;
          leave_moments(moments, p, j0, group * tiles_n + n0 / IMAGES, rows);
          rows = 0;
        }
      }
    }
  }
  if (MOMENTS && !CUT) leave_moments(moments, p, blockIdx.x % tiles_j * BN, blockIdx.x / tiles_j, rows);
}
