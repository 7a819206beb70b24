// The statistics of columns of a matrix, from deviations about the first value of each column.
#pragma once
#include "common/columns.cuh"
#include "common/statistics.cuh"

// The statistics of the rows r, r + step, .. below `stop` of X, whose rows are C apart.
template <int N, typename T>
__device__ __forceinline__ Statistics<N> column_moments(const T* X, int C, int r, int stop, int step) {
  Statistics<N> result = {};
  if (r >= stop) return result;
  const int count = (stop - r + step - 1) / step;
  Pack<float, N> origin = load_pack<N>(X + size_t(r) * C);
#pragma unroll
  for (int i = 0; i < N; i++)
    if (!isfinite(origin.v[i])) origin.v[i] = 0;  // inf - inf would make a mean of inf NaN
  Pack<float, N> sum = {}, squares = {};
  visit_rows(
      r, stop, step, [&](int row) { return load_pack<N>(X + size_t(row) * C); },
      [&](int, const Pack<float, N>& value) {
#pragma unroll
        for (int i = 0; i < N; i++) {
          const float d = value.v[i] - origin.v[i];
          sum.v[i] += d, squares.v[i] += d * d;
        }
      });
  result.count = count;
#pragma unroll
  for (int i = 0; i < N; i++) {
    const float shift = sum.v[i] / count;
    result.mean.v[i] = origin.v[i] + shift;
    const float around = squares.v[i] - sum.v[i] * shift;
    result.squares.v[i] = around < 0 ? 0 : around;  // by rounding; NaN stays NaN
  }
  return result;
}
