// Y = A B for a batch of matrices, each operand as it is or transposed, on tensor cores (mma.sync), with sums in
// float32.
//
// A (D, M, K) or (D, K, M); B (D, K, N) or (D, N, K), or one B for all; Y (splits, D, M, N): split z sums the
// depths [z depth, (z + 1) depth) of K, a multiple of BK each, and the caller adds the splits.
//   MATH TF32  operands are floats, rounded to 11 bits: "tf32"
//   MATH BF16  operands are bfloat16, of which tf32 keeps all bits
// Each of WARPS_M WARPS_N warps computes 16 rows and BN / WARPS_N columns of a tile of BM x BN outputs. Per step of BK
// along K the operands go global -> registers -> shared; two shared tiles alternate, so that one barrier per step is
// enough. An operand whose contiguous axis is K lies in shared memory as [m or n][k], any other as [k][m or n], with
// rows of such a length that the 32 words of a fragment lie in 32 banks. Rows of any length and address are read, so a
// batch of small or odd matrices, as attention has them, needs no copy.
// Grid: tiles of N x tiles of M x D x splits, the first fastest. Block: 32 WARPS_M WARPS_N.
// Shared memory: 2 (A + B) floats, with EXTENT (BK + 4) of an operand with K contiguous, otherwise BK (EXTENT + 8).
// Needs sm_80; with VECTOR 4 the contiguous axes of A and B are multiples of 4, and A and B are 16-byte aligned
// (bfloat16: 8).
// Macros: MATH; TYPE (of the operands) and OUTPUT (of Y) float | bfloat16; BM = 16 WARPS_M, BN a multiple of 8 WARPS_N
// and of 16, BK, WARPS_N; TRANSPOSE_A, TRANSPOSE_B; VECTOR 1 | 4.
#include "common/math_mode.cuh"
#include "common/mma.cuh"
#include "matmul/operand.cuh"

constexpr MathMode MATH = ALPHA_MATH;
constexpr int BM = ALPHA_BM, BN = ALPHA_BN, BK = ALPHA_BK, VECTOR = ALPHA_VECTOR;
constexpr int WARPS_M = BM / 16, WARPS_N = ALPHA_WARPS_N, THREADS = 32 * WARPS_M * WARPS_N;
constexpr int COLUMNS = BN / WARPS_N, NF = COLUMNS / 8;         // of a warp: columns, and fragments of 8 of them
constexpr int AT_ONCE = NF % 4 == 0 ? 4 : NF % 2 == 0 ? 2 : 1;  // fragments of B in registers
static_assert(BM % 16 == 0 && BN % 16 == 0 && COLUMNS % 8 == 0 && BK % 8 == 0, "whole fragments");

using Element = ALPHA_TYPE;
using Output = ALPHA_OUTPUT;

template <int EXTENT, bool K_INNER>
struct SharedOperand : Operand<Element, EXTENT, BK, K_INNER, VECTOR, THREADS> {
  using Base = Operand<Element, EXTENT, BK, K_INNER, VECTOR, THREADS>;
  static constexpr int PITCH = K_INNER ? BK + 4 : EXTENT + 8;  // 4, or 8 or 24, modulo 32 banks
  static constexpr int SIZE = (K_INNER ? EXTENT : BK) * PITCH;

  // The word of (e, k) within the tile.
  static __device__ __forceinline__ int at(int e, int k) { return K_INNER ? e * PITCH + k : k * PITCH + e; }

  __device__ __forceinline__ void store(uint32_t* shared) const {
    Base::each([&](int row, int column, int outer, int inner) {
      const Pack<float, VECTOR> x = this->held[row][column].widened();
      Pack<uint32_t, VECTOR> rounded;
#pragma unroll
      for (int i = 0; i < VECTOR; i++) rounded.v[i] = MATH == BF16 ? __float_as_uint(x.v[i]) : round_tf32(x.v[i]);
      store_pack(shared + outer * PITCH + inner, rounded);
    });
  }
};

using A = SharedOperand<BM, !ALPHA_TRANSPOSE_A>;
using B = SharedOperand<BN, ALPHA_TRANSPOSE_B>;

// The warp's sums += A[:, k] B[k, :] of the first `depth` of one shared tile, from row m and column n of the tile on.
__device__ __forceinline__ void multiply(float (&sum)[NF][4], const uint32_t* a_tile, const uint32_t* b_tile, int m,
                                         int n, int depth) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int k = 0; k < BK; k += 8) {
    if (k >= depth) break;
    const uint32_t a[4] = {a_tile[A::at(m + g, k + t)], a_tile[A::at(m + g + 8, k + t)],
                           a_tile[A::at(m + g, k + t + 4)], a_tile[A::at(m + g + 8, k + t + 4)]};
#pragma unroll
    for (int j = 0; j < NF; j += AT_ONCE) {
      uint32_t b[AT_ONCE][2];
#pragma unroll
      for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) b[i][h] = b_tile[B::at(n + (j + i) * 8 + g, k + t + 4 * h)];
      mma_m16n8k8_tf32(reinterpret_cast<float (&)[AT_ONCE][4]>(sum[j]), a, b);
    }
  }
}

// Stores the warp's sums from row m and column n of Y (M, N) on.
__device__ __forceinline__ void write(Output* Y, const float (&sum)[NF][4], int m, int n, int M, int N) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int row = m + g + 8 * h;
    if (row >= M) continue;
#pragma unroll
    for (int j = 0; j < NF; j++) {
      const int column = n + j * 8 + 2 * t;
      Output* y = Y + size_t(row) * N + column;
      if (N % 2 == 0) {
        if (column < N) store_pack(y, Pack<float, 2>{sum[j][2 * h], sum[j][2 * h + 1]});
      } else {
#pragma unroll
        for (int i = 0; i < 2; i++)
          if (column + i < N) store_pack(y + i, Pack<float, 1>{sum[j][2 * h + i]});
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS)
    matmul_sm80(Output* __restrict__ Y, const Element* __restrict__ X, const Element* __restrict__ W, int M, int N,
                int K, int D, int depth, int one_b) {
  __shared__ __align__(16) uint32_t a[2][A::SIZE], b[2][B::SIZE];
  const OutputTile tile(BM, BN, M, N, K, D, depth);
  const int warp = threadIdx.x / 32, m = warp % WARPS_M * 16, n = warp / WARPS_M * COLUMNS;
  const int x_stride = ALPHA_TRANSPOSE_A ? M : K, w_stride = ALPHA_TRANSPOSE_B ? K : N;
  X += size_t(tile.d) * M * K;
  W += one_b ? 0 : size_t(tile.d) * K * N;
  A left;
  B right;
  left.fetch(X, x_stride, tile.m0, M, tile.k_start, tile.k_stop);
  right.fetch(W, w_stride, tile.n0, N, tile.k_start, tile.k_stop);
  float sum[NF][4] = {};
  for (int k = tile.k_start, stage = 0; k < tile.k_stop; k += BK, stage ^= 1) {
    left.store(a[stage]);
    right.store(b[stage]);
    __syncthreads();  // stored by all; the other stage was read before the barrier of the last step
    if (k + BK < tile.k_stop) {
      left.fetch(X, x_stride, tile.m0, M, k + BK, tile.k_stop);
      right.fetch(W, w_stride, tile.n0, N, k + BK, tile.k_stop);
    }
    multiply(sum, a[stage], b[stage], m, n, tile.k_stop - k);
  }
  write(Y + (size_t(tile.split) * D + tile.d) * M * N, sum, tile.m0 + m, tile.n0 + n, M, N);
}
