// The sum of each row of X (A, K), or its largest or smallest element and the column of the first one: sum.cu and fold.cu
// for rows of neighbours.
//
// sum_rows: Y (A,), of floats if X is bfloat16.
// extreme_rows: Y (A,) and `at` (A,) for `largest` 1 | 0; NaN is an extreme.
// A row is read once (common/rows.cuh). Sums have a fixed order.
// Grid: ceil(A / (256 / LANES * ROWS)). Block: 256. Shared memory: a state per warp if LANES > 32.
// Needs and macros: those of common/rows.cuh, and TYPE float | double | bfloat16. The arithmetic of bfloat16 is float.
#include "common/rows.cuh"
#include "reduce/extreme.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;
using Extreme = ExtremeOf<T, int>;

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    sum_rows(Real* __restrict__ Y, const T* __restrict__ X, long long A, int K) {
  __shared__ Pack<Real, ROWS> shared[ROW_WARPS];
  const RowPlaces at = RowPlaces::of_block(A, K);
  LaneBits<T> bits[ROWS];
  load_rows(bits, X, at);
  Pack<Real, ROWS> sum = {};
  each_number(bits, [&](int r, int, Real x) { sum.v[r] += x; });
  sum = join_lanes<Add>(sum, shared);
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    if (at.lane == 0 && at.exists(r)) Y[at.row(r)] = sum.v[r];
}

// The extreme of all lanes of a row, for each of them. Every thread of the block must call it.
__device__ __forceinline__ void join_extremes(Extreme& state, Extreme* shared) {
#pragma unroll
  for (int distance = (LANES < 32 ? LANES : 32) / 2; distance > 0; distance /= 2) {
    Extreme other = state;
    other.value = __shfl_xor_sync(~0u, state.value, distance);
    other.at = __shfl_xor_sync(~0u, state.at, distance);
    state += other;
  }
  if constexpr (LANES > 32) {
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = state;
    __syncthreads();  // the states of all warps are written
    const Extreme* warps = shared + threadIdx.x / LANES * (LANES / 32);
    state = warps[0];
#pragma unroll
    for (int warp = 1; warp < LANES / 32; warp++) state += warps[warp];
  }
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    extreme_rows(T* __restrict__ Y, long long* __restrict__ columns, const T* __restrict__ X, long long A, int K,
                 int largest) {
  __shared__ __align__(16) unsigned char shared[ROW_WARPS * sizeof(Extreme)];
  const RowPlaces at = RowPlaces::of_block(A, K);
  LaneBits<T> bits[ROWS];
  load_rows(bits, X, at);
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    Extreme state(largest);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      if (!at.has(p)) continue;
      const Pack<Real, VECTOR> x = bits[r].pack[p].widened();
#pragma unroll
      for (int i = 0; i < VECTOR; i++) state.meet(x.v[i], (p * LANES + at.lane) * VECTOR + i);
    }
    join_extremes(state, reinterpret_cast<Extreme*>(shared));
    if (at.lane > 0 || !at.exists(r)) continue;
    store_pack(Y + at.row(r), Pack<Real, 1>{{state.value}});
    columns[at.row(r)] = state.at;
  }
}
