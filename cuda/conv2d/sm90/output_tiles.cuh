// The output tiles of ConvV2 and KS-deconv on Hopper: which ones a block computes, and what its threads do
// (sm90/mainloop.cuh).
#pragma once
#include "conv2d/sm90/epilogue.cuh"
#include "conv2d/sm90/largest.cuh"
#include "conv2d/sm90/mainloop.cuh"
#include "conv2d/sm90/ping_pong.cuh"
#include "conv2d/sm90/split_k.cuh"
#include "conv2d/sm90/statistics.cuh"
#include "conv2d/sm90/transpose.cuh"

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
  bool filled = !KEEP_B || TRANSPOSE_B;  // nothing stays, or the consumers fill it
  Task task;
  for (int tile = tiles.first; tile < tiles.end; tile += tiles.distance) {
    if (PERSISTENT)
      tiles.work_out(tile, tile == tiles.first, task);
    else
      task = slots[0];
    const bool fills = !filled && task.taps.rows > 0 && task.taps.columns > 0;
    filled = filled || fills;
    produce(tiles.p, task, fills, As, Bs, a, b);
  }
  // Of a filter of several taps the block's tiles may need a part alone, and a block may not end before its loads do.
  if (PING_PONG && filled)
    for (int stage = 0; stage < B_STAGES; stage++) mbarrier_wait(Bs.full_barrier(stage), 0);
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

// Shared memory of T, if it is needed.
struct Nothing {};
template <bool NEEDED, class T>
struct SharedOf {
  using Type = T;
};
template <class T>
struct SharedOf<false, T> {
  using Type = Nothing;
};

// True if the consumers find the largest magnitude of C; otherwise nobody does, or the step.
template <class Step>
constexpr bool FINDS_LARGEST = MAGNITUDE && !Step::ACTIVE;

// Consumer: all threads of the consumer warpgroups compute, finish and store the tiles of the block. They wait for the
// planner's task (`wait`) and then for each stage of the producer (`consumer_wait`). They release a stage when its
// products are done, which the producer waits for, and a task when the tile is stored, which the planner waits for.
// With SPLIT_K the block that is last at a tile also waits for the sums of the other blocks (`fix_up`). `step` changes
// the sums before they are stored.
template <class Taps, class Step>
__device__ __forceinline__ void run_consumer(const OutputTiles<Taps>& tiles, const Task* slots, const Tasks& tasks,
                                             const PipelineA& As, const PipelineB& Bs, StateA a, StateB b,
                                             Tasks::State state, Turns turns, Step step) {
  ALPHA_DYNAMIC_SHARED(unsigned char, smem);
  __shared__ TileStatistics statistics;
  __shared__ typename Step::Shared step_shared;
  __shared__ typename SharedOf<FINDS_LARGEST<Step>, WarpWords>::Type largest;
  const GemmProblem& p = tiles.p;
  const int tiles_j = tiles.tiles_j, tiles_n = tiles.tiles_n;
  unsigned char* base = smem - shared_address(smem);  // base + a shared address is a pointer
  if (TRANSPOSE_B) transpose_filter(p, Bs, base, tiles.first % tiles_j * BN);
  if constexpr (FINDS_LARGEST<Step>) note_largest<true>(largest, 0);
  int rows = 0;  // the number of rows that have been added to the statistics, or to the sums of the step
  for (int tile = tiles.first; tile < tiles.end; tile += tiles.distance, state.advance()) {
    float sum[MI][R] = {};
    const Task& task = PERSISTENT ? tasks.wait(state) : slots[0];
    auto offset_of = [&p](int row, int n0, int j0, const OutputPixels& to) -> long {  // of a row in C; -1: outside
      const int n = n0 + row % IMAGES, pixel = row / IMAGES;
      if (n >= p.N || pixel >= to.count) return -1;
      return ((long)n * p.output_pixels + to.first + pixel * to.distance) * p.GN + j0;
    };
    typename Step::Ahead ahead;
    if constexpr (Step::ACTIVE)
      step.begin(ahead, p.GN - task.j0,
                 [&, n0 = task.n0, j0 = task.j0, to = task.to](int row) { return offset_of(row, n0, j0, to); });
    consume(p, TileTaps(task.taps), WorkTile(task.work), As, Bs, sum, a, b, turns);
    // The task is read once more, so that not all of it stays in registers during the products.
    const WorkTile work = task.work;
    const OutputPixels to = task.to;
    const int n0 = task.n0, j0 = task.j0;
    if (!SPLIT_K || work.num_splits == 1 || fix_up(sum, p, work, n0 / IMAGES * tiles_j + j0 / BN, tiles_n * tiles_j)) {
      auto place_of = [&, n0, j0, to](int row) { return offset_of(row, n0, j0, to); };
      if (Step::ACTIVE) step(step_shared, ahead, sum, p, j0, rows == 0, place_of);
      unsigned stored = 0;
#pragma unroll
      for (int m = 0; m < MI; m++)
        stored = max(stored, store_epilogue<!Step::ACTIVE>(sum[m], p, j0, [&](int row) -> Output* {
                       const long place =
                           place_of(row + (hide_from_optimizer(threadIdx.x) / GROUP_THREADS * MI + m) * 64);
                       return place < 0 ? nullptr : p.C + place;
                     }));
      if constexpr (FINDS_LARGEST<Step>) note_largest(largest, stored);
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
  if constexpr (FINDS_LARGEST<Step>) write_consumers_largest(largest, p.magnitude, p.meeting);
}

// Consumer with PING_PONG: like run_consumer, but each of the two warpgroups computes every second tile of the block.
// Both read every task, for they go past the stages of each other's tiles.
template <class Taps, class Step>
__device__ __forceinline__ void run_ping_pong(const OutputTiles<Taps>& tiles, const Tasks& tasks, const PipelineA& As,
                                              const PipelineB& Bs, StateA a, StateB b, Tasks::State state, Turns turns,
                                              Step step) {
  static_assert(!FINDS_LARGEST<Step>, "only results of floats have a scale");
  __shared__ typename SharedOf<!Step::ACTIVE, StagedRows>::Type staged;
  __shared__ typename SharedOf<STATISTICS, ChannelSums::Shared>::Type shared;
  __shared__ typename Step::Shared step_shared;
  ALPHA_DYNAMIC_SHARED(unsigned char, smem);
  auto& step_staged = *reinterpret_cast<typename Step::Staged*>(smem + (Bs.tile(B_STAGES) - shared_address(smem)));
  const GemmProblem& p = tiles.p;
  const int j0 = blockIdx.x % tiles.tiles_j * BN, z = blockIdx.x / tiles.tiles_j;  // a block keeps to its channels
  ChannelSums statistics;
  auto release = [&]() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) tasks.release(state);
    state.advance();
  };
  int tile = tiles.first;
  auto pass_over = [&](int count) {
    for (; count > 0 && tile < tiles.end; count--, tile += tiles.distance) {
      const Task& task = tasks.wait(state);
      pass_stages(p, TileTaps(task.taps), WorkTile(task.work), a);
      release();
    }
  };
  if constexpr (Step::ACTIVE) step.describe(step_shared, p, j0);
  pass_over(threadIdx.x / GROUP_THREADS);
  for (; tile < tiles.end; pass_over(CONSUMER_GROUPS - 1)) {
    float sum[MI][R];  // a tile has at least one tap, whose products these numbers begin with
    const Task& task = tasks.wait(state);
    if constexpr (Step::ACTIVE) step.begin(step_staged, p, j0, TileRows(p, task.to, task.n0, j0));
    consume(p, TileTaps(task.taps), WorkTile(task.work), As, Bs, sum, a, b, turns);
    const TileRows rows(p, task.to, task.n0, j0);
    release();
    tile += tiles.distance;
    if constexpr (Step::ACTIVE) {
      step(step_staged, step_shared, sum, p, j0, rows);
    } else {
      const ChannelEpilogue result(p, j0);
      if constexpr (STATISTICS) statistics.add(sum, rows, result);
      store_channels(sum, staged, p, j0, rows, result.again());
    }
  }
  if constexpr (STATISTICS) statistics.write(shared, p, j0, z);
  if constexpr (Step::SUMS) step.write_sums(step_shared, p, j0, z);
  if constexpr (Step::ACTIVE) step.end(step_shared);
}

// In place of a FirstStep (sm90/first_step.cuh): nothing happens between the products and the epilogue.
struct NoFirstStep {
  static constexpr bool ACTIVE = false, SUMS = false;
  struct Shared {};
  struct Staged {};
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
  constexpr int B_BARRIERS = PipelineA::BARRIERS, TASK_BARRIERS = B_BARRIERS + PipelineB::BARRIERS,
                TURN_BARRIERS = TASK_BARRIERS + Tasks::BARRIERS;
  ALPHA_DYNAMIC_SHARED(unsigned char, smem);
  if (threadIdx.x == CONSUMERS) {  // the producer, the first thread after the consumers
    tma_prefetch(p.A);
    if (!TRANSPOSE_B) tma_prefetch(p.B);
  }
  __shared__ __align__(8) uint64_t barriers[TURN_BARRIERS + Turns::BARRIERS];
  __shared__ Task slots[Tasks::SLOTS];
  // A first step of warpgroups in turns leaves no registers for these addresses.
  auto address = [](uint32_t x) { return PING_PONG && Step::ACTIVE ? x : kept(x); };
  const uint32_t tiles_at = address((shared_address(smem) + 1023) & ~1023u),
                 barriers_at = address(shared_address(barriers));
  const PipelineA As(tiles_at, barriers_at);
  const PipelineB Bs(tiles_at + PipelineA::SHARED, barriers_at + B_BARRIERS * 8);
  const Tasks tasks(PERSISTENT ? slots : nullptr, barriers_at + TASK_BARRIERS * 8);
  const Turns turns(barriers_at + TURN_BARRIERS * 8);
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
  if constexpr (PING_PONG)
    run_ping_pong(tiles, tasks, As, Bs, a, b, state, turns, step);
  else
    run_consumer(tiles, slots, tasks, As, Bs, a, b, state, turns, step);
}
