// Y = A B for a batch of matrices, each operand as it is or transposed, in float32 FFMA.
//
// A (D, M, K) or (D, K, M); B (D, K, N) or (D, N, K), or one B for all; Y (splits, D, M, N): split z sums the
// depths [z depth, (z + 1) depth) of K, a multiple of BK each, and the caller adds the splits.
// A tile of BM x BN outputs is computed by 256 threads, (BM / 16) x (BN / 16) each in registers. Per step of BK along K
// the operands go global -> registers -> shared[k][m or n]; two shared tiles alternate, so that one barrier per step is
// enough.
// Grid: tiles of N x tiles of M x D x splits, the first fastest. Block: 256. Shared memory: 2 BK (BM + BN + 8) floats.
// Registers: (BM / 16) (BN / 16) sums and as many loads in flight as the tile needs, at most 128 per thread.
// Needs: with VECTOR 4 the contiguous axes of A and B are multiples of 4 and A and B are 16-byte aligned;
// with VECTOR 1 BM and BN 64, since the loads of a larger tile would spill.
// Macros: BM 64 | 128; BN 64; BK; TRANSPOSE_A, TRANSPOSE_B; VECTOR 1 | 4.
#include "matmul/operand.cuh"

constexpr int THREADS = 256, SIDE = 16;  // 16 x 16 threads
constexpr int PAD = 4;                   // keeps rows of shared memory 16-byte aligned, without bank conflicts

template <int EXTENT, int BK, bool K_INNER, int V>
struct SharedOperand : Operand<float, EXTENT, BK, K_INNER, V, THREADS> {
  using Base = Operand<float, EXTENT, BK, K_INNER, V, THREADS>;
  using Shared = float[BK][EXTENT + PAD];

  __device__ __forceinline__ void store(Shared& shared) const {
    Base::each([&](int row, int column, int outer, int inner) {
      const Pack<float, V> pack = this->held[row][column].widened();
      if (K_INNER) {
#pragma unroll
        for (int i = 0; i < V; i++) shared[inner + i][outer] = pack.v[i];
      } else {
        store_pack(&shared[outer][inner], pack);
      }
    });
  }
};

template <int BM, int BN, int BK, bool TRANSPOSE_A, bool TRANSPOSE_B, int V>
struct Product {
  using A = SharedOperand<BM, BK, !TRANSPOSE_A, V>;
  using B = SharedOperand<BN, BK, TRANSPOSE_B, V>;
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

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    matmul(float* __restrict__ Y, const float* __restrict__ A, const float* __restrict__ B, int M, int N, int K, int D,
           int depth, int one_b) {
  constexpr int BM = ALPHA_BM, BN = ALPHA_BN;
  const OutputTile tile(BM, BN, M, N, K, D, depth);
  Product<BM, BN, ALPHA_BK, ALPHA_TRANSPOSE_A, ALPHA_TRANSPOSE_B, ALPHA_VECTOR>::run(
      Y + (size_t(tile.split) * D + tile.d) * M * N, A + size_t(tile.d) * M * K,
      B + (one_b ? 0 : size_t(tile.d) * K * N), tile.m0, tile.n0, M, N, K, tile.k_start, tile.k_stop);
}
