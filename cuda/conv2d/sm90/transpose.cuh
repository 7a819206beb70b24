// The filter of a product of floats, transposed on its way to shared memory (sm90/mainloop.cuh with TRANSPOSE_B 1):
// KS-deconv reads a filter of one tap as W, whose input channels are contiguous, but tensor cores read floats with K
// contiguous only.
#pragma once
#include "common/barrier.cuh"
#include "conv2d/sm90/tile.cuh"

// Writes the transpose of a filter's BN columns from j0 on into the stages of B, swizzled as TMA would. All consumers
// call it. `base`: where shared address 0 is.
__device__ __forceinline__ void transpose_filter(const GemmProblem& p, const PipelineB& Bs, unsigned char* base,
                                                 int j0) {
  constexpr int BARRIER = 3;
#pragma unroll 8
  for (int i = threadIdx.x; i < BN * B_STAGES * 8; i += CONSUMERS) {  // of a row of B: 16 bytes, four of K
    const int n = i % BN, pack = i / BN, k = pack * 4;
    float v[4] = {};
    if (k < p.K && j0 + n < p.GN)
#pragma unroll
      for (int e = 0; e < 4; e++) v[e] = p.filter[long(k + e) * p.GN + j0 + n];
    const uint32_t row = Bs.tile(pack / 8) + n * ROW_BYTES;
    *reinterpret_cast<float4*>(base + row + ((pack % 8 ^ n % 8) << 4)) = make_float4(v[0], v[1], v[2], v[3]);
  }
  fence_proxy_async();
  named_barrier_sync(BARRIER, CONSUMERS);
}
