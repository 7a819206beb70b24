// Y = A B for a batch of matrices, each operand as it is or transposed, in float32 FFMA.
//
// A (D, M, K) or (D, K, M); B (D, K, N) or (D, N, K), or one B for all; Y (splits, D, M, N): split z sums the
// depths [z depth, (z + 1) depth) of K, a multiple of BK each, and the caller adds the splits.
// Grid: tiles of N x tiles of M x D x splits, the first fastest. Block: 256. Shared memory: 2 BK (BM + BN + 8) floats.
// Registers: (BM / 16) (BN / 16) sums and as many loads in flight as the tile needs, at most 128 per thread.
// Needs: with VECTOR 4 the contiguous axes of A and B are multiples of 4 and A and B are 16-byte aligned;
// with VECTOR 1 BM and BN 64, since the loads of a larger tile would spill.
// Macros: BM 64 | 128; BN 64; BK; TRANSPOSE_A, TRANSPOSE_B; VECTOR 1 | 4.
#include "matmul/matmul.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    matmul(float* __restrict__ Y, const float* __restrict__ A, const float* __restrict__ B, int M, int N, int K, int D,
           int depth, int one_b) {
  constexpr int BM = ALPHA_BM, BN = ALPHA_BN;
  const unsigned tiles_n = (N + BN - 1) / BN, tiles_m = (M + BM - 1) / BM;
  unsigned block = blockIdx.x;
  const int n0 = block % tiles_n * BN;
  block /= tiles_n;
  const int m0 = block % tiles_m * BM;
  block /= tiles_m;
  const unsigned d = block % D, z = block / D;
  const int k_start = min((long long)z * depth, (long long)K), k_stop = min((long long)k_start + depth, (long long)K);
  Product<BM, BN, ALPHA_BK, ALPHA_TRANSPOSE_A, ALPHA_TRANSPOSE_B, ALPHA_VECTOR>::run(
      Y + (size_t(z) * D + d) * M * N, A + size_t(d) * M * K, B + (one_b ? 0 : size_t(d) * K * N), m0, n0, M, N, K,
      k_start, k_stop);
}
