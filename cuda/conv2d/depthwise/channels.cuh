// What all depthwise kernels share besides the strips (strips.cuh): their channels and their products.
// Macros: CHANNELS of the result (of dY for dW), so that the columns of a row are at distances known at compile time;
// MULTIPLIER: output channels per input channel.
#pragma once
#include "conv2d/strips.cuh"

constexpr int CHANNELS = ALPHA_CHANNELS, MULTIPLIER = ALPHA_MULTIPLIER, SOURCE_CHANNELS = CHANNELS / MULTIPLIER;
constexpr int MAX_THREADS = 128;

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
