// Kernels with one mistake each, and beside it, under ALPHA_CORRECT, without it.
#include "common/barrier.cuh"
#include "common/cp_async.cuh"
#include "common/cuda.h"
#include "common/mma.cuh"

#ifndef ALPHA_CORRECT
#define ALPHA_CORRECT 0
#endif

// Reads `shift` elements beside its own.
extern "C" __global__ void read_beside(const float* x, float* y, long long shift) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i + (ALPHA_CORRECT ? 0 : shift)];  // line: read
}

extern "C" __global__ void write_beside(const float* x, float* y, long long shift) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i + (ALPHA_CORRECT ? 0 : shift)] = x[i];  // line: write
}

extern "C" __global__ void static_overrun(float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x + (ALPHA_CORRECT ? 0 : 1)] = 1;  // line: static
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x];
}

// Each thread reads what its neighbour stored.
extern "C" __global__ void missing_barrier(const float* x, float* y) {
  __shared__ float tile[128];
  tile[threadIdx.x] = x[threadIdx.x];
  if (ALPHA_CORRECT) __syncthreads();
  y[threadIdx.x] = tile[(threadIdx.x + 1) % 128];
}

// The barrier between reading a tile and overwriting it.
extern "C" __global__ void missing_second_barrier(const float* x, float* y) {
  __shared__ float tile[128];
  float sum = 0;
  for (int round = 0; round < 4; round++) {
    tile[threadIdx.x] = x[128 * round + threadIdx.x];
    __syncthreads();
    sum += tile[(threadIdx.x + 64) % 128];
    if (ALPHA_CORRECT) __syncthreads();
  }
  y[threadIdx.x] = sum;
}

extern "C" __global__ void missing_syncwarp(const float* x, float* y) {
  __shared__ float tile[32];
  tile[threadIdx.x] = x[threadIdx.x];
  if (ALPHA_CORRECT) __syncwarp();
  y[threadIdx.x] = tile[threadIdx.x ^ 1];
}

extern "C" __global__ void missing_copy_wait(const float* x, float* y) {
  __shared__ __align__(16) float tile[128];
  cp_async<4>(shared_address(&tile[threadIdx.x]), x + threadIdx.x);
  cp_async_commit();
  if (ALPHA_CORRECT) cp_async_wait<0>();
  __syncthreads();
  y[threadIdx.x] = tile[127 - threadIdx.x];
}

// The wait leaves one group too many under way.
extern "C" __global__ void weak_copy_wait(const float* x, float* y) {
  __shared__ __align__(16) float tile[2][128];
  for (int i = 0; i < 2; i++) {
    cp_async<4>(shared_address(&tile[i][threadIdx.x]), x + 128 * i + threadIdx.x);
    cp_async_commit();
  }
  cp_async_wait<ALPHA_CORRECT ? 0 : 1>();
  __syncthreads();
  y[threadIdx.x] = tile[0][threadIdx.x] + tile[1][127 - threadIdx.x];
}

// cp.async into a tile that others still read: only an early copy shows it.
extern "C" __global__ void early_copy(const float* x, float* y) {
  __shared__ __align__(16) float tile[128];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (!ALPHA_CORRECT) cp_async<4>(shared_address(&tile[threadIdx.x]), x + 128 + threadIdx.x);
  y[threadIdx.x] = tile[127 - threadIdx.x];
  __syncthreads();
  if (ALPHA_CORRECT) cp_async<4>(shared_address(&tile[threadIdx.x]), x + 128 + threadIdx.x);
  cp_async_commit();
  cp_async_wait<0>();
  y[threadIdx.x] += tile[threadIdx.x];
}

extern "C" __global__ void uninitialised_static(float* y) {
  __shared__ float tile[64];
  if (ALPHA_CORRECT || threadIdx.x != 40) tile[threadIdx.x] = 1;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < 64; i++) sum += tile[i];
  y[blockIdx.x * 64 + threadIdx.x] = sum;
}

extern "C" __global__ void uninitialised_dynamic(float* y) {
  ALPHA_DYNAMIC_SHARED(float, tile);
  if (ALPHA_CORRECT || threadIdx.x != 40 || blockIdx.x == 0) tile[threadIdx.x] = 1;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < 64; i++) sum += tile[i];
  y[blockIdx.x * 64 + threadIdx.x] = sum;
}

extern "C" __global__ void uninitialised_device(const float* fresh, float* y) {
  y[threadIdx.x] = ALPHA_CORRECT ? 0.0f : fresh[threadIdx.x];
}

extern "C" __global__ void shared_overrun(float* y) {
  ALPHA_DYNAMIC_SHARED(float, tile);
  tile[threadIdx.x + (ALPHA_CORRECT ? 0 : 1)] = 1;  // line: dynamic
  y[threadIdx.x] = 1;
}

extern "C" __global__ void early_exit(float* y) {
  if (!ALPHA_CORRECT && blockIdx.x == 2 && threadIdx.x >= 40) return;
  __syncthreads();  // barrier: early exit
  y[blockIdx.x * 64 + threadIdx.x] = 1;
}

extern "C" __global__ void two_barriers(float* y) {
  if (!ALPHA_CORRECT && threadIdx.x < 10)
    __syncthreads();  // barrier: the few
  else
    __syncthreads();  // barrier: the many
  y[threadIdx.x] = 1;
}

extern "C" __global__ void barrier_in_branch(float* y) {
  if (ALPHA_CORRECT || threadIdx.x < 32) __syncthreads();
  y[threadIdx.x] = __shfl_xor_sync(~0u, 1.0f, 1);
}

extern "C" __global__ void different_collectives(float* y) {
  const unsigned all = ~0u;
  if (ALPHA_CORRECT || threadIdx.x < 16)
    y[threadIdx.x] = __shfl_xor_sync(all, 1.0f, 1);
  else
    y[threadIdx.x] = float(__ballot_sync(all, 1));
}

extern "C" __global__ void half_a_warp_multiplies(float* y) {
  const uint32_t a[4] = {}, b[2] = {};
  float d[4] = {};
  if (ALPHA_CORRECT || threadIdx.x < 16) mma_m16n8k8_tf32(d, a, b);
  y[threadIdx.x] = d[0];
}

extern "C" __global__ void lonely_named_barrier(float* y) {
  if (ALPHA_CORRECT || threadIdx.x < 32) named_barrier_sync(3, 64);
  y[threadIdx.x] = 1;
}

extern "C" __global__ void misaligned_copy(const float* x, float* y) {
  __shared__ __align__(16) float tile[132];
  const int shift = ALPHA_CORRECT ? 0 : 1;
  if (threadIdx.x < 16) cp_async<16>(shared_address(&tile[4 * threadIdx.x]), x + 4 * threadIdx.x + shift);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x];
}

__device__ __noinline__ float deep(int depth, float x) {
  volatile float frame[256];
  for (int i = 0; i < 256; i++) frame[i] = x + i;
  return depth == 0 ? frame[5] : deep(depth - 1, frame[7]) + frame[depth % 256];
}

extern "C" __global__ void endless_stack(float* y, int depth) { y[threadIdx.x] = deep(ALPHA_CORRECT ? 1 : depth, 0); }

extern "C" __global__ void misaligned_read(const float* x, float* y) {
  const float4 v = *reinterpret_cast<const float4*>(x + (ALPHA_CORRECT ? 0 : 1));  // line: misaligned
  y[threadIdx.x] = v.x + v.y + v.z + v.w;
}

extern "C" __global__ void null_pointer(const float* nothing, float* y) {
  y[threadIdx.x] = ALPHA_CORRECT ? 0.0f : nothing[threadIdx.x];
}
