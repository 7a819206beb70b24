// Split-K: the partial sums of an output tile that several blocks share, and their fix-up (sm90/mainloop.cuh).
#pragma once
#include "common/barrier.cuh"
#include "conv2d/sm90/tile.cuh"

// Partial sums lie in the workspace in the order of the registers, so that a warp accesses whole cache lines.
__device__ __forceinline__ void store_partial_sums(const float (&sum)[MI][R], float* part) {
#pragma unroll
  for (int r = 0; r < MI * R; r += 4) {
    const float* v = &sum[r / R][r % R];
    *reinterpret_cast<float4*>(part + r * CONSUMERS) = make_float4(v[0], v[1], v[2], v[3]);
  }
}
__device__ __forceinline__ void add_partial_sums(float (&sum)[MI][R], const float* part) {
#pragma unroll
  for (int r = 0; r < MI * R; r += 4) {
    const float4 v = __ldcg(reinterpret_cast<const float4*>(part + r * CONSUMERS));
    float* to = &sum[r / R][r % R];
    to[0] += v.x, to[1] += v.y, to[2] += v.z, to[3] += v.w;
  }
}

// The fix-up: the block that arrives last at a tile adds the partial sums of the other splits to its own, and returns
// true. The result does not depend on which block is last, because sums are always added in the order of the splits:
// a + b = b + a, so split 0 or 1 may begin with its own sum. A later split stores its own sum, too, and adds all sums
// from split 0 on. No block waits for one that has yet to arrive. All consumers call it.
__device__ __forceinline__ bool fix_up(float (&sum)[MI][R], const GemmProblem& p, const WorkTile& work, int tile,
                                       int tiles_per_work_tile) {
  constexpr int BARRIER = 1;
  __shared__ unsigned arrived_before;
  const long offset = (long)work.workspace_slot * tiles_per_work_tile + tile,
             split_stride = (long)tiles_per_work_tile * (BM * BN);
  float* partials = p.workspace + offset * (BM * BN) + threadIdx.x * 4;
  unsigned *arrived = p.semaphores + 2 * offset, *stored = arrived + 1;
  if (threadIdx.x == 0) arrived_before = atomicAdd(arrived, 1);
  named_barrier_sync(BARRIER, CONSUMERS);
  const bool last = arrived_before + 1 == work.num_splits, must_start_from_zero = work.split >= 2;
  if (!last || must_start_from_zero) store_partial_sums(sum, partials + work.split * split_stride);
  if (!last) {
    __threadfence();
    named_barrier_sync(BARRIER, CONSUMERS);
    if (threadIdx.x == 0) atomicAdd(stored, 1);
    return false;
  }
  if (threadIdx.x == 0) {
    while (atomicAdd(stored, 0) + 1 < work.num_splits) continue;
    *arrived = *stored = 0;
  }
  named_barrier_sync(BARRIER, CONSUMERS);
  __threadfence();
  if (must_start_from_zero) {
#pragma unroll
    for (int m = 0; m < MI; m++)
#pragma unroll
      for (int r = 0; r < R; r++) sum[m][r] = 0;
  }
  for (int i = 0; i < work.num_splits; i++)
    if (must_start_from_zero || i != work.split) add_partial_sums(sum, partials + i * split_stride);
  return true;
}
