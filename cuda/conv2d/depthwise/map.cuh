// Depthwise convolution of rows: the results of one strip at a time, with bias and activation (strips.cuh).
// Macros: channels.cuh; AHEAD: how many rows of the source are loaded ahead.
#pragma once
#include "conv2d/depthwise/channels.cuh"

constexpr int AHEAD = ALPHA_AHEAD;

struct MapProblem {
  T* result;
  const T *source, *W;
  const float* bias;  // of a channel of the result, or null
  float slope;
  int height, width, source_height, source_width;
  int ph, images, segment_rows, strips;
};

// The filters of a block's channels, from `first` on, into shared memory, [channel][tap], where each thread finds its
// own.
__device__ __forceinline__ void load_filters(Channels (&w)[TAPS], const T* W, int first, float* shared) {
  const int count = min(int(blockDim.x) * V, CHANNELS - first) * TAPS, thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (int i = thread; i < count; i += blockDim.x * blockDim.y)
    shared[i] = load_pack<1>(W + size_t(first) * TAPS + i).v[0];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < TAPS; i++)
#pragma unroll
    for (int c = 0; c < V; c++) w[i].v[c] = shared[(threadIdx.x * V + c) * TAPS + i];
}

template <class Strip, class Edge>
__device__ __forceinline__ void map_strip(const MapProblem& p, const StripTask& task, int channel,
                                          const Channels (&w)[TAPS], const Channels& bias) {
  const int first = task.strip * Strip::STEP + Strip::FIRST;  // column of the source; it may be outside
  const T* source =
      p.source + size_t(task.image) * p.source_height * p.source_width * SOURCE_CHANNELS + channel / MULTIPLIER;
  T* result = p.result + (size_t(task.image) * p.height * p.width + task.strip * COLUMNS) * CHANNELS + channel;
  Channels sum[Strip::LIVE][COLUMNS] = {};
  const Range steps = Strip::steps(task.rows, p.ph);
  const int height = task.rows.size();
  // the rows ahead are loaded while the ones before are multiplied: a thread always has loads under way
  SourceRow<Strip, Edge> ahead[AHEAD];
  const int first_row = Strip::source_row(steps.begin, 0, p.ph),
            end_row = first_row + steps.size() * Strip::SOURCE_ROWS;
  auto load = [&](SourceRow<Strip, Edge>& to, int row) {
    to.load(source, row < end_row ? row : -1, p.source_height, p.source_width, first);
  };
#pragma unroll
  for (int i = 0; i < AHEAD; i++) load(ahead[i], first_row + i);
  // So many steps that each row has its place among those ahead at compile time. A row in a register that is copied
  // would be waited for.
  constexpr int STEPS =
      AHEAD % Strip::SOURCE_ROWS && Strip::SOURCE_ROWS % AHEAD ? AHEAD : (AHEAD - 1) / Strip::SOURCE_ROWS + 1;
#pragma unroll 1
  for (int begin = steps.begin; begin < steps.end; begin += STEPS)
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
      const int step = begin + i;
      if (step >= steps.end) break;
#pragma unroll
      for (int r = 0; r < Strip::SOURCE_ROWS; r++) {
        SourceRow<Strip, Edge>& next = ahead[(i * Strip::SOURCE_ROWS + r) % AHEAD];
        const bool inside = next.inside, is_last = r == Strip::SOURCE_ROWS - 1;
        Channels x[Strip::SOURCES];
        next.widen(x);
        load(next, Strip::source_row(step, r, p.ph) + AHEAD);
#pragma unroll
        for (int live = 0; live < Strip::LIVE; live++) {
          const int row = Strip::row(step, live, p.ph), tap = Strip::tap(live, r);
          const bool wanted = unsigned(row - task.rows.begin) < unsigned(height);
          if (tap < FH && inside && wanted)
            visit_columns<Strip, Edge>(
                [&](int t, int fw, int column) { add_products(sum[live][t], x[column], w[tap * FW + fw]); });
          if (is_last && live < Strip::DONE && wanted)
            store_strip<Edge>(result + size_t(row) * p.width * CHANNELS, sum[live], CHANNELS, bias, p.slope);
          if (is_last && live >= Strip::DONE)  // right after the products, so that these need no registers of their own
#pragma unroll
            for (int t = 0; t < COLUMNS; t++) sum[live - Strip::DONE][t] = sum[live][t];
        }
      }
#pragma unroll
      for (int live = Strip::LIVE - Strip::DONE; live < Strip::LIVE; live++)
#pragma unroll
        for (int t = 0; t < COLUMNS; t++) sum[live][t] = {};
    }
}

template <class Strip>
__device__ __forceinline__ void map_rows(const MapProblem& p) {
  ALPHA_DYNAMIC_SHARED(float, filters);
  Channels w[TAPS], bias = {};
  const int per_block = blockDim.x * V, chunks = (CHANNELS + per_block - 1) / per_block;
  const int first = blockIdx.x % chunks * per_block, channel = first + threadIdx.x * V;
  load_filters(w, p.W, first, filters);
  const StripTask own = task_of_group(blockIdx.x / chunks, p.strips, p.segment_rows, p.height);
  if (channel >= CHANNELS || own.image >= p.images) return;
  if (p.bias != nullptr) bias = load_pack<V>(p.bias + channel);
  with_edges<Strip>(own.strip, p.strips,
                    [&](auto edges) { map_strip<Strip, decltype(edges)>(p, own, channel, w, bias); });
}
