// A warp's tile of a GEMM on tensor cores (mma.sync), in steps of 128 bytes of K: 32 floats or 64 bfloat16.
//
// The math mode says what the elements are and how their fragments are multiplied:
//   TF32X3  float, three products of tf32 terms; tensor cores truncate as they accumulate, so that the sum of each step
//           is promoted to a float32 accumulator: as accurate as FFMA (docs/benchmarks.md)
//   TF32    float, one product: b rounded to tf32, a truncated (a systematic 3.5e-4; rounding a costs as much again)
//   BF16    bfloat16, one product, exact
//
// Operands lie in shared memory in one of two swizzled layouts, both free of bank conflicts:
//   k-major   a row of 128 bytes per m or n; 16-byte chunk c of row r at chunk c ^ (r & 7)
//   mn-major  a row of WIDTH elements per k; 16-byte chunk c of row k at chunk c ^ 2 (k & 3), for bfloat16 at
//             c ^ (k & 7)
#pragma once
#include "common/bfloat16.cuh"
#include "common/ldmatrix.cuh"
#include "common/math_mode.cuh"
#include "common/tf32x3.cuh"
#include "common/vector.cuh"

constexpr int ROW_BYTES = 128, CHUNK_BYTES = 16;
constexpr int FRAGMENTS_K = ROW_BYTES / 32;  // per step: 8 floats or 16 bfloat16 each

template <MathMode>
struct Products;

template <>
struct Products<TF32X3> {
  using Element = float;
  static constexpr bool PROMOTED = true;

  template <int MF, int NF>
  static __device__ __forceinline__ void multiply(float (&d)[MF][NF][4], const uint32_t (&a)[MF][4],
                                                  const uint32_t (&b)[NF][2]) {
    multiply_tf32x3(d, a, b);
  }
};

template <>
struct Products<TF32> {
  using Element = float;
  static constexpr bool PROMOTED = false;

  template <int MF, int NF>
  static __device__ __forceinline__ void multiply(float (&d)[MF][NF][4], const uint32_t (&a)[MF][4],
                                                  const uint32_t (&b)[NF][2]) {
    uint32_t rounded[NF][2];
#pragma unroll
    for (int n = 0; n < NF; n++) rounded[n][0] = nearest(b[n][0]), rounded[n][1] = nearest(b[n][1]);
#pragma unroll
    for (int m = 0; m < MF; m++) mma_m16n8k8_tf32(d[m], a[m], rounded);
  }

 private:
  // As round_tf32, except for the 13 low bits, which the hardware ignores.
  static __device__ __forceinline__ uint32_t nearest(uint32_t x) {
    return fabsf(__uint_as_float(x)) < __uint_as_float(0x7f800000u) ? x + 0x1000u : x;
  }
};

template <>
struct Products<BF16> {
  using Element = bfloat16;
  static constexpr bool PROMOTED = false;

  template <int MF, int NF>
  static __device__ __forceinline__ void multiply(float (&d)[MF][NF][4], const uint32_t (&a)[MF][4],
                                                  const uint32_t (&b)[NF][2]) {
#pragma unroll
    for (int m = 0; m < MF; m++) mma_m16n8k16_bf16(d[m], a[m], b);
  }
};

// MF x NF fragments of 16 x 8: a warp tile of 16 MF x 8 NF.
template <MathMode MATH, int MF, int NF>
struct WarpTile {
  using Element = typename Products<MATH>::Element;
  static constexpr int TILE_K = ROW_BYTES / sizeof(Element), CHUNK = CHUNK_BYTES / sizeof(Element);
  static_assert(NF % 2 == 0, "B fragments are loaded in pairs");
  float acc[MF][NF][4] = {};

  // The offset of a chunk in each layout, in elements.
  static __device__ __forceinline__ int k_major(int row, int chunk) {
    return row * TILE_K + (chunk ^ (row & 7)) * CHUNK;
  }
  template <int WIDTH>
  static __device__ __forceinline__ int mn_major(int k, int chunk) {
    const int swizzle = sizeof(Element) == 2 ? k & 7 : (k & 3) << 1;
    return k * WIDTH + (chunk ^ swizzle) * CHUNK;
  }

  // acc += A B over a step, both k-major: a, b are the shared addresses of the warp's first rows (multiples of 8).
  __device__ __forceinline__ void multiply_k_major(uint32_t a, uint32_t b) {
    const int lane = threadIdx.x & 31, matrix = lane >> 3, i = lane & 7;
    const uint32_t a_row = a + ((matrix & 1) * 8 + i) * ROW_BYTES, b_row = b + ((matrix >> 1) * 8 + i) * ROW_BYTES;
    step([&](int k, uint32_t (&af)[MF][4], uint32_t (&bf)[NF][2]) {
      const uint32_t a_chunk = ((2 * k + (matrix >> 1)) ^ i) << 4, b_chunk = ((2 * k + (matrix & 1)) ^ i) << 4;
#pragma unroll
      for (int m = 0; m < MF; m++) ldmatrix_x4(af[m], a_row + m * 16 * ROW_BYTES + a_chunk);
#pragma unroll
      for (int n = 0; n < NF; n += 2) {
        uint32_t two[4];
        ldmatrix_x4(two, b_row + n * 8 * ROW_BYTES + b_chunk);
        bf[n][0] = two[0], bf[n][1] = two[1], bf[n + 1][0] = two[2], bf[n + 1][1] = two[3];
      }
    });
  }

  // acc += A^T B over a step, both mn-major: As, Bs the tiles, m0 and n0 the warp's first column in each.
  //
  // Lanes load neighbouring floats of a row, so a fragment's rows and columns are others than those of its operands:
  // row g and row g + 8 of a fragment of A are columns 2g and 2g + 1 of As, and column g of four fragments of B are
  // columns 4g .. 4g + 3 of Bs. each_pack_mn_major undoes that.
  template <int WIDTH_A, int WIDTH_B>
  __device__ __forceinline__ void multiply_mn_major(const float* As, const float* Bs, int m0, int n0) {
    static_assert(NF % 4 == 0, "a warp's columns are whole groups of 32");
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    step([&](int k, uint32_t (&af)[MF][4], uint32_t (&bf)[NF][2]) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = k * 8 + t + half * 4;
#pragma unroll
        for (int m = 0; m < MF; m++) {
          const int column = m0 + m * 16 + 2 * g;
          const uint2 v = *reinterpret_cast<const uint2*>(As + mn_major<WIDTH_A>(row, column >> 2) + (column & 3));
          af[m][half * 2] = v.x, af[m][half * 2 + 1] = v.y;
        }
#pragma unroll
        for (int n = 0; n < NF; n += 4) {
          const uint4 v = *reinterpret_cast<const uint4*>(Bs + mn_major<WIDTH_B>(row, n0 / 4 + n * 2 + g));
          bf[n][half] = v.x, bf[n + 1][half] = v.y, bf[n + 2][half] = v.z, bf[n + 3][half] = v.w;
        }
      }
    });
  }
  template <int WIDTH_A, int WIDTH_B>
  __device__ __forceinline__ void multiply_mn_major(const bfloat16* As, const bfloat16* Bs, int m0, int n0) {
    const int lane = threadIdx.x & 31, matrix = lane >> 3, i = lane & 7;
    const uint32_t a = shared_address(As), b = shared_address(Bs);
    step([&](int k, uint32_t (&af)[MF][4], uint32_t (&bf)[NF][2]) {
#pragma unroll
      for (int m = 0; m < MF; m++)
        ldmatrix_x4_trans(af[m],
                          a + mn_major<WIDTH_A>(k * 16 + (matrix >> 1) * 8 + i, m0 / 8 + m * 2 + (matrix & 1)) * 2);
#pragma unroll
      for (int n = 0; n < NF; n += 2) {
        uint32_t two[4];
        ldmatrix_x4_trans(two, b + mn_major<WIDTH_B>(k * 16 + (matrix & 1) * 8 + i, n0 / 8 + n + (matrix >> 1)) * 2);
        bf[n][0] = two[0], bf[n][1] = two[1], bf[n + 1][0] = two[2], bf[n + 1][1] = two[3];
      }
    });
  }

  // Calls store(m, n, pack) for each group of neighbouring columns after multiply_mn_major, m and n within the warp
  // tile.
  template <class Store>
  __device__ __forceinline__ void each_pack_mn_major(Store store) const {
    if constexpr (sizeof(Element) == 2) {
      each_pair([&](int m, int n, float v0, float v1) { store(m, n, Pack<float, 2>{v0, v1}); });
    } else {
      const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
      for (int m = 0; m < MF; m++)
#pragma unroll
        for (int n = 0; n < NF; n += 4)
#pragma unroll
          for (int e = 0; e < 4; e++)
            store(m * 16 + 2 * g + e / 2, n * 8 + 8 * t + e % 2 * 4,
                  Pack<float, 4>{acc[m][n][e], acc[m][n + 1][e], acc[m][n + 2][e], acc[m][n + 3][e]});
    }
  }

  // Calls store(m, n, v0, v1) for each pair of neighbouring columns after multiply_k_major, m and n within the warp
  // tile.
  template <class Store>
  __device__ __forceinline__ void each_pair(Store store) const {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int m = 0; m < MF; m++)
#pragma unroll
      for (int n = 0; n < NF; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) store(m * 16 + h * 8 + g, n * 8 + t * 2, acc[m][n][h * 2], acc[m][n][h * 2 + 1]);
  }

 private:
  // load(k, a, b) gives the k-th fragments of the step.
  template <class Load>
  __device__ __forceinline__ void step(Load load) {
    if constexpr (Products<MATH>::PROMOTED) {
      float block[MF][NF][4] = {};
      products(block, load);
#pragma unroll
      for (int m = 0; m < MF; m++)
#pragma unroll
        for (int n = 0; n < NF; n++)
#pragma unroll
          for (int e = 0; e < 4; e++) acc[m][n][e] += block[m][n][e];
    } else {
      products(acc, load);
    }
  }

  template <class Load>
  static __device__ __forceinline__ void products(float (&sum)[MF][NF][4], Load& load) {
#pragma unroll
    for (int k = 0; k < FRAGMENTS_K; k++) {
      uint32_t a[MF][4], b[NF][2];
      load(k, a, b);
      Products<MATH>::multiply(sum, a, b);
    }
  }
};
