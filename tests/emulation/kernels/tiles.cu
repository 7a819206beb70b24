// Matrix products C (M, N) = A (M, K) B (N, K)^T by the means the convolution kernels have: cp.async, mma.sync, ldmatrix.
// M and N are multiples of 64, K of 32; grid (N / 64, M / 64).
#include "common/cuda.h"
#include "common/cp_async.cuh"
#include "common/ldmatrix.cuh"
#include "common/mma.cuh"

constexpr int BM = 64, BN = 64, BK = 32;

// One element: 256 threads, 4 x 4 outputs each, plain loads.
extern "C" __global__ void __launch_bounds__(256) product_ffma(const float* __restrict__ A, const float* __restrict__ B,
                                                               float* __restrict__ C, int N, int K) {
  __shared__ __align__(16) float a[BK][BM + 4], b[BK][BN + 4];
  const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    for (int i = threadIdx.x; i < BM * BK / 4; i += 256) {
      const int row = i / (BK / 4), k = i % (BK / 4) * 4;
      const float4 va = *reinterpret_cast<const float4*>(A + (m0 + row) * K + k0 + k);
      const float4 vb = *reinterpret_cast<const float4*>(B + (n0 + row) * K + k0 + k);
      a[k][row] = va.x, a[k + 1][row] = va.y, a[k + 2][row] = va.z, a[k + 3][row] = va.w;
      b[k][row] = vb.x, b[k + 1][row] = vb.y, b[k + 2][row] = vb.z, b[k + 3][row] = vb.w;
    }
    __syncthreads();  // barrier: tile stored
#pragma unroll
    for (int k = 0; k < BK; k++) {
      const float4 va = *reinterpret_cast<const float4*>(&a[k][ty * 4]);
      const float4 vb = *reinterpret_cast<const float4*>(&b[k][tx * 4]);
      const float av[4] = {va.x, va.y, va.z, va.w}, bv[4] = {vb.x, vb.y, vb.z, vb.w};
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] += av[i] * bv[j];
    }
    __syncthreads();  // barrier: tile read
  }
  for (int i = 0; i < 4; i++)
    *reinterpret_cast<float4*>(C + (m0 + ty * 4 + i) * N + n0 + tx * 4) =
        make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
}

// tf32: 128 threads, 32 x 32 per warp; three stages of cp.async, rows of 32 floats swizzled in vectors of 16 bytes.
extern "C" __global__ void __launch_bounds__(128) product_tf32(const float* __restrict__ A, const float* __restrict__ B,
                                                               float* __restrict__ C, int N, int K) {
  ALPHA_DYNAMIC_SHARED(float, smem);
  constexpr int stages = 3, stage = (BM + BN) * BK;
  const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN, iterations = K / BK;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int wm = warp % 2 * 32, wn = warp / 2 * 32;
  auto load = [&](int it) {
    const uint32_t base = shared_address(smem + it % stages * stage);
    for (int i = threadIdx.x; i < (BM + BN) * BK / 4; i += 128) {
      const int row = i / 8, piece = i % 8;
      const float* from = (row < BM ? A + (m0 + row) * K : B + (n0 + row - BM) * K) + it * BK + piece * 4;
      cp_async<16>(base + (row * BK + ((piece ^ (row & 7)) << 2)) * 4, from);
    }
  };
  float d[2][4][4] = {};
  for (int s = 0; s < stages - 1; s++) {
    if (s < iterations) load(s);
    cp_async_commit();
  }
  for (int it = 0; it < iterations; it++) {
    cp_async_wait<stages - 2>();
    __syncthreads();  // barrier: stage loaded
    if (it + stages - 1 < iterations) load(it + stages - 1);
    cp_async_commit();
    const float *a = smem + it % stages * stage, *b = a + BM * BK;
    for (int k = 0; k < BK; k += 8) {
      const int c0 = ((k / 4) ^ g) << 2, c1 = ((k / 4 + 1) ^ g) << 2;
      uint32_t fa[2][4], fb[4][2];
      for (int i = 0; i < 2; i++) {
        const float* row = a + (wm + i * 16 + g) * BK + t;
        fa[i][0] = round_tf32(row[c0]), fa[i][1] = round_tf32(row[8 * BK + c0]);
        fa[i][2] = round_tf32(row[c1]), fa[i][3] = round_tf32(row[8 * BK + c1]);
      }
      for (int j = 0; j < 4; j++) {
        const float* row = b + (wn + j * 8 + g) * BK + t;
        fb[j][0] = round_tf32(row[c0]), fb[j][1] = round_tf32(row[c1]);
      }
      for (int i = 0; i < 2; i++) mma_m16n8k8_tf32(d[i], fa[i], fb);
    }
  }
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 4; j++)
      for (int h = 0; h < 2; h++)
        *reinterpret_cast<float2*>(C + (m0 + wm + i * 16 + g + h * 8) * N + n0 + wn + j * 8 + t * 2) =
            make_float2(d[i][j][2 * h], d[i][j][2 * h + 1]);
}

// bf16 and f16: one warp and 16 x 16 outputs per block, K at most 256; B is given as (K, N), so its fragments come transposed.
// grid (N / 16, M / 16).
template <bool bf16>
__device__ __forceinline__ void product_16_bit(const uint16_t* __restrict__ A, const uint16_t* __restrict__ B,
                                               float* __restrict__ C, int N, int K) {
  __shared__ __align__(16) uint16_t a[16][256 + 8], b[256][16 + 8];
  const int m0 = blockIdx.y * 16, n0 = blockIdx.x * 16, lane = threadIdx.x;
  for (int i = lane; i < 16 * K / 8; i += 32)
    cp_async<16>(shared_address(&a[i / (K / 8)][i % (K / 8) * 8]), A + (m0 + i / (K / 8)) * K + i % (K / 8) * 8);
  for (int i = lane; i < K * 2; i += 32) cp_async<16>(shared_address(&b[i / 2][i % 2 * 8]), B + (i / 2) * N + n0 + i % 2 * 8);
  cp_async_commit();
  cp_async_wait<0>();
  __syncwarp();
  float d[2][4] = {};
  for (int k = 0; k < K; k += 16) {
    uint32_t fa[4], fb[4], left[2], right[2];
    ldmatrix_x4(fa, shared_address(&a[lane % 16][k + lane / 16 * 8]));
    ldmatrix_x4_trans(fb, shared_address(&b[k + lane % 16][lane / 16 * 8]));
    left[0] = fb[0], left[1] = fb[1];
    ldmatrix_x2_trans(right, shared_address(&b[k + lane % 16][8]));
    if constexpr (bf16) {
      const uint32_t rest[4] = {fa[2], fa[3]}, last[2] = {right[1]};
      mma_m16n8k16_bf16(d[0], fa, left);
      mma_m16n8k8_bf16(d[1], fa, right), mma_m16n8k8_bf16(d[1], rest, last);
    } else
      mma_m16n8k16_f16(d[0], fa, left), mma_m16n8k16_f16(d[1], fa, right);
  }
  for (int j = 0; j < 2; j++)
    for (int h = 0; h < 2; h++)
      *reinterpret_cast<float2*>(C + (m0 + lane / 4 + h * 8) * N + n0 + j * 8 + lane % 4 * 2) =
          make_float2(d[j][2 * h], d[j][2 * h + 1]);
}

extern "C" __global__ void __launch_bounds__(32)
    product_bf16(const uint16_t* __restrict__ A, const uint16_t* __restrict__ B, float* __restrict__ C, int N, int K) {
  product_16_bit<true>(A, B, C, N, K);
}
extern "C" __global__ void __launch_bounds__(32)
    product_f16(const uint16_t* __restrict__ A, const uint16_t* __restrict__ B, float* __restrict__ C, int N, int K) {
  product_16_bit<false>(A, B, C, N, K);
}

// Words of 4, 8 and 16 bytes, some of them cut off and filled with zeros, in two groups.
extern "C" __global__ void copies(const float* x, float* y, int valid) {
  __shared__ __align__(16) float tile[3][128];
  const int i = threadIdx.x;
  cp_async<4>(shared_address(&tile[0][i]), x + i, i < valid ? 4 : 0);
  cp_async_commit();
  if (i < 64) cp_async<8>(shared_address(&tile[1][2 * i]), x + 128 + 2 * i, i < 20 ? 8 : 4);
  if (i < 32) cp_async<16>(shared_address(&tile[2][4 * i]), i < 20 ? x + 256 + 4 * i : nullptr, i < 20 ? 12 : 0);
  cp_async_commit();
  cp_async_wait<1>();
  __syncthreads();
  y[i] = tile[0][i];
  cp_async_wait<0>();
  __syncthreads();
  y[128 + i] = tile[1][i], y[256 + i] = tile[2][i];
}
