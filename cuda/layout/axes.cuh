// A box of elements in two arrays: element (i0, i1, ..) lies at x_base + i0 x[0] + i1 x[1] + .. of X, and likewise in Y.
#pragma once
#include "common/cuda.h"

constexpr int MAX_AXES = 8;

// Bases and strides count words. A stride may be 0 or negative.
struct Axes {
  long long length[MAX_AXES], x[MAX_AXES], y[MAX_AXES];
  long long x_base, y_base;
  int count, tiled;  // axes; the axis along which X is contiguous, for permute.cu
};

// Where element i of the box lies, counted with the last axis fastest.
template <typename Index>
__device__ __forceinline__ void locate(const Axes& axes, Index i, long long& x, long long& y) {
  x = axes.x_base, y = axes.y_base;
  for (int axis = axes.count - 1; axis > 0; axis--) {
    const Index length = Index(axes.length[axis]), at = i % length;
    x += (long long)(at)*axes.x[axis];
    y += (long long)(at)*axes.y[axis];
    i /= length;
  }
  x += (long long)(i)*axes.x[0];
  y += (long long)(i)*axes.y[0];
}
