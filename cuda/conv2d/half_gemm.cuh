// The consumers of a GEMM on wgmma whose operands are sums of scaled half-precision planes (common/half_pair.cuh).
//
//   sum (128 x BN) = sum over steps of 64 of K of A B
//
// B lies in shared memory as PLANES planes; A as floats, which are split in registers on their way to the tensor cores.
//   PLANES 2: hi hi + hi lo + lo hi, 22 bits, each step summed apart and promoted to a float32 sum: "float32"
//   PLANES 1: hi hi, 11 bits as TF32 has, one accumulator: "tf32"
//
// Block: two consumer warpgroups of 64 rows each, and a producer that fills a ring of STAGES tiles by the copy engine.
// Macros: BN 64 | 128 | 256, PLANES 1 | 2, STAGES, PW (positions a tile, see the including files).
#pragma once
#include "common/half_pair.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"

constexpr int BN = ALPHA_BN, PLANES = ALPHA_PLANES, STAGES = ALPHA_STAGES, PW = ALPHA_PW;
constexpr int GROUPS = 2, BM = 64 * GROUPS, BK = 64, THREADS = 128 * (GROUPS + 1), R = BN / 2;
static_assert(PLANES == 1 || BN <= 128, "two accumulators of 256 columns do not fit the registers");

__device__ __forceinline__ bool is_producer() { return threadIdx.x >= GROUPS * 128; }

// Tiles of STAGE bytes in a ring; a barrier for each that is full, and for each that both warpgroups have emptied.
template <int STAGE>
struct Ring {
  uint32_t tiles, full, empty;

  // Shared memory: `smem` of 1024 + STAGES STAGE bytes, `barriers` of 2 STAGES. Every thread of the block calls it.
  __device__ __forceinline__ Ring(const void* smem, uint64_t* barriers)
      : tiles((shared_address(smem) + 1023) & ~1023u), full(shared_address(barriers)), empty(shared_address(barriers + STAGES)) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < STAGES; i++) mbarrier_init(full_at(i), 1), mbarrier_init(empty_at(i), GROUPS);
      mbarrier_fence_init();
    }
    __syncthreads();
  }
  __device__ __forceinline__ uint32_t tile(int i) const { return tiles + i % STAGES * STAGE; }
  __device__ __forceinline__ uint32_t full_at(int i) const { return full + i % STAGES * 8; }
  __device__ __forceinline__ uint32_t empty_at(int i) const { return empty + i % STAGES * 8; }
  static __device__ __forceinline__ unsigned parity(int i) { return i / STAGES & 1; }

  // The producer's thread: the tile of step i, once it is free, with its bytes announced.
  __device__ __forceinline__ uint32_t begin(int i) const {
    if (i >= STAGES) mbarrier_wait(empty_at(i), parity(i) ^ 1);
    mbarrier_arrive_expect(full_at(i), STAGE);
    return tile(i);
  }
};

// A scaled fragment register of two floats, in planes.
__device__ __forceinline__ void to_planes(float lower, float upper, uint32_t& hi, uint32_t& lo) {
  if (PLANES == 2)
    split_pair(lower, upper, hi, lo);
  else
    hi = pack_half(lower, upper);
}

// load_a(tile, k, hi, lo): the A fragment of the k-th 16 of K; b_plane(tile, plane, k): the descriptor of B's.
template <int b_transposed, int STAGE, class LoadA, class BPlane>
__device__ __forceinline__ void consume(const Ring<STAGE>& ring, int steps, float (&sum)[R], LoadA load_a, BPlane b_plane) {
  float block[R];
  for (int i = 0; i < steps; i++) {
    mbarrier_wait(ring.full_at(i), ring.parity(i));
    const uint32_t tile = ring.tile(i);
    uint32_t hi[BK / 16][4], lo[BK / 16][4];
#pragma unroll
    for (int k = 0; k < BK / 16; k++) {
      load_a(tile, k, hi[k], lo[k]);  // the products of the last k are under way
      wgmma_fence();
      const uint64_t b_hi = b_plane(tile, 0, k);
      if (PLANES == 2) {
        wgmma_f16<b_transposed>(block, lo[k], b_hi, k != 0);
        wgmma_f16<b_transposed>(block, hi[k], b_plane(tile, 1, k), 1);
        wgmma_f16<b_transposed>(block, hi[k], b_hi, 1);
      } else {
        wgmma_f16<b_transposed>(sum, hi[k], b_hi, 1);
      }
      wgmma_commit();
    }
    wgmma_wait<0>();
    if (threadIdx.x % 128 == 0) mbarrier_arrive(ring.empty_at(i));
    if (PLANES == 2) {
#pragma unroll
      for (int r = 0; r < R; r++) sum[r] += block[r];
    }
  }
}

// Scales back and stores: row_of(row) is where row (of 128) begins, or null; `columns` of it are inside.
template <class RowOf>
__device__ __forceinline__ void store_rows(const float (&sum)[R], const unsigned* absmax, int columns, RowOf row_of) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const float inverse_0 = inverse_scale(half_scale(absmax[0])), inverse_1 = inverse_scale(half_scale(absmax[1]));
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float* c = row_of(int(threadIdx.x / 32 * 16 + g + 8 * h));
    if (c == nullptr) continue;
#pragma unroll
    for (int j = 0; j < BN / 8; j++) {
      const int column = j * 8 + t * 2;
      if (column < columns)
        *reinterpret_cast<float2*>(c + column) =
            make_float2(sum[j * 4 + h * 2] * inverse_0 * inverse_1, sum[j * 4 + h * 2 + 1] * inverse_0 * inverse_1);
    }
  }
}
