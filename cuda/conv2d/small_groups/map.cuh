// Convolution with groups of few channels: the results of one strip of one row at a time (strips.cuh).
//
// A thread has four neighbouring channels of the results (a quad). Threads next to each other have the next quads, so
// that rows of pixels are read in whole lines, and the filters come from shared memory,
// [tap][source channel][result channel], with four more channels per row.
#pragma once
#include "conv2d/strips.cuh"

static_assert(V == 4, "quads of channels");
constexpr int MAX_THREADS = 128;

struct MapProblem {
  T* result;
  const T *source, *W;
  const float* bias;  // of a channel of the result, or null
  float slope;
  int height, width, channels, group;                              // of the result; channels per group
  int source_height, source_width, source_channels, source_group;  // of the source
  int ph, strips, tasks;
};

// Copies the filters of the block's channels, from `first` on, into rows of one tap and source channel.
// Forward, of W[to][tap][from]: eight result channels by four source channels per thread, so that both whole parts of
// the lines of W are read and few threads write to one bank. Input gradient, of W[from][tap][to]: neighbours stay
// neighbours.
template <class Strip>
__device__ __forceinline__ void load_filters(float* filters, const MapProblem& p, int first) {
  const int width = blockDim.x * V, row = width + V, thread = threadIdx.y * blockDim.x + threadIdx.x;
  const int threads = blockDim.x * blockDim.y, IG = p.source_group;
  if constexpr (Strip::IS_INPUT) {
    for (int i = thread; i < TAPS * IG * int(blockDim.x); i += threads) {
      const int column = i % blockDim.x * V, from = i / blockDim.x % IG, tap = i / (blockDim.x * IG);
      const int to = first + column, group = to / p.group;
      if (to >= p.channels) continue;
      const T* W = p.W + (long(group * IG + from) * TAPS + tap) * p.group + to % p.group;
      store_pack(filters + (tap * IG + from) * row + column, load_pack<V>(W));
    }
  } else {
    const int quads = IG / V;
    for (int i = thread; i < TAPS * quads * ((width + 7) / 8 * 8); i += threads) {
      const int from = i / 8 % quads * V, tap = i / (8 * quads) % TAPS, column = i / (8 * quads * TAPS) * 8 + i % 8;
      if (column >= width || first + column >= p.channels) continue;
      const Channels w = load_pack<V>(p.W + (long(first + column) * TAPS + tap) * IG + from);
#pragma unroll
      for (int k = 0; k < V; k++) filters[(tap * IG + from + k) * row + column] = w.v[k];
    }
  }
  __syncthreads();
}

template <class Strip, class Edge>
__device__ __forceinline__ void map_strip(const MapProblem& p, const StripTask& task, int channel, const float* filters,
                                          const Channels& bias) {
  const int row = task.rows.begin, first = task.strip * Strip::STEP + Strip::FIRST;
  const int filter_row = (blockDim.x + 1) * V;
  const T* source = p.source + size_t(task.image) * p.source_height * p.source_width * p.source_channels +
                    channel / p.group * p.source_group;
  Channels sum[COLUMNS] = {};
#pragma unroll 1
  for (int fh = 0; fh < FH; fh++) {
    const int source_row = Strip::source_of(row, fh, p.ph);
    if (unsigned(source_row) >= unsigned(p.source_height)) continue;
    const T* from = source + (long(source_row) * p.source_width + first) * p.source_channels;
    const float* taps = filters + fh * FW * p.source_group * filter_row + threadIdx.x * V;
#pragma unroll 1
    for (int k = 0; k < p.source_group; k += V, from += V, taps += V * filter_row) {
      Channels w[FW][V];
#pragma unroll
      for (int fw = 0; fw < FW; fw++)
#pragma unroll
        for (int i = 0; i < V; i++) w[fw][i] = load_pack<V>(taps + (fw * p.source_group + i) * filter_row);
#pragma unroll
      for (int j = Edge::BEGIN; j < Edge::END; j++) {
        const Channels x = load_pack<V>(from + long(j) * p.source_channels);
#pragma unroll
        for (int fw = 0; fw < FW; fw++)
#pragma unroll
          for (int t = 0; t < Edge::WIDTH; t++)
            if (Strip::column(t, fw) == j)
#pragma unroll
              for (int i = 0; i < V; i++)
#pragma unroll
                for (int o = 0; o < V; o++) sum[t].v[o] += x.v[i] * w[fw][i].v[o];
      }
    }
  }
  T* to = p.result + ((size_t(task.image) * p.height + row) * p.width + task.strip * COLUMNS) * p.channels + channel;
  store_strip<Edge>(to, sum, p.channels, bias, p.slope);
}

template <class Strip>
__device__ __forceinline__ void map_rows(const MapProblem& p) {
  ALPHA_DYNAMIC_SHARED(float, filters);
  const int width = blockDim.x * V, chunks = (p.channels + width - 1) / width;
  const int first = blockIdx.x % chunks * width, channel = first + threadIdx.x * V;
  load_filters<Strip>(filters, p, first);
  if (channel >= p.channels) return;
  Channels bias = {};
  if (p.bias != nullptr) bias = load_pack<V>(p.bias + channel);
  const int blocks = gridDim.x / chunks;
  for (int task = blockIdx.x / chunks * blockDim.y + threadIdx.y; task < p.tasks; task += blocks * blockDim.y) {
    const StripTask own = strip_of_row(task, p.strips, p.height);
    with_edges<Strip>(own.strip, p.strips,
                      [&](auto edges) { map_strip<Strip, decltype(edges)>(p, own, channel, filters, bias); });
  }
}
