// dY and X at the same offset, which the gradients of batch normalisation read together.
#pragma once
#include "common/columns.cuh"

using T = ALPHA_TYPE;
constexpr int V = ALPHA_VECTOR;

struct Pair {
  Pack<float, V> g, x;
};
