// The products of a step for all taps of a block, for each way in which operands reach the tensor cores
// (sk_dilated/sm90.cu).
#pragma once
#include "common/wgmma.cuh"
#include "conv2d/sk_dilated/sm90_tile.cuh"

// Loads the A fragment of 16 of K as terms of 16 bits. Its rows are output channels, so K runs down the rows of the
// tile. A thread takes (channel g or g + 8, k = 2t, 2t + 1, 2t + 8, 2t + 9); with the swizzle these reads have no bank
// conflicts.
__device__ __forceinline__ void load_transposed(const unsigned char* box, int channel, int k0, float scale,
                                                uint32_t (&hi)[4], uint32_t (&lo)[4]) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  auto at = [&](int c, int k) {
    return *reinterpret_cast<const float*>(box + k * 128 + (((c >> 2) ^ (k & 7)) << 4) + (c & 3) * 4) * scale;
  };
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const int c = channel + g + e % 2 * 8, k = k0 + 2 * t + e / 2 * 8;
    split(at(c, k), at(c, k + 1), hi[e], lo[e]);
  }
}

// The descriptor of 16 of K of X for a tap of a step, from that of its first tap and term.
__device__ __forceinline__ uint64_t tap_tile(uint64_t x, int tap, int term, int k) {
  return wgmma_further(x, tap % NUM_INPUT_TILES * B_BOX + term * TERM_BYTES +
                              (tap / NUM_INPUT_TILES * TAP_STEP * IMAGES + k * 16) * 128);
}

// Starts one product of terms, 16 of K.
__device__ __forceinline__ void start_product(float (&sum)[R], const uint32_t (&a)[4], uint64_t b, int scale) {
  if (MATH == BF16X3)
    wgmma_bf16<1>(sum, a, b, scale);
  else
    wgmma_f16<1>(sum, a, b, scale);
}

// Computes the products of all taps of a step, with dY split in registers. They are done when it returns. For "float32"
// each step is summed apart first, because the tensor cores round their sums to fewer bits than a float has.
__device__ __forceinline__ void multiply_terms(float (&sum)[TAPS][R], const unsigned char* base, uint32_t tile,
                                               int channel, float scale) {
  constexpr bool PROMOTES = MATH == FP16X3;
  const unsigned char* box = base + tile + channel / 32 * A_BOX;
  const uint64_t x = wgmma_mn_major(tile + A_BYTES, BLOCK);
  uint32_t hi[INSTRUCTIONS][4], lo[INSTRUCTIONS][4];
  float step_sum[R];
#pragma unroll
  for (int tap = 0; tap < TAPS; tap++) {
#pragma unroll
    for (int k = 0; k < INSTRUCTIONS; k++) {
      // Meanwhile the products of the k before are under way.
      if (tap == 0) load_transposed(box, channel % 32, k * 16, scale, hi[k], lo[k]);
      if (tap == 0 || k == 0) wgmma_fence();
      const uint64_t b_hi = tap_tile(x, tap, 0, k);
      float (&target)[R] = PROMOTES ? step_sum : sum[tap];
      if (TERMS == 2) {
        start_product(target, lo[k], b_hi, PROMOTES ? k != 0 : 1);
        start_product(target, hi[k], tap_tile(x, tap, 1, k), 1);
      }
      start_product(target, hi[k], b_hi, 1);
      if (tap == 0 || k == INSTRUCTIONS - 1) wgmma_commit();
    }
    if (PROMOTES) {
      wgmma_wait<0>();
#pragma unroll
      for (int r = 0; r < R; r++) sum[tap][r] += step_sum[r];
    }
  }
  wgmma_wait<0>();
}

// Starts the products of all taps of a step, both operands in shared memory. They are under way when it returns. M is
// 64, so A is one block of 64 channels.
__device__ __forceinline__ void start_products(float (&sum)[TAPS][R], uint32_t tile, int channel) {
  const uint64_t a = wgmma_mn_major(tile + channel / 64 * A_BOX, A_BOX), x = wgmma_mn_major(tile + A_BYTES, BLOCK);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < INSTRUCTIONS; k++)
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++)
      if (BOTH)
        wgmma_f16<1, 1>(sum[tap], wgmma_further(a, k * 2048), tap_tile(x, tap, 0, k), 1);
      else
        wgmma_bf16<1, 1>(sum[tap], wgmma_further(a, k * 2048), tap_tile(x, tap, 0, k), 1);
  wgmma_commit();
}
