// A warp's tile of a float32 GEMM on tensor cores by 3xTF32, each 32-deep block of K summed apart and added with FADD.
//
// x = big + small, big being x without its 13 low bits (which the hardware ignores), small = x - big exactly;
// a b ~ small_a big_b + big_a small_b + big_a big_b. Tensor cores truncate as they accumulate, so the sum of each
// block is promoted to a float32 accumulator: as accurate as FFMA (docs/benchmarks.md).
//
// Operands lie in shared memory in one of two swizzled layouts, both free of bank conflicts:
//   k-major   rows of 32 floats (one row an m or n); 16-byte chunk c of row r at chunk c ^ (r & 7)
//   mn-major  32 rows (one a k) of WIDTH floats;      16-byte chunk c of row k at chunk c ^ 2 (k & 3)
#pragma once
#include "common/ldmatrix.cuh"
#include "common/mma.cuh"

constexpr int TILE_K = 32;  // floats of a k-major row, rows of an mn-major tile

__device__ __forceinline__ int swizzle_k_major(int row, int chunk) { return row * TILE_K + ((chunk ^ (row & 7)) << 2); }

template <int WIDTH>
__device__ __forceinline__ int swizzle_mn_major(int k, int chunk) {
  return k * WIDTH + ((chunk ^ ((k & 3) << 1)) << 2);
}

__device__ __forceinline__ uint32_t small_part(uint32_t x) {
  return __float_as_uint(__uint_as_float(x) - __uint_as_float(x & 0xffffe000u));
}

// MF x NF fragments of 16 x 8: a warp tile of 16 MF x 8 NF.
template <int MF, int NF>
struct Tf32x3 {
  static_assert(NF % 2 == 0, "k-major B fragments are loaded in pairs");
  float acc[MF][NF][4] = {};

  // acc += A B over 32 k, both k-major: a, b are the shared addresses of the warp's first rows (multiples of 8).
  __device__ __forceinline__ void multiply_k_major(uint32_t a, uint32_t b) {
    const int lane = threadIdx.x & 31, matrix = lane >> 3, i = lane & 7;
    const uint32_t a_row = a + ((matrix & 1) * 8 + i) * TILE_K * 4, b_row = b + ((matrix >> 1) * 8 + i) * TILE_K * 4;
    float block[MF][NF][4] = {};
#pragma unroll
    for (int k = 0; k < TILE_K / 8; k++) {
      uint32_t af[MF][4], bf[NF][2];
      const uint32_t a_chunk = ((2 * k + (matrix >> 1)) ^ i) << 4, b_chunk = ((2 * k + (matrix & 1)) ^ i) << 4;
#pragma unroll
      for (int m = 0; m < MF; m++) ldmatrix_x4(af[m], a_row + m * 16 * TILE_K * 4 + a_chunk);
#pragma unroll
      for (int n = 0; n < NF; n += 2) {
        uint32_t two[4];
        ldmatrix_x4(two, b_row + n * 8 * TILE_K * 4 + b_chunk);
        bf[n][0] = two[0], bf[n][1] = two[1], bf[n + 1][0] = two[2], bf[n + 1][1] = two[3];
      }
      products(block, af, bf);
    }
    promote(block);
  }

  // acc += A^T B over 32 k, both mn-major: As, Bs the tiles, m0 and n0 the warp's first column in each.
  template <int WIDTH_A, int WIDTH_B>
  __device__ __forceinline__ void multiply_mn_major(const float* As, const float* Bs, int m0, int n0) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    float block[MF][NF][4] = {};
#pragma unroll
    for (int k = 0; k < TILE_K; k += 8) {
      uint32_t af[MF][4], bf[NF][2];
#pragma unroll
      for (int m = 0; m < MF; m++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const int column = m0 + m * 16 + (e & 1) * 8 + g;
          af[m][e] = __float_as_uint(As[swizzle_mn_major<WIDTH_A>(k + t + (e >> 1) * 4, column >> 2) + (column & 3)]);
        }
#pragma unroll
      for (int n = 0; n < NF; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int column = n0 + n * 8 + g;
          bf[n][e] = __float_as_uint(Bs[swizzle_mn_major<WIDTH_B>(k + t + e * 4, column >> 2) + (column & 3)]);
        }
      products(block, af, bf);
    }
    promote(block);
  }

  // Calls store(m, n, v0, v1) for each pair of neighbouring columns, m and n within the warp tile.
  template <class Store>
  __device__ __forceinline__ void each_pair(Store store) const {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int m = 0; m < MF; m++)
#pragma unroll
      for (int n = 0; n < NF; n++)
#pragma unroll
        for (int h = 0; h < 2; h++)
          store(m * 16 + h * 8 + g, n * 8 + t * 2, acc[m][n][h * 2], acc[m][n][h * 2 + 1]);
  }

 private:
  static __device__ __forceinline__ void products(float (&block)[MF][NF][4], const uint32_t (&a)[MF][4],
                                                  const uint32_t (&b)[NF][2]) {
    uint32_t b_small[NF][2];
#pragma unroll
    for (int n = 0; n < NF; n++) b_small[n][0] = small_part(b[n][0]), b_small[n][1] = small_part(b[n][1]);
#pragma unroll
    for (int m = 0; m < MF; m++) {
      uint32_t a_small[4];
#pragma unroll
      for (int e = 0; e < 4; e++) a_small[e] = small_part(a[m][e]);
      mma_m16n8k8_tf32(block[m], a_small, b);
      mma_m16n8k8_tf32(block[m], a[m], b_small);
      mma_m16n8k8_tf32(block[m], a[m], b);
    }
  }

  __device__ __forceinline__ void promote(const float (&block)[MF][NF][4]) {
#pragma unroll
    for (int m = 0; m < MF; m++)
#pragma unroll
      for (int n = 0; n < NF; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) acc[m][n][e] += block[m][n][e];
  }
};
