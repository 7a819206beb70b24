// The products of one tap, for each way in which operands reach the tensor cores (sm90/mainloop.cuh).
#pragma once
#include "common/fp16_terms.cuh"
#include "common/ldmatrix.cuh"
#include "common/wgmma.cuh"
#include "conv2d/sm90/tile.cuh"

// Loads the A fragment of 16 of K for a warp's 16 rows, as fp16 terms. A thread holds floats t and t + 4 of each 8
// (as for tf32). They take the place of 2t and 2t + 1, which the instruction expects; prepare/filter_terms.cu orders B
// in the same way.
__device__ __forceinline__ void load_fp16_terms(uint32_t rows, int k, float scale, uint32_t (&hi)[4],
                                                uint32_t (&lo)[4]) {
  const int lane = threadIdx.x & 31, matrix = lane >> 3, i = lane & 7;
  const uint32_t box = rows + k / 2 * A_BOX + ((matrix & 1) * 8 + i) * ROW_BYTES;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    uint32_t v[4];
    ldmatrix_x4(v, box + (((k % 2 * 4 + half * 2 + (matrix >> 1)) ^ i) << 4));
#pragma unroll
    for (int e = 0; e < 2; e++)
      to_terms<TERMS>(__uint_as_float(v[e]) * scale, __uint_as_float(v[e + 2]) * scale, hi[half * 2 + e],
                      lo[half * 2 + e]);
  }
}

// Computes the products of one tap for 64 rows of a warpgroup, from `rows` of A on, in COUNT instructions per term.
// They are done when it returns.
template <int COUNT>
__device__ __forceinline__ void multiply_fp16_terms(float (&sum)[R], uint32_t rows, uint32_t b, float scale) {
  float step_sum[R];  // of the products of two terms
  uint32_t hi[COUNT][4], lo[COUNT][4];
#pragma unroll
  for (int k = 0; k < COUNT; k++) {
    // Meanwhile the products of the k before are under way.
    load_fp16_terms(rows + threadIdx.x % GROUP_THREADS / 32 * 16 * ROW_BYTES, k, scale, hi[k], lo[k]);
    wgmma_fence();
    const uint64_t b_hi = wgmma_k_major(b + k * 32);
    if (TERMS == 2) {
      wgmma_f16<0>(step_sum, lo[k], b_hi, k != 0);
      wgmma_f16<0>(step_sum, hi[k], wgmma_k_major(b + TERM_BYTES + k * 32), 1);
      wgmma_f16<0>(step_sum, hi[k], b_hi, 1);
    } else {
      wgmma_f16<0>(sum, hi[k], b_hi, 1);
    }
    wgmma_commit();
  }
  wgmma_wait<0>();
  if (TERMS == 2) {
#pragma unroll
    for (int r = 0; r < R; r++) sum[r] += step_sum[r];
  }
}

// Starts the products of one tap for all rows of a tile, transposed (sm90/ping_pong.cuh). `begun`: they are added to
// the sums, which otherwise begin with them: zeros would have the compiler keep the products apart.
template <int COUNT>
__device__ __forceinline__ void start_transposed_products(float (&sum)[MI][R], uint32_t rows, uint32_t b, bool begun) {
  const uint64_t pixels = wgmma_k_major(rows), filter = B_MN ? wgmma_mn_major(b, 64 * ROW_BYTES) : wgmma_k_major(b);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < COUNT; k++)
#pragma unroll
    for (int m = 0; m < MI; m++)
      wgmma_bf16<B_MN, 0>(sum[m], wgmma_further(filter, m * 64 * ROW_BYTES + k * (B_MN ? 2048 : 32)),
                          wgmma_further(pixels, k * 32), k > 0 || begun);
  wgmma_commit();
}

// Starts the products of one tap for all rows of a warpgroup, with operands that the tensor cores read from shared
// memory. They are under way when it returns.
template <int COUNT>
__device__ __forceinline__ void start_products(float (&sum)[MI][R], uint32_t rows, uint32_t b, bool begun) {
  if constexpr (PING_PONG) return start_transposed_products<COUNT>(sum, rows, b, begun);
  const uint64_t a_tile = wgmma_k_major(rows), b_tile = B_MN ? wgmma_mn_major(b, 64 * ROW_BYTES) : wgmma_k_major(b);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < COUNT; k++)
#pragma unroll
    for (int m = 0; m < MI; m++) {
      const uint64_t a_k = wgmma_further(a_tile, m * 64 * ROW_BYTES + k * 32),
                     b_k = wgmma_further(b_tile, k * (B_MN ? 2048 : 32));
      if (MATH == TF32)
        wgmma_tf32(sum[m], a_k, b_k, 1);
      else if (PREPARED)
        wgmma_f16<0, 0>(sum[m], a_k, b_k, 1);
      else
        wgmma_bf16<0, B_MN>(sum[m], a_k, b_k, 1);
    }
  wgmma_commit();
}
