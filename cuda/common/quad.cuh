// The four lanes of a quad, which hold the pairs of neighbouring columns of a tensor-core accumulator.
#pragma once
#include "common/bfloat16.cuh"
#include "common/cuda.h"

// Lane t's v[i] becomes lane i's v[t]. All lanes of a warp call it, t = lane % 4.
__device__ __forceinline__ void transpose_quad(uint32_t (&v)[4], int t) {
#pragma unroll
  for (int bit = 1; bit < 4; bit *= 2)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (i & bit) continue;
      const bool upper = t & bit;
      const uint32_t received = __shfl_xor_sync(0xffffffffu, upper ? v[i] : v[i + bit], bit);
      if (upper)
        v[i] = received;
      else
        v[i + bit] = received;
    }
}

// Exchanges pairs of columns of two fragments of 8, so that each lane has four contiguous columns: lane t has those
// from 4 (t % 2) on of fragment t / 2. All lanes of a warp call it.
__device__ __forceinline__ float4 gather_quad(float2 first, float2 second, int t) {
  const bool high = t & 2, odd = t & 1;
  auto exchange = [](float2 v, int lanes) {
    return make_float2(__shfl_xor_sync(0xffffffffu, v.x, lanes), __shfl_xor_sync(0xffffffffu, v.y, lanes));
  };
  const float2 other = exchange(high ? first : second, 2);  // the same fragment's, four columns on or back
  const float2 low = high ? other : first, up = high ? second : other;
  const float2 neighbour = exchange(odd ? low : up, 1);
  return odd ? make_float4(neighbour.x, neighbour.y, up.x, up.y) : make_float4(low.x, low.y, neighbour.x, neighbour.y);
}

// Stores a row of COLUMNS columns (a multiple of 32), of which lane t of a quad has pair(j), columns 8 j + 2 t and
// 8 j + 2 t + 1. The lanes exchange their pairs, so that each stores 16 bytes at a time. T is float, or 16 bits for
// bfloat16. All lanes of a warp call it. `row` is aligned to 16 bytes; only its first `columns`, a multiple of 8, are
// stored, and none if it is null.
template <int COLUMNS, class T, class Pair>
__device__ __forceinline__ void store_row(T* row, int columns, int t, Pair pair) {
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j += 4) {
      uint32_t v[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float2 y = pair(j + i);
        v[i] = narrow_pair(y.x, y.y);
      }
      transpose_quad(v, t);
      const int column = (j + t) * 8;
      if (row != nullptr && column < columns)
        *reinterpret_cast<uint4*>(row + column) = make_uint4(v[0], v[1], v[2], v[3]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j += 2) {
      const float2 first = pair(j), second = pair(j + 1);
      const float4 v = gather_quad(first, second, t);
      const int column = j * 8 + t * 4;
      if (row != nullptr && column < columns) *reinterpret_cast<float4*>(row + column) = v;
    }
  }
}
