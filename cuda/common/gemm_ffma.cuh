// A register-tiled float32 GEMM on FFMA whose operands are read through a Problem: implicit GEMM of any shape.
//
//   C[m, n] = sum over k in [k_begin, k_end) of A(m, k) B(k, n)
//
// A Problem gives: M, N; `Row row(m)`, `Column column(n)`, `Step step(k)` (index arithmetic, done once per row, column
// and step); `a(Row, Step)`, `b(Column, Step)` (a value, or 0 if there is none); `meets(Row, Column, Step)` (false if
// the product is one with padding); `store(m, n, value)`.
// Padding is multiplied as zeros, and zero times infinity or NaN is NaN. So a sum that is NaN is computed again without
// it.
//
// Grid: the caller maps blocks to (m0, n0, k_begin, k_end). Block: 256 threads, each 4 x 4 of C.
// Shared memory: 2 (BK (BM + 4) + BK (BN + 4)) floats. Registers: <= 128.
// Macros of the including file: ALPHA_BM, ALPHA_BN = 64, ALPHA_BK = 16.
#pragma once
#include "common/cuda.h"

template <class Problem, bool a_k_fast, bool b_k_fast>
struct GemmFfma {
  static constexpr int BM = ALPHA_BM, BN = ALPHA_BN, BK = ALPHA_BK, THREADS = 256;
  static constexpr int LOADS_A = BM * BK / THREADS, LOADS_B = BN * BK / THREADS;
  static_assert(BM == 64 && BN == 64, "a thread computes 4 x 4 of a 64 x 64 tile");
  static_assert(BM * BK % THREADS == 0 && THREADS % BK == 0, "every thread loads the same number of values");

  // The place in the tile of a thread's i-th load: neighbours along k, or along m (n).
  template <bool k_fast, int width>
  static __device__ __forceinline__ int place_k(int i) {
    return k_fast ? threadIdx.x % BK : (threadIdx.x + i * THREADS) / width;
  }
  template <bool k_fast, int width>
  static __device__ __forceinline__ int place_row(int i) {
    return k_fast ? (threadIdx.x + i * THREADS) / BK : threadIdx.x % width;
  }

  static __device__ __forceinline__ void run(const Problem& p, int m0, int n0, int k_begin, int k_end) {
    __shared__ float As[2][BK][BM + 4], Bs[2][BK][BN + 4];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    typename Problem::Row rows[LOADS_A];
    typename Problem::Column columns[LOADS_B];
#pragma unroll
    for (int i = 0; i < LOADS_A; i++) rows[i] = p.row(m0 + place_row<a_k_fast, BM>(i));
#pragma unroll
    for (int i = 0; i < LOADS_B; i++) columns[i] = p.column(n0 + place_row<b_k_fast, BN>(i));

    float next_a[LOADS_A], next_b[LOADS_B];
    auto fetch = [&](int k0) {
#pragma unroll
      for (int i = 0; i < LOADS_A; i++) {
        const int k = k0 + place_k<a_k_fast, BM>(i);
        next_a[i] = k < k_end ? p.a(rows[i], p.step(k)) : 0.f;
      }
#pragma unroll
      for (int i = 0; i < LOADS_B; i++) {
        const int k = k0 + place_k<b_k_fast, BN>(i);
        next_b[i] = k < k_end ? p.b(columns[i], p.step(k)) : 0.f;
      }
    };
    auto stage = [&](int s) {
#pragma unroll
      for (int i = 0; i < LOADS_A; i++) As[s][place_k<a_k_fast, BM>(i)][place_row<a_k_fast, BM>(i)] = next_a[i];
#pragma unroll
      for (int i = 0; i < LOADS_B; i++) Bs[s][place_k<b_k_fast, BN>(i)][place_row<b_k_fast, BN>(i)] = next_b[i];
    };

    float acc[4][4] = {};
    fetch(k_begin);
    stage(0);
    __syncthreads();
    int s = 0;
    for (int k0 = k_begin; k0 < k_end; k0 += BK, s ^= 1) {
      const bool more = k0 + BK < k_end;
      if (more) fetch(k0 + BK);  // in flight while this tile is multiplied
#pragma unroll
      for (int k = 0; k < BK; k++) {
        const float4 a = *reinterpret_cast<const float4*>(&As[s][k][ty * 4]);
        const float4 b = *reinterpret_cast<const float4*>(&Bs[s][k][tx * 4]);
        const float av[4] = {a.x, a.y, a.z, a.w}, bv[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int j = 0; j < 4; j++) acc[i][j] += av[i] * bv[j];
      }
      if (more) stage(s ^ 1);  // the other stage: its readers passed the barrier of the last step
      __syncthreads();
    }
    unsigned not_numbers = 0;  // a bit for each sum
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int m = m0 + ty * 4 + i, n = n0 + tx * 4 + j;
        if (m < p.M && n < p.N) {
          p.store(m, n, acc[i][j]);
          if (acc[i][j] != acc[i][j]) not_numbers |= 1u << (i * 4 + j);
        }
      }
#pragma unroll 1
    for (int e = 0; not_numbers >> e; e++)
      if (not_numbers >> e & 1) {
        const int m = m0 + ty * 4 + e / 4, n = n0 + tx * 4 + e % 4;
        p.store(m, n, sum_without_padding(p, p.row(m), p.column(n), k_begin, k_end));
      }
  }

 private:
  static __device__ float sum_without_padding(const Problem& p, const typename Problem::Row& row,
                                              const typename Problem::Column& column, int k_begin, int k_end) {
    float sum = 0;
#pragma unroll 1
    for (int k = k_begin; k < k_end && sum == sum; k++) {
      const typename Problem::Step step = p.step(k);
      if (p.meets(row, column, step)) sum += p.a(row, step) * p.b(column, step);
    }
    return sum;
  }
};
