// A tile of Y = A B in float32: BM x BN outputs of 256 threads, (BM / 16) x (BN / 16) each in registers.
//
// Per step of BK along K the operands' tiles go global -> registers -> shared[k][m or n]; the loads of
// the next step are in flight while this one is multiplied, and two shared tiles alternate, so that one barrier
// per step is enough. Whatever lies outside the matrices is loaded as zero.
#pragma once
#include "common/cuda.h"
#include "common/vector.cuh"

constexpr int THREADS = 256, SIDE = 16;  // 16 x 16 threads
constexpr int PAD = 4;                   // keeps rows of shared memory 16-byte aligned, without bank conflicts

// One operand's tile: BK deep along K, EXTENT wide along M or N. K_INNER: K is the contiguous axis in memory.
template <int EXTENT, int BK, bool K_INNER, int V>
struct Operand {
  using Shared = float[BK][EXTENT + PAD];
  static constexpr int PACKS = EXTENT * BK / (V * THREADS), ACROSS = (K_INNER ? BK : EXTENT) / V;
  static_assert(EXTENT * BK % (V * THREADS) == 0, "every thread loads as much as any other");
  Pack<float, V> held[PACKS];

  // (e, k) of the thread's pack p within the tile.
  static __device__ __forceinline__ int e(int p) {
    const int pack = p * THREADS + threadIdx.x;
    return K_INNER ? pack / ACROSS : pack % ACROSS * V;
  }
  static __device__ __forceinline__ int k(int p) {
    const int pack = p * THREADS + threadIdx.x;
    return K_INNER ? pack % ACROSS * V : pack / ACROSS;
  }

  // From row or column e0 (of `extent`) and depth k0 on, below depth k_stop; `stride` is that of the outer axis.
  __device__ __forceinline__ void fetch(const float* X, int stride, int e0, int extent, int k0, int k_stop) {
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      const int row = e0 + e(p), depth = k0 + k(p);
      held[p] = {};
      if (row < extent && depth < k_stop)
        held[p] = load_pack<V>(X + size_t(K_INNER ? row : depth) * stride + (K_INNER ? depth : row));
    }
  }
  __device__ __forceinline__ void store(Shared& shared) const {
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      if (K_INNER) {
#pragma unroll
        for (int i = 0; i < V; i++) shared[k(p) + i][e(p)] = held[p].v[i];
      } else {
        store_pack(&shared[k(p)][e(p)], held[p]);
      }
    }
  }
};

template <int BM, int BN, int BK, bool TRANSPOSE_A, bool TRANSPOSE_B, int V>
struct Product {
  using A = Operand<BM, BK, !TRANSPOSE_A, V>;
  using B = Operand<BN, BK, TRANSPOSE_B, V>;
  static constexpr int TM = BM / SIDE, TN = BN / SIDE;
  static_assert(TM % 4 == 0 && TN % 4 == 0, "a thread reads four neighbouring numbers from shared memory");

  // Y += A[:, k] B[k, :] of one shared tile. A thread's rows are groups of four, 64 apart; so are its columns.
  static __device__ __forceinline__ void multiply(float (&y)[TM][TN], const typename A::Shared& a,
                                                  const typename B::Shared& b) {
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
#pragma unroll
    for (int k = 0; k < BK; k++) {
      Pack<float, 4> left[TM / 4], right[TN / 4];
#pragma unroll
      for (int g = 0; g < TM / 4; g++) left[g] = load_pack<4>(&a[k][g * 64 + ty * 4]);
#pragma unroll
      for (int g = 0; g < TN / 4; g++) right[g] = load_pack<4>(&b[k][g * 64 + tx * 4]);
#pragma unroll
      for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) y[i][j] += left[i / 4].v[i % 4] * right[j / 4].v[j % 4];
    }
  }

  static __device__ __forceinline__ void write(float* Y, const float (&y)[TM][TN], int m0, int n0, int M, int N) {
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
#pragma unroll
    for (int i = 0; i < TM; i++) {
      const int m = m0 + i / 4 * 64 + ty * 4 + i % 4;
      if (m >= M) continue;
#pragma unroll
      for (int g = 0; g < TN / 4; g++) {
        const int n = n0 + g * 64 + tx * 4;
        float* target = Y + size_t(m) * N + n;
        if (N % 4 == 0) {
          if (n < N) store_pack(target, Pack<float, 4>{y[i][4 * g], y[i][4 * g + 1], y[i][4 * g + 2], y[i][4 * g + 3]});
        } else {
#pragma unroll
          for (int j = 0; j < 4; j++)
            if (n + j < N) target[j] = y[i][4 * g + j];
        }
      }
    }
  }

  // The tile at (m0, n0) over depths [k_start, k_stop).
  static __device__ __forceinline__ void run(float* Y, const float* X, const float* W, int m0, int n0, int M, int N,
                                             int K, int k_start, int k_stop) {
    __shared__ __align__(16) typename A::Shared a[2];
    __shared__ __align__(16) typename B::Shared b[2];
    const int a_stride = TRANSPOSE_A ? M : K, b_stride = TRANSPOSE_B ? K : N;
    float y[TM][TN] = {};
    A left;
    B right;
    left.fetch(X, a_stride, m0, M, k_start, k_stop);
    right.fetch(W, b_stride, n0, N, k_start, k_stop);
    for (int k = k_start, stage = 0; k < k_stop; k += BK, stage ^= 1) {
      left.store(a[stage]);
      right.store(b[stage]);
      __syncthreads();  // stored by all; the other stage was read before the barrier of the last step
      if (k + BK < k_stop) {
        left.fetch(X, a_stride, m0, M, k + BK, k_stop);
        right.fetch(W, b_stride, n0, N, k + BK, k_stop);
      }
      multiply(y, a[stage], b[stage]);
    }
    write(Y, y, m0, n0, M, N);
  }
};
