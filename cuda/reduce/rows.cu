// The sum of each row of X (A, K), or its largest or smallest element and the column of the first one: sum.cu and
// fold.cu for rows of neighbours.
//
// sum_rows: Y (A,), of floats if X is bfloat16.
// extreme_rows: Y (A,) and `at` (A,) for `largest` 1 | 0; NaN is an extreme.
// A row is read once (common/rows.cuh). Sums have a fixed order.
// Grid: ceil(A / (256 / LANES * ROWS)). Block: 256. Shared memory: a few numbers per warp.
// Needs and macros: those of common/rows.cuh, and TYPE float | double | bfloat16. The arithmetic of bfloat16 is float.
#include "common/rows.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;

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

// Joins of numbers, of which NaN is the extreme, and of columns.
template <bool LARGEST>
struct Extremer {
  static __device__ __forceinline__ Real join(Real a, Real b) {
    return a != a ? a : b != b ? b : LARGEST ? fmax(a, b) : fmin(a, b);
  }
};
struct Smaller {
  static __device__ __forceinline__ int join(int a, int b) { return a < b ? a : b; }
};

// First the extremes, then the first columns in which they are.
template <bool LARGEST>
__device__ __forceinline__ void find_extremes(T* __restrict__ Y, long long* __restrict__ columns,
                                              const T* __restrict__ X, long long A, int K) {
  __shared__ Pack<Real, ROWS> numbers[ROW_WARPS];
  __shared__ Pack<int, ROWS> places[ROW_WARPS];
  const Real infinity = Real(__int_as_float(0x7f800000)), least = LARGEST ? -infinity : infinity;
  const RowPlaces at = RowPlaces::of_block(A, K);
  LaneBits<T> bits[ROWS];
  load_rows(bits, X, at, least);

  Pack<Real, ROWS> extreme = splat<ROWS>(least);
  bool has_nan[ROWS] = {};
  each_number(bits, [&](int r, int, Real x) {
    extreme.v[r] = LARGEST ? fmax(extreme.v[r], x) : fmin(extreme.v[r], x);
    has_nan[r] |= x != x;  // fmax leaves NaN out
  });
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    if (has_nan[r]) extreme.v[r] = Real(__int_as_float(0x7fffffff));
  extreme = join_lanes<Extremer<LARGEST>>(extreme, numbers);

  Pack<int, ROWS> first = splat<ROWS>(K);
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    const bool nan = extreme.v[r] != extreme.v[r];
    // backwards, so that the first one stays; what lies behind the end of the row comes after its elements
    auto search = [&](auto is_extreme) {
#pragma unroll
      for (int p = PACKS - 1; p >= 0; p--) {
        const Pack<Real, VECTOR> x = bits[r].pack[p].widened();
#pragma unroll
        for (int i = VECTOR - 1; i >= 0; i--)
          if (is_extreme(x.v[i])) first.v[r] = p * LANES * VECTOR + i;
      }
    };
    if (nan)
      search([](Real x) { return x != x; });
    else
      search([&](Real x) { return x == extreme.v[r]; });
    first.v[r] += at.lane * VECTOR;
  }
  first = join_lanes<Smaller>(first, places);
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    if (at.lane > 0 || !at.exists(r)) continue;
    Y[at.row(r)] = X[at.row(r) * K + first.v[r]];
    columns[at.row(r)] = first.v[r];
  }
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    extreme_rows(T* __restrict__ Y, long long* __restrict__ columns, const T* __restrict__ X, long long A, int K,
                 int largest) {
  if (largest)
    find_extremes<true>(Y, columns, X, A, K);
  else
    find_extremes<false>(Y, columns, X, A, K);
}
