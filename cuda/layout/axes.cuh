// A box of elements in two arrays: element (i0, i1, ..) lies at x_base + i0 x[0] + i1 x[1] + .. of X, and likewise in
// Y. Axis 0 is the fastest. Bases and strides count words; a stride may be 0 or negative.
//
// Index: `unsigned` if all offsets fit in an int, `unsigned long long` otherwise. The divisions by lengths are then
// multiplications by numbers of the table (alpha/ops/kernel/views.py), of which the GPU has an instruction.
#pragma once
#include "common/cuda.h"

constexpr int MAX_AXES = 8;

struct Axes {
  long long length[MAX_AXES], x[MAX_AXES], y[MAX_AXES];
  long long x_base, y_base;
  unsigned multiplier[MAX_AXES], shift[MAX_AXES];  // i / length is the upper word of i multiplier, shifted; 0: length 1
  int count;
};

template <typename Index>
struct OffsetOf {
  using Type = long long;
};
template <>
struct OffsetOf<unsigned> {
  using Type = int;
};
template <typename Index>
using Offset = typename OffsetOf<Index>::Type;

// The place along an axis of element i, counted with this axis fastest; i becomes its number along the slower axes.
__device__ __forceinline__ unsigned take_axis(const Axes& axes, int axis, unsigned& i) {
  const unsigned multiplier = axes.multiplier[axis];
  const unsigned rest = multiplier == 0 ? i : __umulhi(i, multiplier) >> axes.shift[axis];
  const unsigned place = i - rest * unsigned(axes.length[axis]);
  i = rest;
  return place;
}
__device__ __forceinline__ unsigned long long take_axis(const Axes& axes, int axis, unsigned long long& i) {
  const unsigned long long rest = i / axes.length[axis], place = i - rest * axes.length[axis];
  i = rest;
  return place;
}

// Where N elements of the box lie, each given by its number along the axes from FIRST on. The divisions of different
// elements do not wait for each other.
template <int FIRST, int N, typename Index>
__device__ __forceinline__ void locate(const Axes& axes, Index (&i)[N], Offset<Index> (&x)[N], Offset<Index> (&y)[N]) {
#pragma unroll
  for (int n = 0; n < N; n++) x[n] = Offset<Index>(axes.x_base), y[n] = Offset<Index>(axes.y_base);
#pragma unroll
  for (int axis = FIRST; axis < MAX_AXES; axis++) {
    if (axis >= axes.count) break;
#pragma unroll
    for (int n = 0; n < N; n++) {
      const Offset<Index> place = Offset<Index>(take_axis(axes, axis, i[n]));
      x[n] += place * Offset<Index>(axes.x[axis]);
      y[n] += place * Offset<Index>(axes.y[axis]);
    }
  }
}
