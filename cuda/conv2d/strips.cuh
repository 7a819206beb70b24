// Depthwise and grouped convolutions on FFMA: how the threads share the pixels.
//
// A thread has V neighbouring channels and a strip of COLUMNS columns of the results, in some rows of one image
// (a segment). The source is X, or for the input gradient dY. In depthwise kernels each row of the source is read once
// per strip: it is added to the sums of all rows of results that it meets (live_rows.cuh). Which columns of a strip are
// inside of the source is known at compile time: of the first strip those from LEFT on, of the last strip those before
// LAST_SOURCES, of any other strip all. So no padded zero is multiplied.
//
// Macros: TYPE float | bfloat16; FH, FW, SH, SW filter and stride, PW the padding of columns; VECTOR V channels per
// thread; COLUMNS; STRIPS of a row, 3 means 3 or more; LEFT, LAST_SOURCES, LAST_COLUMNS; BLOCKS
// per SM; EPILOGUE 0 | 1: whether bias and activation follow (alpha/ops/conv2d/groups/depthwise.py).
#pragma once
#include "common/rectifier.cuh"
#include "common/vector.cuh"
#include "conv2d/live_rows.cuh"

using T = ALPHA_TYPE;
constexpr int V = ALPHA_VECTOR, COLUMNS = ALPHA_COLUMNS, STRIPS = ALPHA_STRIPS;
constexpr int LEFT = ALPHA_LEFT, LAST_SOURCES = ALPHA_LAST_SOURCES, LAST_COLUMNS = ALPHA_LAST_COLUMNS;
constexpr int BLOCKS = ALPHA_BLOCKS;  // per SM
constexpr bool EPILOGUE = ALPHA_EPILOGUE;
using Channels = Pack<float, V>;

// Y from X, or dW from X and dY: column t of a strip meets column t SW + fw of its source.
struct ForwardStrip : ForwardRows {
  static constexpr int SOURCES = (COLUMNS - 1) * SW + FW, STEP = COLUMNS * SW, FIRST = -PW;

  __host__ __device__ static constexpr int column(int t, int fw) { return t * SW + fw; }
};

// dX from dY: column t of a strip meets a column of dY for every SW-th tap (KS-deconv).
struct InputStrip : InputRows {
  static constexpr int FIRST = floor_div(PW - FW + SW, SW), STEP = COLUMNS / SW;
  static constexpr int SOURCES = (COLUMNS - 1 + PW) / SW - FIRST + 1;

  __host__ __device__ static constexpr int column(int t, int fw) {
    return (t + PW - fw) % SW == 0 ? (t + PW - fw) / SW - FIRST : -1;
  }
};

// What is true of a strip at compile time: the columns of its source, and its own.
template <class Strip, bool IS_FIRST, bool IS_LAST>
struct Edges {
  static constexpr int BEGIN = IS_FIRST ? LEFT : 0, END = IS_LAST ? LAST_SOURCES : Strip::SOURCES;
  static constexpr int WIDTH = IS_LAST ? LAST_COLUMNS : COLUMNS;
  __host__ __device__ static constexpr bool has(int column) { return column >= BEGIN && column < END; }
};

// Calls run(Edges) with those of the strip.
template <class Strip, class Run>
__device__ __forceinline__ void with_edges(int strip, int strips, Run run) {
  if constexpr (STRIPS == 1) {
    run(Edges<Strip, true, true>());
  } else {
    if (strip == 0)
      run(Edges<Strip, true, false>());
    else if (strip == strips - 1)
      run(Edges<Strip, false, true>());
    else if constexpr (STRIPS > 2)
      run(Edges<Strip, false, false>());
  }
}

// A strip of a segment of rows of one image.
struct StripTask {
  int strip, image;
  Range rows;
};

// The strip of one row with a number. Rows vary fastest: neighbouring threads then have the same strip, so that they do
// not diverge.
__device__ __forceinline__ StripTask strip_of_row(int number, int strips, int height) {
  const auto [strip, row] = divide(number, height);
  const auto [image, own_strip] = divide(strip, strips);
  return {own_strip, image, {row, row + 1}};
}

// Stores a row of a strip of results: f(sum + bias), f a rectifier.
template <class Edge>
__device__ __forceinline__ void store_strip(T* to, const Channels (&sum)[COLUMNS], int channels, const Channels& bias,
                                            float slope) {
#pragma unroll
  for (int t = 0; t < Edge::WIDTH; t++) {
    Channels y = sum[t];
    if (EPILOGUE) {
      y += bias;
#pragma unroll
      for (int i = 0; i < V; i++) y.v[i] = UnboundedRectifier(slope)(y.v[i]);
    }
    store_pack(to + size_t(t) * channels, y);
  }
}
