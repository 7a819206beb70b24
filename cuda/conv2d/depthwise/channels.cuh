// What all depthwise kernels share besides the strips (strips.cuh): their channels and their products.
// Macros: CHANNELS of the result (of dY for dW), so that the columns of a row are at distances known at compile time;
// MULTIPLIER: output channels per input channel.
#pragma once
#include "conv2d/strips.cuh"

constexpr int CHANNELS = ALPHA_CHANNELS, MULTIPLIER = ALPHA_MULTIPLIER, SOURCE_CHANNELS = CHANNELS / MULTIPLIER;
constexpr int MAX_THREADS = 128;

// A thread's strip of a group of strips: `group` says which strip, and the thread has the segment of its place in the
// block. All threads of a block have the same strip, so that they do not diverge; neighbouring blocks have neighbouring
// strips. The last groups have more threads than there are segments: then the image is N or more.
__device__ __forceinline__ StripTask task_of_group(int group, int strips, int segment_rows, int height) {
  const auto [segment_group, strip] = divide(group, strips);
  const int segments = ceil_divide(height, segment_rows);
  const auto [image, segment] = divide(segment_group * int(blockDim.y) + int(threadIdx.y), segments);
  return {strip, image, {segment * segment_rows, min((segment + 1) * segment_rows, height)}};
}

// A strip's columns of a row of the source, as they lie in memory until all their loads are under way.
template <class Strip, class Edge>
struct SourceRow {
  Bits<T, V> bits[Strip::SOURCES];
  bool inside;  // whether the source has the row

  // `first`: the column of the source with which the strip begins; it may be outside.
  __device__ __forceinline__ void load(const T* source, int row, int height, int width, int first) {
    inside = unsigned(row) < unsigned(height);
    const T* from = source + (long(row) * width + first) * SOURCE_CHANNELS;
    if (inside)
#pragma unroll
      for (int j = Edge::BEGIN; j < Edge::END; j++) bits[j] = load_bits<V>(from + long(j) * SOURCE_CHANNELS);
  }
  __device__ __forceinline__ void widen(Channels (&x)[Strip::SOURCES]) const {
    if (inside)
#pragma unroll
      for (int j = Edge::BEGIN; j < Edge::END; j++) x[j] = bits[j].widened();
  }
};

// Calls use(live, tap) for the rows of results, within `rows`, that row r of the sources of a step meets.
template <class Strip, class Use>
__device__ __forceinline__ void visit_live_rows(int step, int r, Range rows, int ph, Use use) {
#pragma unroll
  for (int live = 0; live < Strip::LIVE; live++) {
    const int row = Strip::row(step, live, ph);
    if (Strip::tap(live, r) < FH && row >= rows.begin && row < rows.end) use(live, Strip::tap(live, r));
  }
}

// Calls use(t, fw, column) for the columns of results and the taps of a filter row that meet a column of the source.
template <class Strip, class Edge, class Use>
__device__ __forceinline__ void visit_columns(Use use) {
#pragma unroll
  for (int fw = 0; fw < FW; fw++)
#pragma unroll
    for (int t = 0; t < Edge::WIDTH; t++)
      if (const int column = Strip::column(t, fw); Edge::has(column)) use(t, fw, column);
}

__device__ __forceinline__ void add_products(Channels& sum, const Channels& a, const Channels& b) {
#pragma unroll
  for (int i = 0; i < V; i++) sum.v[i] += a.v[i] * b.v[i];
}
