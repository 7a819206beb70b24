// Convolutions that walk down the rows of a map and read each row of the source once.
//
// The source is X, or for the input gradient dY. A step brings SOURCE_ROWS rows of the source, which are added to the
// sums of all rows of results that they meet: the LIVE rows. Then the first DONE of these are complete, and the others
// move up.
// Macros: FH, FW, SH, SW filter and stride; PW the padding of columns.
#pragma once
#include "conv2d/shape.cuh"

constexpr int FH = ALPHA_FH, FW = ALPHA_FW, SH = ALPHA_SH, SW = ALPHA_SW, PW = ALPHA_PW, TAPS = FH * FW;

__host__ __device__ constexpr int floor_div(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

// Y from X, or dW from X and dY.
struct ForwardRows {
  static constexpr bool IS_INPUT = false;
  static constexpr int LIVE = (FH + SH - 1) / SH, DONE = 1, SOURCE_ROWS = SH;

  __host__ __device__ static constexpr int tap(int live, int r) { return (LIVE - 1 - live) * SH + r; }
  __device__ static int source_of(int row, int fh, int ph) { return row * SH - ph + fh; }
  __device__ static int source_row(int step, int r, int ph) { return step * SH - ph + r; }
  __device__ static int row(int step, int live, int) { return step - (LIVE - 1) + live; }
  __device__ static Range steps(Range rows, int) { return {rows.begin, rows.end + LIVE - 1}; }
};

// dX from dY (KS-deconv).
struct InputRows {
  static constexpr bool IS_INPUT = true;
  static constexpr int LIVE = FH > SH ? FH : SH, DONE = SH, SOURCE_ROWS = 1;

  __host__ __device__ static constexpr int tap(int live, int) { return live; }
  __device__ static int source_of(int row, int fh, int ph) {  // -1 if tap fh meets no row of dY
    const int h = row + ph - fh;
    return h >= 0 && h % SH == 0 ? h / SH : -1;
  }
  __device__ static int source_row(int step, int, int) { return step; }
  __device__ static int row(int step, int live, int ph) { return step * SH - ph + live; }
  __device__ static Range steps(Range rows, int ph) {
    return {floor_div(rows.begin + ph - LIVE + SH, SH), (rows.end - 1 + ph) / SH + 1};
  }
};
