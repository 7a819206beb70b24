// The main loop of ConvV2 and KS-deconv on Hopper: wgmma, operands loaded by TMA, one trimmed filter per output tile.
//
//   C[n, pixel, j] = f(sum over the taps of the tile, over k of A[n, pixel(tap), k] B[tap, j, k] + bias[j])
//   with EPILOGUE 1   f(y) = y > 0 ? y : slope y   and a bias that may be null; otherwise f is the identity, without bias
//
// An output tile is BM rows x BN output channels. Its rows are TILE_OW neighbouring output pixels of one map row x
// IMAGES = BM / TILE_OW images, images fastest. The input pixels of a map row that these output pixels need lie side by side in
// shared memory: an *input-row tile* of TILE_IW pixels, IMAGES rows each. The next tap of a filter row reads the same tile IMAGES
// rows further, or with a dilation dw so many pixels. With a halo (TILE_IW > TILE_OW) a pixel is loaded once per filter row, not once per tap. The filter is trimmed
// to the taps that any of the output pixels needs; with TILE_OW = 1 that is the paper's tile. TMA gives zeros outside of the map.
//
// Macros: NDIM (2, or 3: depth and dilation), BM 64 | 128 | 256, BN (multiples of 32 up to 256; up to 128 with BM 64), TILE_OW,
// TILE_IW (TILE_OW, or with a halo TILE_OW + dw (the taps of a filter row that share an input-row tile - 1)), A_STAGES, B_STAGES (the same number without a halo), BLOCKS (per SM, 1
// to 3), EPILOGUE, SPLIT_K (1: K of some tiles is split), STATISTICS (1: also the channel statistics of C), LAST_STEPS (1 to 4:
// the instructions that the last BK of K needs), RAGGED (1: GN is no multiple of 8), and MATH:
//   FP16X3  A floats, split in registers into two scaled fp16 terms; B in two fp16 terms (prepare/filter_terms.cu). The products
//           hi hi + hi lo + lo hi have 22 bits; those of each 64 of K are summed apart and promoted to float32: "float32"
//   FP16    one term of each, hi hi, 11 bits: "tf32"
//   TF32    A and B floats, of which the tensor cores read 11 bits
//   BF16    A, B and C bfloat16; with B_MN 1 the output channels of B are contiguous
// Block: two consumer warpgroups of BM / 2 rows, or with BM 64 only one, and a producer, of which one thread works.
// Shared memory: 1024 + A_STAGES A_BOXES TILE_IW IMAGES 128 + B_STAGES B_BYTES; with STATISTICS also a static 68 BN + 1024.
// Needs sm_90a; rows of A and B of whole 16 bytes; rows of C of whole 16 bytes, but with RAGGED 1.
#pragma once
#include "conv2d/sm90/statistics.cuh"
#include "conv2d/sm90/products.cuh"
#include "conv2d/sm90/split_k.cuh"
#include "conv2d/sm90/epilogue.cuh"

// One thread fills the pipelines: for each BK of K it loads the input-row tile, then B tap by tap.
__device__ __forceinline__ void produce(const GemmProblem& p, const TileTaps& taps, const WorkTile& work,
                                        const PipelineA& As, const PipelineB& Bs, int n0, int j0, PlaceA& a,
                                        PlaceB& b) {
  each_input_tile(taps, work, p.K, [&](int row, int c, int from, int to) {
    const int r = staggered_row(taps, row), residue = taps.map + divide(taps.residue + c, taps.step).remainder,
              x = floor_divide(taps.column + c * taps.column_step, taps.step).quotient;
    const int pixels = HAS_HALO ? TILE_OW + (split_size(residue, p.FW, p.sw) - 1) * taps.column_step : TILE_OW;
    const int count = taps.taps(c), map_row = taps.first_row + taps.row(r);
    const int first_tap = taps.first_tap + taps.tap(r, taps.tap_row) + c * taps.tap_column;
    for (int k = from; k < to; k += BK, a.advance()) {
      const uint32_t input_tile = As.producer_acquire(a, A_BOXES * pixels * IMAGES * 128 + PAIRED * B_BYTES);
      const uint32_t a_full = As.full_barrier(a.stage());
#pragma unroll
      for (int box = 0; box < A_BOXES; box++)
        tma_load(input_tile + box * A_BOX, p.A + residue, a_full, k + box * 32, n0, x, map_row);
      for (int t = 0; t < count; t++) {
        const int tap = first_tap + t * taps.step * taps.tap_column;
        const uint32_t tile = PAIRED ? input_tile + A_BYTES : Bs.producer_acquire(b, B_BYTES);
        const uint32_t b_full = PAIRED ? a_full : Bs.full_barrier(b.stage());
        if (B_MN) {
#pragma unroll
          for (int j = 0; j < BN; j += 64) tma_load(tile + j * 128, p.B, b_full, j0 + j, tap, k, 0);
        } else {
          tma_load(tile, p.B, b_full, k, tap, j0, 0);
        }
        b.advance();
      }
    }
  });
}

// Computes the sums of a work tile: all its taps and its part of K.
__device__ __forceinline__ void consume(const GemmProblem& p, const TileTaps& taps, const WorkTile& work,
                                        const PipelineA& As, const PipelineB& Bs, float (&sum)[MI][R], PlaceA& a,
                                        PlaceB& b) {
  const uint32_t first_row = threadIdx.x / 128 * MI * 64;
  const float scale = IS_FP16 ? half_scale(*p.absmax_a) : 1.f;
  bool begun = false;  // the products of the tap before are under way
  each_input_tile(taps, work, p.K, [&](int, int c, int from, int to) {
    const int count = taps.taps(c);
    for (int k = from; k < to; k += BK, a.advance()) {
      const uint32_t input_tile = As.consumer_wait(a);
      for (int t = 0; t < count; t++) {
        const uint32_t rows = input_tile + (t * taps.column_step * IMAGES + first_row) * 128,
                       tile = PAIRED ? input_tile + A_BYTES : Bs.consumer_wait(b);
        if (IS_FP16) {
#pragma unroll
          for (int m = 0; m < MI; m++) {
            const uint32_t a_rows = rows + m * 64 * 128;
            if (LAST_STEPS < STEPS && k + BK > p.K)
              multiply_fp16_terms<LAST_STEPS>(sum[m], a_rows, tile, scale);
            else
              multiply_fp16_terms<STEPS>(sum[m], a_rows, tile, scale);
          }
          if (!PAIRED) Bs.consumer_release(b.stage());
        } else {
          if (LAST_STEPS < STEPS && k + BK > p.K)
            start_products<LAST_STEPS>(sum, rows, tile);
          else
            start_products<STEPS>(sum, rows, tile);
          wgmma_wait<1>();  // the products of the tap before are done
          if (begun) {
            if (!PAIRED) Bs.consumer_release(b.stage_before());
            if (t == 0) As.consumer_release(a.stage_before());
          }
          begun = true;
        }
        b.advance();
      }
      if (IS_FP16) As.consumer_release(a.stage());
    }
  });
  wgmma_wait<0>();
  if (IS_FP16 || !begun) return;
  As.consumer_release(a.stage_before());
  if (!PAIRED) Bs.consumer_release(b.stage_before());
}

// The output tiles of a block: every gridDim.x-th tile, so that the producer loads the next tile while this one is stored. If
// blocks share an SM, the grid has one block per tile. Raster order 0: output channels fastest, then images, then the tile
// schedule, which begins with the longest work tiles. Raster order 1: output channels, then the whole schedule for some images,
// which share rows of A, then the next images. With STATISTICS 1 and SPLIT_K 0 the grid is a multiple of the tiles of output
// channels, so that a block keeps to its channels.
template <class Taps>
__device__ __forceinline__ void run_output_tiles(const GemmProblem& p, const WorkTile* schedule, Taps taps_of) {
  ALPHA_DYNAMIC_SHARED(unsigned char, smem);
  if (threadIdx.x == CONSUMER_GROUPS * 128) tma_prefetch(p.A), tma_prefetch(p.B);
  __shared__ __align__(8) uint64_t barriers[PipelineA::BARRIERS + PipelineB::BARRIERS];
  const uint32_t tiles_at = kept((shared_address(smem) + 1023) & ~1023u), barriers_at = kept(shared_address(barriers));
  const PipelineA As(tiles_at, barriers_at);
  const PipelineB Bs(tiles_at + PipelineA::SHARED, barriers_at + PipelineA::BARRIERS * 8);
  const int tiles_j = (p.GN + BN - 1) / BN, tiles_n = (p.N + IMAGES - 1) / IMAGES;
  PlaceA a;
  PlaceB b;
  struct Task {
    WorkTile work;
    TileTaps taps;
    OutputPixels to;
    int n0, j0;
  };
  auto task_of = [&](int tile) {
    const auto [i, j] = divide(tile, tiles_j);
    const auto [q, r] = divide(i, p.raster_order ? p.num_work_tiles : tiles_n);
    Task task;
    task.work = p.num_work_tiles == 1 ? WorkTile{0, 0, 1, 0} : schedule[p.raster_order ? r : q];
    task.n0 = (p.raster_order ? q : r) * IMAGES, task.j0 = j * BN;
    taps_of(task.work.output_pixel, task.taps, task.to);
    return task;
  };
  const int tiles = p.num_work_tiles * tiles_n * tiles_j;
  const int next = PERSISTENT ? int(gridDim.x) : tiles;
  // With few registers per thread the task cannot stay in registers during the products. There is only one task then.
  __shared__ Task only;
  if (!PERSISTENT && threadIdx.x == 0) only = task_of(blockIdx.x);
  __syncthreads();
  if (threadIdx.x >= CONSUMER_GROUPS * 128) {
    if (MOVE_REGISTERS) setmaxnreg_decrease<24>();
    if (threadIdx.x > CONSUMER_GROUPS * 128) return;
    for (int tile = blockIdx.x; tile < tiles; tile += next) {
      const Task task = PERSISTENT ? task_of(tile) : only;
      produce(p, task.taps, task.work, As, Bs, task.n0, task.j0, a, b);
    }
    return;
  }
  if (MOVE_REGISTERS) setmaxnreg_increase<240>();
  __shared__ TileStatistics statistics;
  int rows = 0;  // the number of rows that have been added to it
  for (int tile = blockIdx.x; tile < tiles; tile += next) {
    float sum[MI][R] = {};
    const Task task = PERSISTENT ? task_of(tile) : only;
    consume(p, task.taps, task.work, As, Bs, sum, a, b);
    // with split-K the task is computed anew, since not all of it would stay in registers during the products
    const auto [work, taps, to, n0, j0] = SPLIT_K ? task_of(kept(tile)) : PERSISTENT ? task : only;
    if (!SPLIT_K || work.num_splits == 1 || fix_up(sum, p, work, n0 / IMAGES * tiles_j + j0 / BN, tiles_n * tiles_j)) {
      auto address_of = [&, n0 = n0, j0 = j0, to = to](int row) -> Output* {
        const int n = n0 + row % IMAGES, pixel = row / IMAGES;
        if (n >= p.N || pixel >= to.count) return nullptr;
        return p.C + ((long)n * p.output_pixels + to.first + pixel * to.step) * p.GN + j0;
      };
#pragma unroll
      for (int m = 0; m < MI; m++)
        store_epilogue(sum[m], p, j0, [&](int row) {
          return address_of(row + (hide_from_optimizer(threadIdx.x) / 128 * MI + m) * 64);
        });
      if (STATISTICS) {
        add_statistics(statistics, sum, rows == 0, [&](int row) { return address_of(row) != nullptr; });
        rows += min(IMAGES, p.N - n0) * to.count;
        if (SPLIT_K) {  // which block does the fix-up of a tile differs from run to run
          const int row = to.first / p.columns,
                    tile = row * ((p.columns + TILE_OW - 1) / TILE_OW) + (to.first - row * p.columns) / TILE_OW;
          write_statistics(statistics, p, j0, tile * tiles_n + n0 / IMAGES, rows);
          rows = 0;
        }
      }
    }
  }
  if (STATISTICS && !SPLIT_K) write_statistics(statistics, p, blockIdx.x % tiles_j * BN, blockIdx.x / tiles_j, rows);
}
