// What a CUDA kernel may rely on, each in a kernel of its own.
#include "common/cuda.h"
#include "common/barrier.cuh"

struct Scale {
  int count;
  float factor, offset;
};

__constant__ const int weights[4] = {1, 10, 100, 1000};

extern "C" __global__ void indices(int* out) {
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] =
      threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.x + 10000 * blockIdx.y + 100000 * blockIdx.z;
}

extern "C" __global__ void scale(const float* x, double* y, const Scale s, long long shift, unsigned char sign) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < s.count) y[i + shift] = (sign ? -1 : 1) * (x[i] * s.factor + s.offset);
}

template <int size>
__device__ __forceinline__ float* scratch() {
  __shared__ float tile[size];
  return tile;
}

// Sums each row of a block in static shared memory of a template, and hands it on through dynamic shared memory.
extern "C" __global__ void __launch_bounds__((4 * 32)) block_sum(const float* __restrict__ x, float* __restrict__ y) {
  ALPHA_DYNAMIC_SHARED(float, total);
  float* tile = scratch<128>();
  tile[threadIdx.x] = x[blockIdx.x * 128 + threadIdx.x];
  __syncthreads();
  for (int half = 64; half > 0; half /= 2) {
    if (threadIdx.x < half) tile[threadIdx.x] += tile[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) total[0] = tile[0];
  __syncthreads();
  y[blockIdx.x * 128 + threadIdx.x] = total[0];
}

extern "C" __global__ void barrier_reductions(int* out) {
  const int i = threadIdx.x;
  const int any = __syncthreads_or(i == 70), all = __syncthreads_and(i != 70), count = __syncthreads_count(i % 3 == 0);
  const int none = __syncthreads_or(0), every = __syncthreads_and(1);
  out[i] = any + 10 * all + 100 * count + 100000 * none + 1000000 * every;
}

extern "C" __global__ void shuffles(const float* x, float* out) {
  const int lane = threadIdx.x % 32, n = blockDim.x;
  const float v = x[threadIdx.x];
  out[threadIdx.x] = __shfl_sync(~0u, v, 5);
  out[n + threadIdx.x] = __shfl_xor_sync(~0u, v, 9);
  out[2 * n + threadIdx.x] = __shfl_up_sync(~0u, v, 3, 8);
  out[3 * n + threadIdx.x] = __shfl_down_sync(~0u, v, 3, 16);
  out[4 * n + threadIdx.x] = __shfl_sync(~0u, v, 2, 8);
  // The lower and the upper 16 lanes of a warp meet separately.
  const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
  out[5 * n + threadIdx.x] = lane < 16 ? __shfl_xor_sync(half, v, 1) : __shfl_xor_sync(half, -v, 2);
}

extern "C" __global__ void votes(unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned ballot = __ballot_sync(~0u, lane % 3 == 0);
  const bool any = __any_sync(~0u, lane == 31), all = __all_sync(~0u, lane < 31), some = __any_sync(~0u, lane > 31);
  out[threadIdx.x] = ballot ^ (unsigned(any) << 1 | unsigned(all) << 2 | unsigned(some) << 4);
}

extern "C" __global__ void atomics(float* sum, int* counter, unsigned* largest, unsigned long long* bits, int* last) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(sum, 0.5f);
  atomicAdd(counter, 1);
  atomicMax(largest, i);
  atomicOr(bits, 1ull << (i % 64));
  if (atomicCAS(last, int(i), int(i) + 1) == int(i)) atomicExch(last + 1, 7);
}

extern "C" __global__ void constants(int* out) { out[threadIdx.x] = weights[threadIdx.x % 4]; }

// Threads that exit leave the others of their warp to go on.
extern "C" __global__ void exited_lanes(int* out) {
  if (threadIdx.x % 2) return;
  __syncwarp();
  out[threadIdx.x] = __shfl_xor_sync(0x55555555u, int(threadIdx.x), 2);
}

// A producer warp fills, the consumer warps of a named barrier read.
extern "C" __global__ void named_barriers(int* out) {
  __shared__ int box;
  const int warp = threadIdx.x / 32;
  for (int round = 0; round < 3; round++) {
    if (warp == 0) {
      if (round > 0) named_barrier_sync(2, 96);
      if (threadIdx.x == 0) box = 10 + round;
      named_barrier_arrive(1, 96);
    } else {
      named_barrier_sync(1, 96);
      out[round * 64 + threadIdx.x - 32] = box;
      if (round < 2) named_barrier_arrive(2, 96);
    }
  }
}

extern "C" __global__ void arithmetic(float* out) {
  out[0] = __fmaf_rn(3.0f, 2.0f, 0.5f);
  out[1] = rsqrtf(16.0f);
  out[2] = float(__float2int_rn(2.5f) + 100 * __popc(0xf0f0u) + 10000 * __clz(1));
  out[3] = float(__umulhi(0x80000000u, 6u));
  out[4] = __uint_as_float(__float_as_uint(1.5f) ^ 0x80000000u);
  out[5] = float(min(3, 4) + max(5u, 4u));
  out[6] = fmaxf(2.0f, fminf(7.0f, 3.0f));
  out[7] = __bfloat162float(__float2bfloat16_rn(1.00390625f));  // halfway between two bfloat16: to even
  out[8] = __bfloat162float(__float2bfloat16_rn(1.01171875f));
  out[9] = sizeof(float4) + alignof(float2) + __ldg(&weights[1]);
}
