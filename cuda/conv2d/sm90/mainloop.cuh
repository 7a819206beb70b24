// The main loop of ConvV2 and KS-deconv on Hopper: wgmma, operands loaded by TMA, one trimmed filter per output tile.
// Terms: docs/glossary.md
//
//   C[n, pixel, j] = f(sum over the taps of the tile, over k of A[n, pixel(tap), k] B[tap, j, k] + bias[j])
//   with EPILOGUE 1   f(y) = y > 0 ? y : slope y   and a bias that may be null; otherwise f is the identity, without
//                     bias
//
// An output tile is BM rows x BN output channels. Its rows are TILE_OW neighbouring output pixels of one output row x
// IMAGES = BM / TILE_OW images, images fastest. The input pixels of an input row that these output pixels need lie side
// by side in shared memory: an *input-row tile* of TILE_IW pixels, IMAGES rows each. The next tap that shares the tile
// reads it one pixel further, which is IMAGES rows, or with a dilation dw pixels. With a halo (TILE_IW > TILE_OW) a
// pixel is loaded once per filter row, not once per tap. The filter is trimmed to the taps that any of the output
// pixels needs; with TILE_OW = 1 that is the paper's tile. TMA gives zeros outside of the image.
//
// Macros: NDIM (2, or 3: depth and dilation), BM 64 | 128 | 192 | 256, BN (multiples of 32: up to 128 with BM 64 or
// 256, up to 192 with BM 192, up to 256 with BM 128), TILE_OW, TILE_IW (TILE_OW, or with a halo TILE_OW + dw (the taps
// of a filter row that share an input-row tile - 1)), A_STAGES, B_STAGES (the same number without a halo and without
// KEEP_B), BLOCKS (per SM, 1 to 3), B_MN (1: the output channels of B are contiguous, otherwise K is), EPILOGUE,
// SPLIT_K (1: K of some tiles is split), KEEP_B (1: one tap, whose B stays in shared memory: B_STAGES stages are all of
// K), PING_PONG (1: the two warpgroups compute tiles of their own, see sm90/ping_pong.cuh, and every tile has a tap;
// then B_STAGES stages are all of K of all taps), TRANSPOSE_B (1: B is a filter (K, GN) that stays, and the consumers
// transpose it on its way to shared memory), STATISTICS (1: also the channel statistics of C), MAGNITUDE
// (1: also the largest finite magnitude of C), PREPARED (1, with MATH FP16: A comes as one fp16 term), LAST_STEPS (1 to
// 4: the wgmma instructions that the last BK of K needs), RAGGED (1: GN is no multiple of 8), and MATH:
//   FP16X3  A floats, split in registers into two scaled fp16 terms; B in two fp16 terms (prepare/filter_terms.cu). The
//           products hi hi + hi lo + lo hi have 22 bits. The products of each step, 64 of K, are summed apart, and this
//           short sum is then added to the sums (promotion in docs/glossary.md): "float32"
//   FP16    one term of each, hi hi, 11 bits: "tf32"
//   TF32    A and B floats, of which the tensor cores read 11 bits
//   BF16    A, B and C bfloat16; only here B_MN may be 1
// Block: two consumer warpgroups of BM / 2 rows, with BM 64 one and with BM 192 three of 64 rows; a producer warp, of
// which one thread works, and with one block per SM a planner warp, of which one works, too.
// Shared memory: 1024 + A_STAGES A_BOXES TILE_IW IMAGES ROW_BYTES + B_STAGES B_BYTES; with STATISTICS also a static
// sizeof(TileStatistics) (sm90/statistics.cuh); always a static 768 at most, for barriers and tasks.
// Needs sm_90a; rows of A and B of whole 16 bytes; rows of C of whole 16 bytes, but with RAGGED 1.
#pragma once
#include "conv2d/sm90/products.cuh"
#include "conv2d/sm90/tasks.cuh"
#include "conv2d/sm90/turns.cuh"

// Loads the BK of K from k on of a tap of B.
__device__ __forceinline__ void load_filter(const GemmProblem& p, uint32_t b_tile, uint32_t b_full, int j0, int tap,
                                            int k) {
  if (B_MN) {
#pragma unroll
    for (int j = 0; j < BN; j += 64) tma_load(b_tile + j * ROW_BYTES, p.B, b_full, j0 + j, tap, k, 0);
  } else {
    tma_load(b_tile, p.B, b_full, k, tap, j0, 0);
  }
}

// With KEEP_B: the stage of B with the BK of K from k on of a tap, which with PING_PONG 0 is the only one.
__device__ __forceinline__ int kept_stage(const GemmProblem& p, int tap, int k) {
  return (PING_PONG ? tap * ((p.K + BK - 1) / BK) : 0) + k / BK;
}

// Fills all stages of a B that stays, for the first task of a block that has a tap.
__device__ __forceinline__ void load_kept(const GemmProblem& p, const PipelineB& Bs, const Task& task) {
  const int steps = (p.K + BK - 1) / BK;
#pragma unroll 1
  for (int stage = 0; stage < B_STAGES; stage++) {
    const auto [tap, step] = divide(stage, steps);
    mbarrier_arrive_expect(Bs.full_barrier(stage), B_BYTES);
    load_filter(p, Bs.tile(stage), Bs.full_barrier(stage), task.j0, PING_PONG ? tap : task.taps.first_tap, step * BK);
  }
}

// One thread fills the pipelines: for each BK of K it loads the input-row tile, then B tap by tap. With KEEP_B it
// loads B for one task of the block alone, that of `fills`.
__device__ __forceinline__ void produce(const GemmProblem& p, const Task& task, bool fills, const PipelineA& As,
                                        const PipelineB& Bs, StateA& a, StateB& b) {
  const TileTaps& taps = task.taps;
  if (fills) load_kept(p, Bs, task);
  each_input_tile(taps, task.work, p.K, [&](int row, int c, int from, int to) {
    const int r = staggered_row(taps, row);
    const int tensor_map = taps.tensor_map + divide(taps.residue + c, taps.stride).remainder;
    const int x = floor_divide(taps.column + c * taps.column_distance, taps.stride).quotient;
    // The number of a tensor map is a residue modulo sw, of fw for ConvV2 and of the output pixel for KS-deconv. The
    // box of a tensor map has the halo of the taps of its residue, so the boxes of the last residues may be narrower.
    const int taps_of_residue = split_size(tensor_map, p.FW, p.sw);
    const int pixels = HAS_HALO ? TILE_OW + (taps_of_residue - 1) * taps.column_distance : TILE_OW;
    const int count = taps.taps(c), input_row = taps.first_row + taps.row(r);
    const int first_tap = taps.first(r, c);
    for (int k = from; k < to; k += BK, a.advance()) {
      const uint32_t bytes = A_BOXES * pixels * IMAGES * ROW_BYTES + (PAIRED ? B_BYTES : 0);
      const uint32_t input_tile = As.producer_acquire(a, bytes);
      const uint32_t a_full = As.full_barrier(a.stage());
#pragma unroll
      for (int box = 0; box < A_BOXES; box++)
        tma_load(input_tile + box * A_BOX, p.A + tensor_map, a_full, k + box * 32, task.n0, x, input_row);
      for (int t = 0; t < (KEEP_B ? 0 : count); t++) {
        const int tap = first_tap + t * taps.stride * taps.taps_per_column;
        const uint32_t b_tile = PAIRED ? input_tile + A_BYTES : Bs.producer_acquire(b, B_BYTES);
        const uint32_t b_full = PAIRED ? a_full : Bs.full_barrier(b.stage());
        load_filter(p, b_tile, b_full, task.j0, tap, k);
        b.advance();
      }
    }
  });
}

constexpr bool STREAMS_B = !PAIRED && !KEEP_B;  // stages of B are released for the next taps

// Computes the sums of a work tile: all its taps and its part of K.
__device__ __forceinline__ void consume(const GemmProblem& p, const TileTaps& taps, const WorkTile& work,
                                        const PipelineA& As, const PipelineB& Bs, float (&sum)[MI][R], StateA& a,
                                        StateB& b, Turns& turns) {
  turns.wait();
  const uint32_t first_row = PING_PONG ? 0 : threadIdx.x / GROUP_THREADS * MI * 64;
  const float scale = IS_FP16 ? half_scale(*p.absmax_a) : 1.f;
  bool begun = false;  // the products of the tap before are under way
  each_input_tile(taps, work, p.K, [&](int row, int c, int from, int to) {
    const int count = taps.taps(c), first_tap = KEEP_B ? taps.first(staggered_row(taps, row), c) : 0;
    for (int k = from; k < to; k += BK, a.advance()) {
      const uint32_t input_tile = As.consumer_wait(a);
      for (int t = 0; t < count; t++) {
        const uint32_t a_rows = input_tile + (t * taps.column_distance * IMAGES + first_row) * ROW_BYTES;
        uint32_t b_tile;
        if (KEEP_B) {
          const int stage = kept_stage(p, first_tap + t * taps.stride * taps.taps_per_column, k);
          b_tile = Bs.tile(stage);
          if (!TRANSPOSE_B) mbarrier_wait(Bs.full_barrier(stage), 0);  // it is filled once
        } else {
          b_tile = PAIRED ? input_tile + A_BYTES : Bs.consumer_wait(b);
        }
        if (SPLITS_A) {  // the products of a tap are done before those of the next begin
#pragma unroll
          for (int m = 0; m < MI; m++) {
            const uint32_t group_rows = a_rows + m * 64 * ROW_BYTES;
            if (LAST_INSTRUCTIONS < INSTRUCTIONS && k + BK > p.K)
              multiply_fp16_terms<LAST_INSTRUCTIONS>(sum[m], group_rows, b_tile, scale);
            else
              multiply_fp16_terms<INSTRUCTIONS>(sum[m], group_rows, b_tile, scale);
          }
          if (STREAMS_B) Bs.consumer_release(b.stage());
        } else {
          if (LAST_INSTRUCTIONS < INSTRUCTIONS && k + BK > p.K)
            start_products<LAST_INSTRUCTIONS>(sum, a_rows, b_tile, begun);
          else
            start_products<INSTRUCTIONS>(sum, a_rows, b_tile, begun);
          wgmma_wait<1>();  // the products of the tap before are done
          if (begun) {
            if (STREAMS_B) Bs.consumer_release(b.stage_before());
            // The first tap of an input-row tile: all products with the tile before are done.
            if (t == 0) As.consumer_release(a.stage_before());
          }
          begun = true;
        }
        if (!KEEP_B) b.advance();
      }
      if (SPLITS_A) As.consumer_release(a.stage());
    }
  });
  turns.pass();
  wgmma_wait<0>();
  if (SPLITS_A || !begun) return;
  As.consumer_release(a.stage_before());
  if (STREAMS_B) Bs.consumer_release(b.stage_before());
}

// Goes past the stages of A of a work tile that another warpgroup computes.
__device__ __forceinline__ void pass_stages(const GemmProblem& p, const TileTaps& taps, const WorkTile& work,
                                            StateA& a) {
  each_input_tile(taps, work, p.K, [&](int, int, int from, int to) {
    for (int k = from; k < to; k += BK) a.advance();
  });
}
