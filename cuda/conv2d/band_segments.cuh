// The sums of a tile whose products several blocks share (band_gemm.cuh).
#pragma once
#include "common/barrier.cuh"
#include "conv2d/band_tile.cuh"

// The sums of a segment in memory, in the order of registers, so that a warp's accesses are whole lines.
__device__ __forceinline__ void store_sums(const float (&sum)[MI][R], float* part) {
#pragma unroll
  for (int r = 0; r < MI * R; r += 4) {
    const float* v = &sum[r / R][r % R];
    *reinterpret_cast<float4*>(part + r * 128 * GROUPS) = make_float4(v[0], v[1], v[2], v[3]);
  }
}
__device__ __forceinline__ void add_sums(float (&sum)[MI][R], const float* part) {
#pragma unroll
  for (int r = 0; r < MI * R; r += 4) {
    const float4 v = __ldcg(reinterpret_cast<const float4*>(part + r * 128 * GROUPS));
    float* to = &sum[r / R][r % R];
    to[0] += v.x, to[1] += v.y, to[2] += v.z, to[3] += v.w;
  }
}

// The block that comes last to a tile adds what the others leave in memory to its own sums; for it the answer is true. The
// first two segments may be added either way round, the others only in their order, so that results do not depend on
// who is last. None waits for a block that has yet to come. All consumers call it.
__device__ __forceinline__ bool join_segments(float (&sum)[MI][R], const BandProblem& p, const Work& work, int tile,
                                              int tiles_of_work) {
  constexpr int CONSUMERS = 128 * GROUPS, BARRIER = 1;
  __shared__ unsigned before;
  const long place = (long)work.slot * tiles_of_work + tile, next_segment = (long)tiles_of_work * (BM * BN);
  float* parts = p.parts + place * (BM * BN) + threadIdx.x * 4;
  unsigned *came = p.arrived + 2 * place, *left = came + 1;
  if (threadIdx.x == 0) before = atomicAdd(came, 1);
  named_barrier_sync(BARRIER, CONSUMERS);
  const bool last = before + 1 == work.segments, ordered = work.segment >= 2;
  if (!last || ordered) store_sums(sum, parts + work.segment * next_segment);
  if (!last) {
    __threadfence();
    named_barrier_sync(BARRIER, CONSUMERS);
    if (threadIdx.x == 0) atomicAdd(left, 1);
    return false;
  }
  if (threadIdx.x == 0) {
    while (atomicAdd(left, 0) + 1 < work.segments) continue;
    *came = *left = 0;
  }
  named_barrier_sync(BARRIER, CONSUMERS);
  __threadfence();
  if (ordered) {
#pragma unroll
    for (int m = 0; m < MI; m++)
#pragma unroll
      for (int r = 0; r < R; r++) sum[m][r] = 0;
  }
  for (int i = 0; i < work.segments; i++)
    if (ordered || i != work.segment) add_sums(sum, parts + i * next_segment);
  return true;
}
