// Work on the columns of a matrix of R rows: a block takes blockDim.x packs of columns and a segment of
// the rows; its blockDim.y lanes (a power of two) step through the segment and then meet in shared memory.
// Sums are added in a fixed order.
#pragma once
#include "common/cuda.h"
#include "common/vector.cuh"

constexpr int COLUMN_THREADS = 512;

// [start, stop): the rows of segment z. Row is int, or long long for 2^31 rows and more.
template <typename Row>
struct SegmentOf {
  Row start, stop;
};
using Segment = SegmentOf<int>;
template <typename Row>
__device__ __forceinline__ SegmentOf<Row> segment_rows(int z, Row rows, Row R) {
  const long long start = (long long)z * rows, stop = start + rows;
  return {Row(start < R ? start : R), Row(stop < R ? stop : R)};
}

template <typename Row>
struct RowOf {
  using Type = Row;
};

// use(r, load(r)) for the rows r, r + step, .. below `stop`, AHEAD (2 or 4) loads ahead of their uses.
template <int AHEAD = 4, typename Row = int, typename Load, typename Use>
__device__ __forceinline__ void visit_rows(typename RowOf<Row>::Type r, typename RowOf<Row>::Type stop, int step,
                                           Load load, Use use) {
  for (; r + (AHEAD - 1) * step < stop; r += AHEAD * step) {
    if (AHEAD == 2) {
      const auto x0 = load(r), x1 = load(r + step);
      use(r, x0), use(r + step, x1);
    } else {
      const auto x0 = load(r), x1 = load(r + step), x2 = load(r + 2 * step), x3 = load(r + 3 * step);
      use(r, x0), use(r + step, x1), use(r + 2 * step, x2), use(r + 3 * step, x3);
    }
  }
  for (; r < stop; r += step) use(r, load(r));
}

// Adds the lanes' values: the sum is in lane 0. Every thread of the block must call it.
template <typename Value>
__device__ __forceinline__ void reduce_lanes(Value& value, Value* shared) {
  const int self = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  shared[self] = value;
  for (int half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();  // the other half's values are written
    if (int(threadIdx.y) < half) {
      value += shared[self + half * blockDim.x];
      shared[self] = value;
    }
  }
}
