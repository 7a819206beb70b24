// The rows that the gradients of batch normalisation read together, and how a rectifier behind it changes dY.
#pragma once
#include "batchnorm/normalize.cuh"

using T = ALPHA_TYPE;
constexpr int V = ALPHA_VECTOR;

// Where the sign of what a rectifier was given is from. With the last two X is not there: it is found again,
// normalised, from Y, or from Y and the residual.
constexpr int NOT_RECTIFIED = 0, FROM_X = 1, FROM_Y = 2, FROM_OUTPUT = 3, FROM_SUM = 4;
constexpr int RECTIFIED = ALPHA_RECTIFIED;
constexpr bool UNDONE = RECTIFIED == FROM_OUTPUT || RECTIFIED == FROM_SUM;
constexpr int AHEAD = V == 8 || RECTIFIED != NOT_RECTIFIED ? 2 : 4;  // rows, as the registers allow

struct GradientRow {
  Pack<float, V> g, x, y, residual;
};

// X - mean of element i; if it is UNDONE, (X - mean) / sqrt(var + eps).
__device__ __forceinline__ float centred(const GradientRow& row, const Normalization<V>& normalized,
                                         const Undone<V>& undone, int i) {
  if (UNDONE) return undone(row.y.v[i], RECTIFIED == FROM_SUM ? row.residual.v[i] : 0, i);
  return row.x.v[i] - normalized.mean.v[i];
}

// dZ of a row: dY, where the rectifier changed nothing.
template <class Rectifier>
__device__ __forceinline__ Pack<float, V> rectified_gradient(const GradientRow& row, const Normalization<V>& normalized,
                                                             const Rectifier& rectifier) {
  Pack<float, V> g = row.g;
#pragma unroll
  for (int i = 0; i < V; i++) {
    if (RECTIFIED == FROM_X) g.v[i] = rectifier.gradient(g.v[i], normalized(row.x, i));
    if (RECTIFIED == FROM_Y || UNDONE) g.v[i] = rectifier.gradient(g.v[i], row.y.v[i]);
  }
  return g;
}
