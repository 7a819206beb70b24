// The bits of the largest finite magnitude of each of two arrays, for half_scale (common/fp16_terms.cuh).
//
// out_a[0] of a (n_a floats), out_b[0] of b (n_b floats), b only if there are blocks for it. Magnitudes as integers
// have the order of the floats, so atomicMax gives the same bits in any order. The blocks meet in `state`, three words
// that are zero
// before: the largest of a, of b, and the number of blocks that have come. The last block writes the results and leaves
// the words zero for the next launch, which saves a launch that would zero them.
// Grid: blocks_a + blocks of b. Block: 256. Shared memory: a word per warp. Needs 16-byte aligned arrays.
#include "common/fp16_terms.cuh"
#include "common/largest.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    absmax(unsigned* __restrict__ out_a, const float* __restrict__ a, long long n_a, unsigned* __restrict__ out_b,
           const float* __restrict__ b, long long n_b, unsigned* __restrict__ state, int blocks_a) {
  const bool second = int(blockIdx.x) >= blocks_a;
  const float* x = second ? b : a;
  const long long n = second ? n_b : n_a, blocks = second ? gridDim.x - blocks_a : blocks_a;
  const long long block = second ? blockIdx.x - blocks_a : blockIdx.x, step = blocks * THREADS;
  unsigned largest = 0;
  auto meet = [&](float v) { largest = max(largest, finite_magnitude(v)); };
  const float4* x4 = reinterpret_cast<const float4*>(x);
  const long long n4 = n / 4;
  long long i = block * THREADS + threadIdx.x;
  for (; i + 3 * step < n4; i += 4 * step) {  // four loads in flight
    const float4 v[4] = {x4[i], x4[i + step], x4[i + 2 * step], x4[i + 3 * step]};
#pragma unroll
    for (int k = 0; k < 4; k++) meet(v[k].x), meet(v[k].y), meet(v[k].z), meet(v[k].w);
  }
  for (; i < n4; i += step) {
    const float4 v = x4[i];
    meet(v.x), meet(v.y), meet(v.z), meet(v.w);
  }
  if (block == 0 && threadIdx.x < n % 4) meet(x[n4 * 4 + threadIdx.x]);
  largest = block_largest(largest);
  if (threadIdx.x == 0) {
    atomicMax(state + second, largest);
    __threadfence();  // the largest is known before the block has come
    if (atomicAdd(state + 2, 1u) == gridDim.x - 1) {
      *out_a = atomicExch(state, 0u);
      if (out_b != nullptr) *out_b = atomicExch(state + 1, 0u);
      state[2] = 0;
    }
  }
}
