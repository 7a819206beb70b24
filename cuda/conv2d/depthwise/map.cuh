// Depthwise convolution of rows: the results of one strip at a time, with bias and activation (strips.cuh).
#pragma once
#include "conv2d/depthwise/strips.cuh"

struct MapProblem {
  T* result;
  const T *source, *W;
  const float* bias;  // of a channel of the result, or null
  float slope;
  int height, width, channels;                                   // of the result
  int source_height, source_width, source_channels, multiplier;  // source channel = channel / multiplier
  int ph, segment_rows, strips, tasks;
};

// The filters of a block's channels, from `first` on, into shared memory, [channel][tap], where each thread finds its own.
__device__ __forceinline__ void load_filters(Channels (&w)[TAPS], const T* W, int first, int channels, float* shared) {
  const int count = min(int(blockDim.x) * V, channels - first) * TAPS, thread = threadIdx.y * blockDim.x + threadIdx.x;
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
      p.source + size_t(task.image) * p.source_height * p.source_width * p.source_channels + channel / p.multiplier;
  T* result = p.result + (size_t(task.image) * p.height * p.width + task.strip * COLUMNS) * p.channels + channel;
  Channels sum[Strip::LIVE][COLUMNS] = {};
  const Range steps = Strip::steps(task.rows, p.ph);
#pragma unroll 1
  for (int step = steps.begin; step < steps.end; step++) {
#pragma unroll
    for (int r = 0; r < Strip::SOURCE_ROWS; r++) {
      const int source_row = Strip::source_row(step, r, p.ph);
      if (unsigned(source_row) >= unsigned(p.source_height)) continue;
      const T* from = source + (long(source_row) * p.source_width + first) * p.source_channels;
      Channels x[Strip::SOURCES];
#pragma unroll
      for (int j = Edge::BEGIN; j < Edge::END; j++) x[j] = load_pack<V>(from + long(j) * p.source_channels);
      visit_live_rows<Strip>(step, r, task.rows, p.ph, [&](int live, int tap) {
        visit_columns<Strip, Edge>(
            [&](int t, int fw, int column) { add_products(sum[live][t], x[column], w[tap * FW + fw]); });
      });
    }
#pragma unroll
    for (int live = 0; live < Strip::DONE; live++) {
      const int row = Strip::row(step, live, p.ph);
      if (row < task.rows.begin || row >= task.rows.end) continue;
      T* to = result + size_t(row) * p.width * p.channels;
#pragma unroll
      for (int t = 0; t < Edge::WIDTH; t++) {
        Channels y = sum[live][t];
#pragma unroll
        for (int c = 0; c < V; c++) {
          y.v[c] += bias.v[c];
          y.v[c] = y.v[c] > 0 ? y.v[c] : p.slope * y.v[c];
        }
        store_pack(to + size_t(t) * p.channels, y);
      }
    }
#pragma unroll
    for (int live = 0; live < Strip::LIVE; live++)
#pragma unroll
      for (int t = 0; t < COLUMNS; t++)
        sum[live][t] = live + Strip::DONE < Strip::LIVE ? sum[live + Strip::DONE][t] : Channels{};
  }
}

template <class Strip>
__device__ __forceinline__ void map_rows(const MapProblem& p) {
  ALPHA_DYNAMIC_SHARED(float, filters);
  Channels w[TAPS], bias = {};
  const int per_block = blockDim.x * V, chunks = (p.channels + per_block - 1) / per_block;
  const int first = blockIdx.x % chunks * per_block, channel = first + threadIdx.x * V;
  const int task = blockIdx.x / chunks * blockDim.y + threadIdx.y;
  load_filters(w, p.W, first, p.channels, filters);
  if (channel >= p.channels || task >= p.tasks) return;
  if (p.bias != nullptr) bias = load_pack<V>(p.bias + channel);
  const StripTask own(task, p.strips, p.segment_rows, p.height);
  with_edges<Strip>(own.strip, p.strips,
                    [&](auto edges) { map_strip<Strip, decltype(edges)>(p, own, channel, w, bias); });
}
