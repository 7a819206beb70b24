// The rows that the gradients of batch normalisation read together, and how a rectifier behind it changes dY.
#pragma once
#include "batchnorm/normalize.cuh"

using T = ALPHA_TYPE;
constexpr int V = ALPHA_VECTOR;

// Where the sign of what a rectifier was given is from.
constexpr int NOT_RECTIFIED = 0, FROM_X = 1, FROM_Y = 2;
constexpr int RECTIFIED = ALPHA_RECTIFIED;
constexpr int AHEAD = V == 8 || RECTIFIED != NOT_RECTIFIED ? 2 : 4;  // rows, as the registers allow

struct GradientRow {
  Pack<float, V> g, x, y;
};

// dZ of a row: dY, where the rectifier changed nothing.
__device__ __forceinline__ Pack<float, V> rectified_gradient(const GradientRow& row, const Normalization<V>& normalized,
                                                             const Rectifier<float>& rectifier) {
  Pack<float, V> g = row.g;
#pragma unroll
  for (int i = 0; i < V; i++) {
    if (RECTIFIED == FROM_X) g.v[i] = rectifier.gradient(g.v[i], normalized(row.x, i));
    if (RECTIFIED == FROM_Y) g.v[i] = rectifier.gradient(g.v[i], row.y.v[i]);
  }
  return g;
}
