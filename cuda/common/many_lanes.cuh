// Sums over the lanes of a block of few columns (common/columns.cuh), whose many lanes meet within warps first.
#pragma once
#include "common/cuda.h"

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

// Adds the lanes' values, as `reduce_lanes` does: those of a warp meet without a barrier, and one barrier is for all
// warps. The sum is in lane 0. Every thread of the block must call it. Needs: blockDim.x, a power of two, divides 32;
// whole warps, at most 32 of them; blockDim.z 1.
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
