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

// The value of the thread whose number in the warp is that of this one xor `distance`. All threads of the warp call it.
template <typename Value>
__device__ __forceinline__ Value shuffle_value(Value value, int distance) {
  static_assert(sizeof(Value) % 4 == 0, "a warp exchanges words");
  uint32_t words[sizeof(Value) / 4];
  memcpy(words, &value, sizeof(Value));
#pragma unroll
  for (int i = 0; i < int(sizeof(Value) / 4); i++) words[i] = __shfl_xor_sync(~0u, words[i], distance);
  memcpy(&value, words, sizeof(Value));
  return value;
}

// As `reduce_lanes`, for blocks of few columns and many lanes: those of a warp meet without a barrier, and one barrier
// is for all warps. Needs: blockDim.x, a power of two, divides 32, whole warps, at most 32 of them, one slab.
template <typename Value>
__device__ __forceinline__ void reduce_many_lanes(Value& value, Value* shared) {
  const int across = blockDim.x, self = threadIdx.y * across + threadIdx.x, warps = across * blockDim.y / 32;
  for (int distance = 16; distance >= across; distance /= 2) value += shuffle_value(value, distance);
  if (self % 32 < across) shared[self / 32 * across + threadIdx.x] = value;
  __syncthreads();  // the values of all warps are written
  if (self >= 32) return;
  const int lanes = 32 / across;  // of the first warp, which add up those of all warps
  value = {};
  for (int warp = threadIdx.y; warp < warps; warp += lanes) value += shared[warp * across + threadIdx.x];
  for (int distance = 16; distance >= across; distance /= 2) value += shuffle_value(value, distance);
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
