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
// K), TRANSPOSE_B (1: B is a filter (K, GN) that stays, and the consumers transpose it on its way to shared memory),
// STATISTICS (1: also the channel statistics of C), LAST_STEPS (1 to 4: the wgmma instructions that the last BK of K
// needs), RAGGED (1: GN is no multiple of 8), and MATH:
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
#include "conv2d/sm90/statistics.cuh"
#include "conv2d/sm90/products.cuh"
#include "conv2d/sm90/split_k.cuh"
#include "conv2d/sm90/tasks.cuh"
#include "conv2d/sm90/transpose.cuh"
#include "conv2d/sm90/epilogue.cuh"

// One thread fills the pipelines: for each BK of K it loads the input-row tile, then B tap by tap. With KEEP_B it loads
// B for the first task of the block alone.
__device__ __forceinline__ void produce(const GemmProblem& p, const Task& task, bool first, const PipelineA& As,
                                        const PipelineB& Bs, StateA& a, StateB& b) {
  const TileTaps& taps = task.taps;
  each_input_tile(taps, task.work, p.K, [&](int row, int c, int from, int to) {
    const int r = staggered_row(taps, row);
    const int tensor_map = taps.tensor_map + divide(taps.residue + c, taps.stride).remainder;
    const int x = floor_divide(taps.column + c * taps.column_distance, taps.stride).quotient;
    // The number of a tensor map is a residue modulo sw, of fw for ConvV2 and of the output pixel for KS-deconv. The
    // box of a tensor map has the halo of the taps of its residue, so the boxes of the last residues may be narrower.
    const int taps_of_residue = split_size(tensor_map, p.FW, p.sw);
    const int pixels = HAS_HALO ? TILE_OW + (taps_of_residue - 1) * taps.column_distance : TILE_OW;
    const int count = taps.taps(c), input_row = taps.first_row + taps.row(r);
    const int first_tap = taps.first_tap + taps.tap(r, taps.taps_per_row) + c * taps.taps_per_column;
    for (int k = from; k < to; k += BK, a.advance()) {
      const uint32_t bytes = A_BOXES * pixels * IMAGES * ROW_BYTES + (PAIRED ? B_BYTES : 0);
      const uint32_t input_tile = As.producer_acquire(a, bytes);
      const uint32_t a_full = As.full_barrier(a.stage());
#pragma unroll
      for (int box = 0; box < A_BOXES; box++)
        tma_load(input_tile + box * A_BOX, p.A + tensor_map, a_full, k + box * 32, task.n0, x, input_row);
      const bool b_is_there = TRANSPOSE_B || (KEEP_B && !first);
      for (int t = 0; t < (b_is_there ? 0 : count); t++) {
        const int tap = first_tap + t * taps.stride * taps.taps_per_column;
        const uint32_t b_tile = PAIRED ? input_tile + A_BYTES : Bs.producer_acquire(b, B_BYTES);
        const uint32_t b_full = PAIRED ? a_full : Bs.full_barrier(b.stage());
        if (B_MN) {
#pragma unroll
          for (int j = 0; j < BN; j += 64) tma_load(b_tile + j * ROW_BYTES, p.B, b_full, task.j0 + j, tap, k, 0);
        } else {
          tma_load(b_tile, p.B, b_full, k, tap, task.j0, 0);
        }
        b.advance();
      }
    }
  });
}

constexpr bool STREAMS_B = !PAIRED && !KEEP_B;  // stages of B are released for the next taps

// Computes the sums of a work tile: all its taps and its part of K.
__device__ __forceinline__ void consume(const GemmProblem& p, const TileTaps& taps, const WorkTile& work,
                                        const PipelineA& As, const PipelineB& Bs, float (&sum)[MI][R], StateA& a,
                                        StateB& b) {
  const uint32_t first_row = threadIdx.x / GROUP_THREADS * MI * 64;
  const float scale = IS_FP16 ? half_scale(*p.absmax_a) : 1.f;
  bool begun = false;  // the products of the tap before are under way
  each_input_tile(taps, work, p.K, [&](int, int c, int from, int to) {
    const int count = taps.taps(c);
    for (int k = from; k < to; k += BK, a.advance()) {
      const uint32_t input_tile = As.consumer_wait(a);
      for (int t = 0; t < count; t++) {
        const uint32_t a_rows = input_tile + (t * taps.column_distance * IMAGES + first_row) * ROW_BYTES,
                       b_tile = PAIRED        ? input_tile + A_BYTES
                                : TRANSPOSE_B ? Bs.tile(b.stage())
                                              : Bs.consumer_wait(b);
        if (IS_FP16) {
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
            start_products<LAST_INSTRUCTIONS>(sum, a_rows, b_tile);
          else
            start_products<INSTRUCTIONS>(sum, a_rows, b_tile);
          wgmma_wait<1>();  // the products of the tap before are done
          if (begun) {
            if (STREAMS_B) Bs.consumer_release(b.stage_before());
            // The first tap of an input-row tile: all products with the tile before are done.
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
  if (STREAMS_B) Bs.consumer_release(b.stage_before());
}

// The output tiles of a block: from `first` on every `distance`-th, below `end`. If a block has an SM of its own, it
// computes every gridDim.x-th tile, so that the producer loads the next tile while this one is stored. If blocks share
// an SM, the grid has one block per tile. Raster order 0: output channels fastest, then images, then the tile schedule,
// which begins with the longest work tiles. Raster order 1: output channels fastest, then the whole schedule for one
// group of IMAGES images, as its tiles share rows of A, then the next images. With KEEP_B 1, or with STATISTICS 1 and
// SPLIT_K 0, the grid is a multiple of the tiles of output channels, so that a block keeps to its channels.
template <class Taps>
struct OutputTiles {
  const GemmProblem& p;
  const WorkTile* schedule;
  const Taps& taps_of;   // taps_of(output_pixel, taps, to) tells the taps and the output pixels of a tile
  int tiles_j, tiles_n;  // the tiles of output channels, and those of images
  bool one_work_tile;
  int end, first, distance;

  __device__ __forceinline__ OutputTiles(const GemmProblem& p, const WorkTile* schedule, const Taps& taps_of)
      : p(p),
        schedule(schedule),
        taps_of(taps_of),
        tiles_j((p.GN + BN - 1) / BN),
        tiles_n((p.N + IMAGES - 1) / IMAGES),
        one_work_tile(p.num_work_tiles == 1),
        end(p.num_work_tiles * tiles_n * tiles_j),
        first(blockIdx.x),
        distance(PERSISTENT ? gridDim.x : end) {}

  // Works out the task of `tile`. `anew`: `task` was never filled. Otherwise `task` holds an earlier task of the block,
  // and if the schedule has only one work tile, then only n0 and j0 change. It waits for nobody.
  __device__ __forceinline__ void work_out(int tile, bool anew, Task& task) const {
    const auto [i, j] = divide(tile, tiles_j);
    // The slower and the faster of the schedule and the images. With one work tile there are only images.
    const auto [slower, faster] =
        one_work_tile ? Division{0, i} : divide(i, p.raster_order ? p.num_work_tiles : tiles_n);
    task.n0 = (p.raster_order && !one_work_tile ? slower : faster) * IMAGES, task.j0 = j * BN;
    if (one_work_tile && !anew) return;
    // The only work tile begins with output pixel 0, and its K is not split.
    task.work = one_work_tile ? WorkTile{0, 0, 1, 0} : schedule[p.raster_order ? faster : slower];
    taps_of(task.work.output_pixel, task.taps, task.to);
  }
};

// Producer: one thread loads the operands of all tiles of the block. In a persistent block it works its tasks out
// itself and so never waits for the planner; otherwise it reads the only task in slots[0]. It waits for consumers to
// empty a stage (`producer_acquire`); consumers wait for the bytes that it announces.
template <class Taps>
__device__ __forceinline__ void run_producer(const OutputTiles<Taps>& tiles, const Task* slots, const PipelineA& As,
                                             const PipelineB& Bs, StateA a, StateB b) {
  Task task;
  for (int tile = tiles.first; tile < tiles.end; tile += tiles.distance) {
    if (PERSISTENT)
      tiles.work_out(tile, tile == tiles.first, task);
    else
      task = slots[0];
    if (KEEP_B) b = {};  // only the first task loads B, from the first stage on
    produce(tiles.p, task, tile == tiles.first, As, Bs, a, b);
  }
}

// Planner: one thread works out the tasks ahead of the consumers and puts them into the ring of slots. It waits until
// all consumer warps have read the task that was in a slot before (`acquire`); consumers wait for what it puts there
// (`publish`).
template <class Taps>
__device__ __forceinline__ void run_planner(const OutputTiles<Taps>& tiles, const Tasks& tasks, Tasks::State state) {
  for (int tile = tiles.first; tile < tiles.end; tile += tiles.distance, state.advance()) {
    Task& task = tasks.acquire(state);
    tiles.work_out(tile, tile < tiles.first + Tasks::SLOTS * tiles.distance, task);
    tasks.publish(state);
  }
}

// Consumer: all threads of the consumer warpgroups compute, finish and store the tiles of the block. They wait for the
// planner's task (`wait`) and then for each stage of the producer (`consumer_wait`). They release a stage when its
// products are done, which the producer waits for, and a task when the tile is stored, which the planner waits for.
// With SPLIT_K the block that is last at a tile also waits for the sums of the other blocks (`fix_up`). `step` changes
// the sums before they are stored.
template <class Taps, class Step>
__device__ __forceinline__ void run_consumer(const OutputTiles<Taps>& tiles, const Task* slots, const Tasks& tasks,
                                             const PipelineA& As, const PipelineB& Bs, StateA a, StateB b,
                                             Tasks::State state, Step step) {
  ALPHA_DYNAMIC_SHARED(unsigned char, smem);
  __shared__ TileStatistics statistics;
  __shared__ typename Step::Shared step_shared;
  const GemmProblem& p = tiles.p;
  const int tiles_j = tiles.tiles_j, tiles_n = tiles.tiles_n;
  unsigned char* base = smem - shared_address(smem);  // base + a shared address is a pointer
  if (TRANSPOSE_B) transpose_filter(p, Bs, base, tiles.first % tiles_j * BN);
  int rows = 0;  // the number of rows that have been added to the statistics, or to the sums of the step
  for (int tile = tiles.first; tile < tiles.end; tile += tiles.distance, state.advance()) {
    float sum[MI][R] = {};
    const Task& task = PERSISTENT ? tasks.wait(state) : slots[0];
    if (KEEP_B) b = {};  // B was filled once, so the first phase of its full barriers stays complete
    auto offset_of = [&p](int row, int n0, int j0, const OutputPixels& to) -> long {  // of a row in C; -1: outside
      const int n = n0 + row % IMAGES, pixel = row / IMAGES;
      if (n >= p.N || pixel >= to.count) return -1;
      return ((long)n * p.output_pixels + to.first + pixel * to.distance) * p.GN + j0;
    };
    typename Step::Ahead ahead;
    if constexpr (Step::ACTIVE)
      step.begin(ahead, p.GN - task.j0,
                 [&, n0 = task.n0, j0 = task.j0, to = task.to](int row) { return offset_of(row, n0, j0, to); });
    consume(p, TileTaps(task.taps), WorkTile(task.work), As, Bs, sum, a, b);
    // The task is read once more, so that not all of it stays in registers during the products.
    const WorkTile work = task.work;
    const OutputPixels to = task.to;
    const int n0 = task.n0, j0 = task.j0;
    if (!SPLIT_K || work.num_splits == 1 || fix_up(sum, p, work, n0 / IMAGES * tiles_j + j0 / BN, tiles_n * tiles_j)) {
      auto place_of = [&, n0, j0, to](int row) { return offset_of(row, n0, j0, to); };
      if (Step::ACTIVE) step(step_shared, ahead, sum, p, j0, rows == 0, place_of);
#pragma unroll
      for (int m = 0; m < MI; m++)
        store_epilogue<!Step::ACTIVE>(sum[m], p, j0, [&](int row) -> Output* {
          const long place = place_of(row + (hide_from_optimizer(threadIdx.x) / GROUP_THREADS * MI + m) * 64);
          return place < 0 ? nullptr : p.C + place;
        });
      if (STATISTICS) add_statistics(statistics, sum, rows == 0, [&](int row) { return place_of(row) >= 0; });
      if (STATISTICS || Step::SUMS) {
        rows += min(IMAGES, p.N - n0) * to.count;
        // Which block does the fix-up of a tile differs from run to run. So each tile writes a part of its own, and the
        // statistics do not depend on the order of the blocks.
        if (SPLIT_K) {
          const int z = tile_of_image(p, to) * tiles_n + n0 / IMAGES;
          if (STATISTICS) write_statistics(statistics, p, j0, z, rows);
          if (Step::SUMS) step.write_sums(step_shared, p, j0, z);
          rows = 0;
        }
      }
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) tasks.release(state);
  }
  const int j0 = blockIdx.x % tiles_j * BN, z = blockIdx.x / tiles_j;
  if (STATISTICS && !SPLIT_K) write_statistics(statistics, p, j0, z, rows);
  if (Step::SUMS && !SPLIT_K) step.write_sums(step_shared, p, j0, z);
  if (Step::ACTIVE) step.end(step_shared);
}

// In place of a FirstStep (sm90/first_step.cuh): nothing happens between the products and the epilogue.
struct NoFirstStep {
  static constexpr bool ACTIVE = false, SUMS = false;
  struct Shared {};
  struct Ahead {};

  template <class... Arguments>
  __device__ __forceinline__ void operator()(const Arguments&...) const {}
  __device__ __forceinline__ void write_sums(const Shared&, const GemmProblem&, int, int) const {}
  __device__ __forceinline__ void end(const Shared&) const {}
};

// Computes all output tiles of a block: prepares barriers and shared memory, then gives each thread its role.
template <class Step, class Taps>
__device__ __forceinline__ void run_output_tiles(const GemmProblem& p, const WorkTile* schedule, Step step,
                                                 Taps taps_of) {
  constexpr int B_BARRIERS = PipelineA::BARRIERS, TASK_BARRIERS = B_BARRIERS + PipelineB::BARRIERS;
  ALPHA_DYNAMIC_SHARED(unsigned char, smem);
  if (threadIdx.x == CONSUMERS) {  // the producer, the first thread after the consumers
    tma_prefetch(p.A);
    if (!TRANSPOSE_B) tma_prefetch(p.B);
  }
  __shared__ __align__(8) uint64_t barriers[TASK_BARRIERS + Tasks::BARRIERS];
  __shared__ Task slots[Tasks::SLOTS];
  const uint32_t tiles_at = kept((shared_address(smem) + 1023) & ~1023u), barriers_at = kept(shared_address(barriers));
  const PipelineA As(tiles_at, barriers_at);
  const PipelineB Bs(tiles_at + PipelineA::SHARED, barriers_at + B_BARRIERS * 8);
  const Tasks tasks(PERSISTENT ? slots : nullptr, barriers_at + TASK_BARRIERS * 8);
  const OutputTiles<Taps> tiles(p, schedule, taps_of);
  // Every role begins at the first stage of each pipeline and at the first slot of the tasks.
  const StateA a;
  const StateB b;
  const Tasks::State state;
  if (!PERSISTENT && threadIdx.x == 0) {  // the block's only task, for all roles
    Task task;
    tiles.work_out(tiles.first, true, task);
    slots[0] = task;
  }
  __syncthreads();
  if (threadIdx.x >= CONSUMERS) {
    if (MOVE_REGISTERS) setmaxnreg_decrease<OTHER_REGISTERS>();
    const int thread = threadIdx.x - CONSUMERS;
    if (thread == 0)
      run_producer(tiles, slots, As, Bs, a, b);
    else if (PERSISTENT && thread == 32)
      run_planner(tiles, tasks, state);
    return;
  }
  if (MOVE_REGISTERS) setmaxnreg_increase<CONSUMER_REGISTERS>();
  run_consumer(tiles, slots, tasks, As, Bs, a, b, state, step);
}
