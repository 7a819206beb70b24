// TMA, mbarrier and wgmma: matrix products C (M, N) = sum over k, a producer warp and one consumer warpgroup.
// grid (N / ALPHA_N, M / 64), 256 threads; the maps' boxes are 128 bytes wide with the 128-byte swizzle.
#include "common/cuda.h"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"

#ifndef ALPHA_N
#define ALPHA_N 64
#endif
#ifndef ALPHA_A_REGISTERS  // 1: the first operand passes through registers
#define ALPHA_A_REGISTERS 0
#endif
#ifndef ALPHA_MISTAKE
#define ALPHA_MISTAKE 0
#endif

constexpr int BM = 64, BN = ALPHA_N, R = BN / 2, STAGES = 3;

// Where the tiles begin: 1024-byte aligned, so that a tile's rows and the swizzle agree.
__device__ __forceinline__ uint32_t tiles() {
  ALPHA_DYNAMIC_SHARED(char, raw);
  return (shared_address(raw) + 1023) & ~1023u;
}

__device__ __forceinline__ void store(const float (&d)[R], float* C, int N) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  for (int j = 0; j < BN / 8; j++)
    for (int h = 0; h < 2; h++) {
      const int row = blockIdx.y * BM + 16 * warp + g + 8 * h, column = blockIdx.x * BN + 8 * j + 2 * t;
      *reinterpret_cast<float2*>(C + row * N + column) = make_float2(d[4 * j + 2 * h], d[4 * j + 2 * h + 1]);
    }
}

// A box of a tensor as it lies in shared memory.
extern "C" __global__ void copy_box(const TensorMap* map, char* out, int bytes, int x, int y, int z) {
  __shared__ uint64_t word;
  const uint32_t target = tiles(), barrier = shared_address(&word);
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    mbarrier_fence_init();
    mbarrier_arrive_expect(barrier, bytes);
    tma_load(target, map, barrier, x, y, z);
  }
  __syncthreads();
  if (ALPHA_MISTAKE != 1) mbarrier_wait(barrier, 0);
  ALPHA_DYNAMIC_SHARED(char, raw);
  const char* box = raw + (target - shared_address(raw));
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = box[i];
}

// A stage of tiles for each step of K: load(stage, barrier, step) by the producer, multiply(d, stage) by the consumers.
template <class Load, class Multiply>
__device__ __forceinline__ void pipeline(int steps, int stage_bytes, float* C, int N, Load load, Multiply multiply) {
  __shared__ uint64_t words[2 * STAGES];
  const uint32_t base = tiles(), full = shared_address(words), empty = full + 8 * STAGES;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      mbarrier_init(full + 8 * s, 1);
      mbarrier_init(empty + 8 * s, 1);
    }
    mbarrier_fence_init();
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    setmaxnreg_decrease<40>();
    if (threadIdx.x == 128)
      for (int i = 0; i < steps; i++) {
        const int s = i % STAGES;
        if (i >= STAGES && ALPHA_MISTAKE != 2) mbarrier_wait(empty + 8 * s, (i / STAGES - 1) & 1);
        mbarrier_arrive_expect(full + 8 * s, stage_bytes + (ALPHA_MISTAKE == 3 ? 16 : 0));
        load(base + s * stage_bytes, full + 8 * s, i);
      }
    return;
  }
  setmaxnreg_increase<232>();
  float d[R] = {};
  for (int i = 0; i < steps; i++) {
    const int s = i % STAGES;
    if (ALPHA_MISTAKE != 1) mbarrier_wait(full + 8 * s, i / STAGES & 1);
    wgmma_fence();
    multiply(d, base + s * stage_bytes);
    wgmma_commit();
    if (ALPHA_MISTAKE != 4) wgmma_wait<0>();
    if (threadIdx.x == 0) mbarrier_arrive(empty + 8 * s);
  }
  store(d, C, N);
}

// a (M, K) and b (N, K) in tf32, both K-major, 32 of K per stage.
extern "C" __global__ void __launch_bounds__(256, 1) product_tf32(const TensorMap* a, const TensorMap* b, float* C, int N,
                                                               int K) {
  constexpr int a_bytes = BM * 128, b_bytes = BN * 128;
  auto load = [&](uint32_t stage, uint32_t barrier, int i) {
    tma_load(stage, a, barrier, i * 32, blockIdx.y * BM);
    tma_load(stage + a_bytes, b, barrier, i * 32, blockIdx.x * BN);
  };
  auto multiply = [&](float (&d)[R], uint32_t stage) {
    ALPHA_DYNAMIC_SHARED(char, raw);
    const float* tile = reinterpret_cast<const float*>(raw + (stage - shared_address(raw)));
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4, g = lane / 4, t = lane % 4;
    for (int k = 0; k < 4; k++) {
      if (ALPHA_A_REGISTERS) {
        uint32_t fragment[4];
        for (int e = 0; e < 4; e++)
          fragment[e] = __float_as_uint(tile[(row + e % 2 * 8) * 32 + ((2 * k + e / 2) ^ g) * 4 + t]);
        wgmma_fence();
        wgmma_tf32(d, fragment, wgmma_k_major(stage + a_bytes + 32 * k), 1);
      } else {
        wgmma_tf32(d, wgmma_k_major(stage + 32 * k), wgmma_k_major(stage + a_bytes + 32 * k), 1);
      }
    }
  };
  pipeline(K / 32, a_bytes + b_bytes, C, N, load, multiply);
}

// a (M, K) and b (N, K) in bf16, both K-major, 64 of K per stage; the first product overwrites d.
extern "C" __global__ void __launch_bounds__(256, 1) product_bf16(const TensorMap* a, const TensorMap* b, float* C, int N,
                                                               int K) {
  constexpr int a_bytes = BM * 128, b_bytes = BN * 128;
  auto load = [&](uint32_t stage, uint32_t barrier, int i) {
    tma_load(stage, a, barrier, i * 64, blockIdx.y * BM);
    tma_load(stage + a_bytes, b, barrier, i * 64, blockIdx.x * BN);
  };
  int step = 0;
  auto multiply = [&](float (&d)[R], uint32_t stage) {
    for (int k = 0; k < 4; k++)
      wgmma_bf16<0, 0>(d, wgmma_k_major(stage + 32 * k), wgmma_k_major(stage + a_bytes + 32 * k), step + k != 0);
    step++;
  };
  pipeline(K / 64, a_bytes + b_bytes, C, N, load, multiply);
}

// a (K, M) and b (K, N) in bf16, both MN-major as the filter gradient has them, 32 of K per stage; BN a multiple of 64.
extern "C" __global__ void __launch_bounds__(256, 1) product_bf16_transposed(const TensorMap* a, const TensorMap* b, float* C,
                                                                          int N, int K) {
  constexpr int block = 32 * 128;  // 64 channels, 32 of K
  auto load = [&](uint32_t stage, uint32_t barrier, int i) {
    tma_load(stage, a, barrier, blockIdx.y * BM, i * 32);
    for (int j = 0; j < BN / 64; j++) tma_load(stage + (1 + j) * block, b, barrier, blockIdx.x * BN + 64 * j, i * 32);
  };
  auto multiply = [&](float (&d)[R], uint32_t stage) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4, t = lane % 4;
    ALPHA_DYNAMIC_SHARED(char, raw);
    const __nv_bfloat16* tile = reinterpret_cast<const __nv_bfloat16*>(raw + (stage - shared_address(raw)));
    for (int k = 0; k < 2; k++) {
      const uint64_t b_tile = wgmma_mn_major(stage + block + 2048 * k, block);
      if (ALPHA_A_REGISTERS) {
        uint32_t fragment[4];
        for (int e = 0; e < 4; e++) {
          uint32_t halves[2];
          for (int i = 0; i < 2; i++) {
            const int m = row + e % 2 * 8, kk = 16 * k + 2 * t + i + e / 2 * 8;
            halves[i] = __bfloat16_as_ushort(tile[kk * 64 + ((m / 8 ^ kk % 8) * 8) + m % 8]);
          }
          fragment[e] = halves[0] | halves[1] << 16;
        }
        wgmma_fence();
        wgmma_bf16<1>(d, fragment, b_tile, 1);
      } else {
        wgmma_bf16<1, 1>(d, wgmma_mn_major(stage + 2048 * k, block), b_tile, 1);
      }
    }
  };
  pipeline(K / 32, (1 + BN / 64) * block, C, N, load, multiply);
}
