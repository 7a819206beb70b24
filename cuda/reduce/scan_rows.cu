// Y[a, r] = sum, or product, of X[a, s] over s <= r, or over s >= r if REVERSE; X, Y (A, K). scan.cu for rows of
// neighbours.
//
// A row is read once, in turns of PACKS packs per lane (common/rows.cuh), which stay in registers as they lie in
// memory: each lane joins its packs, the lanes scan what they found, and each lane goes through its packs again from
// there. So most rows take one turn, and longer ones carry their sum from turn to turn. If there are few rows, they are
// cut into segments of `segment` packs, counted in the direction of the scan: segment_rows finds the sum of each, a
// scan of those is `before` (A, segments), and scan_rows begins each segment with the sum of those before it. `before`
// is null for one segment.
// segment_rows: sums (A, segments), each of a whole segment.
// Sums and products have a fixed order.
// Grid: (ceil(A / (256 / LANES * ROWS)), segments). Block: 256. Shared memory: a number per pack and warp, twice, if
// LANES > 32.
// Needs: K is a multiple of VECTOR and the rows are aligned to packs. K has any length.
// Macros: those of common/rows.cuh; TYPE float | double | bfloat16 | long long; REVERSE 0 | 1; PRODUCT 0 | 1.
// A sum of bfloat16 is a float, which each element rounds.
#include "common/rows.cuh"

using T = ALPHA_TYPE;
using Sum = Number<T>;
constexpr bool REVERSE = ALPHA_REVERSE, PRODUCT = ALPHA_PRODUCT;
constexpr int WIDTH = LANES < 32 ? LANES : 32;  // lanes of a row within a warp

__device__ __forceinline__ Sum joined(Sum a, Sum b) { return PRODUCT ? a * b : a + b; }

// Element i of a pack in the direction of the scan.
__device__ __forceinline__ Sum element(const Pack<Sum, VECTOR>& x, int i) { return x.v[REVERSE ? VECTOR - 1 - i : i]; }

// Each lane's totals become what all lanes before it found, and `whole` what all lanes found, pack by pack.
// `shared`: a number per pack and warp if LANES > 32, which no other call uses before another barrier.
__device__ __forceinline__ void scan_lanes(Sum (&total)[PACKS], Sum (&whole)[PACKS], Sum (*shared)[ROW_WARPS]) {
  const int lane = threadIdx.x % WIDTH, warp = threadIdx.x / 32;
#pragma unroll
  for (int distance = 1; distance < WIDTH; distance *= 2)
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      const Sum other = __shfl_up_sync(~0u, total[p], distance, WIDTH);
      if (lane >= distance) total[p] = joined(other, total[p]);
    }
  if (LANES > 32 && lane == 31)
#pragma unroll
    for (int p = 0; p < PACKS; p++) shared[p][warp] = total[p];
#pragma unroll
  for (int p = 0; p < PACKS; p++) {
    if (LANES <= 32) whole[p] = __shfl_sync(~0u, total[p], WIDTH - 1, WIDTH);
    const Sum other = __shfl_up_sync(~0u, total[p], 1, WIDTH);
    total[p] = lane == 0 ? Sum(PRODUCT) : other;
  }
  if constexpr (LANES > 32) {
    constexpr int WARPS = LANES < 32 ? 1 : LANES / 32;  // of a row
    __syncthreads();                                    // the totals of all warps are written
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      Sum lower = Sum(PRODUCT);
      whole[p] = Sum(PRODUCT);
#pragma unroll
      for (int w = 0; w < WARPS; w++) {
        if (w == warp % WARPS) lower = whole[p];
        whole[p] = joined(whole[p], shared[p][warp / WARPS * WARPS + w]);
      }
      total[p] = joined(lower, total[p]);
    }
  }
}

template <bool WRITE>
__device__ __forceinline__ void scan(T* __restrict__ Y, Sum* __restrict__ sums, const T* __restrict__ X,
                                     const Sum* __restrict__ before, long long A, long long K, long long segment) {
  __shared__ Sum shared[2][PACKS][ROW_WARPS];  // of this turn and of the one before
  const int lane = threadIdx.x % LANES;
  const long long packs = K / VECTOR, first = blockIdx.y * segment;
  const int count = int(packs - first < segment ? packs - first : segment);
  // where pack `number` of the segment begins, counted in the direction of the scan
  auto place = [&](int number) { return (REVERSE ? packs - 1 - first - number : first + number) * VECTOR; };
  long long row[ROWS];
  Sum carried[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    row[r] = (long long)blockIdx.x * BLOCK_GROUPS * ROWS + threadIdx.x / LANES + r * BLOCK_GROUPS;
    carried[r] = before && blockIdx.y > 0 && row[r] < A ? before[row[r] * gridDim.y + blockIdx.y - 1] : Sum(PRODUCT);
  }
  int turn = 0;
  for (int start = 0; start < count; start += PACKS * LANES, turn ^= 1) {
    Bits<T, VECTOR> bits[ROWS][PACKS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int p = 0; p < PACKS; p++) {
        const int number = start + p * LANES + lane;
        bits[r][p] = row[r] < A && number < count ? load_bits<VECTOR>(X + row[r] * K + place(number))
                                                  : Bits<T, VECTOR>::of(Sum(PRODUCT));
      }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      Sum total[PACKS], whole[PACKS];
#pragma unroll
      for (int p = 0; p < PACKS; p++) {
        const Pack<Sum, VECTOR> x = bits[r][p].widened();
        total[p] = element(x, 0);
#pragma unroll
        for (int i = 1; i < VECTOR; i++) total[p] = joined(total[p], element(x, i));
      }
      scan_lanes(total, whole, shared[turn]);
#pragma unroll
      for (int p = 0; p < PACKS; p++) {
        const int number = start + p * LANES + lane;
        if (WRITE && row[r] < A && number < count) {
          const Pack<Sum, VECTOR> x = bits[r][p].widened();
          Pack<Sum, VECTOR> y;
          Sum sum = joined(carried[r], total[p]);
#pragma unroll
          for (int i = 0; i < VECTOR; i++) {
            sum = joined(sum, element(x, i));
            y.v[REVERSE ? VECTOR - 1 - i : i] = sum;
          }
          store_pack(Y + row[r] * K + place(number), y);
        }
        carried[r] = joined(carried[r], whole[p]);
      }
    }
  }
  if constexpr (!WRITE) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      if (lane == 0 && row[r] < A) sums[row[r] * gridDim.y + blockIdx.y] = carried[r];
  }
}

// Without a number of blocks the compiler saves registers until it spills.
constexpr int BLOCKS = LANES > 32 ? 3 : 4;

extern "C" __global__ void __launch_bounds__(ROW_THREADS, BLOCKS)
    scan_rows(T* __restrict__ Y, const T* __restrict__ X, const Sum* __restrict__ before, long long A, long long K,
              long long segment) {
  scan<true>(Y, nullptr, X, before, A, K, segment);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS, BLOCKS)
    segment_rows(Sum* __restrict__ sums, const T* __restrict__ X, long long A, long long K, long long segment) {
  scan<false>(nullptr, sums, X, nullptr, A, K, segment);
}
