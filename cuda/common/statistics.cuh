// Count, mean and sum of squared deviations of some rows, a pack of columns wide; `+=` merges two sets of rows by the
// pairwise update of Chan, Golub & LeVeque (1983).
#pragma once
#include "common/vector.cuh"

template <int N>
struct Statistics {
  float count;
  Pack<float, N> mean, squares;
};

template <int N>
__device__ __forceinline__ void operator+=(Statistics<N>& a, const Statistics<N>& b) {
  if (b.count == 0) return;
  const float count = a.count + b.count, share = b.count / count;
#pragma unroll
  for (int i = 0; i < N; i++) {
    const float distance = b.mean.v[i] - a.mean.v[i];
    a.squares.v[i] += b.squares.v[i] + distance * distance * a.count * share;
    // an infinite distance would make a mean of inf NaN
    a.mean.v[i] =
        isfinite(distance) ? a.mean.v[i] + distance * share : a.mean.v[i] * (a.count / count) + b.mean.v[i] * share;
  }
  a.count = count;
}
