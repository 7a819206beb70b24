// The shape of a convolution and the arithmetic of filter trimming, one axis at a time (alpha/ops/conv2d/shape.py).
#pragma once
#include "common/divide.cuh"

struct ConvShape {
  int N, IH, IW, IC, OC, FH, FW, sh, sw, ph, pw, OH, OW;
};

// With groups and dilation.
struct GroupedShape : ConvShape {
  int groups, dh, dw;
};

// With a depth and dilation, without groups. The maps and the filters are seen as if they had ID IH, OD OH and FD FH
// rows. An axis with a dilation has stride 1.
struct AxesShape : ConvShape {
  int dh, dw, ID, FD, sd, pd, dd, OD;
};

// The shape that a kernel takes, by its macro NDIM: 2, or 3 with a depth or dilation.
template <int NDIM>
struct ShapeOf {
  using Type = ConvShape;
};
template <>
struct ShapeOf<3> {
  using Type = AxesShape;
};

// One axis: `size` inputs, F taps d apart, stride s, padding p, O outputs. Output o reads input o s - p + f d.
struct Axis {
  int size, F, s, p, d, O;
};

__device__ __forceinline__ Axis depth_of(const ConvShape&) { return {1, 1, 1, 0, 1, 1}; }
__device__ __forceinline__ Axis height_of(const ConvShape& s) { return {s.IH, s.FH, s.sh, s.ph, 1, s.OH}; }
__device__ __forceinline__ Axis width_of(const ConvShape& s) { return {s.IW, s.FW, s.sw, s.pw, 1, s.OW}; }
__device__ __forceinline__ Axis width_of(const GroupedShape& s) { return {s.IW, s.FW, s.sw, s.pw, s.dw, s.OW}; }
__device__ __forceinline__ Axis depth_of(const AxesShape& s) { return {s.ID, s.FD, s.sd, s.pd, s.dd, s.OD}; }
__device__ __forceinline__ Axis height_of(const AxesShape& s) { return {s.IH, s.FH, s.sh, s.ph, s.dh, s.OH}; }
__device__ __forceinline__ Axis width_of(const AxesShape& s) { return {s.IW, s.FW, s.sw, s.pw, s.dw, s.OW}; }

struct Range {
  int begin, end;
  __device__ __forceinline__ int size() const { return end > begin ? end - begin : 0; }
};

// Taps of output o that meet the input (Algorithm 1: fh_s, fh_e).
__device__ __forceinline__ Range trimmed_taps(int o, const Axis& a) {
  const int i_s = o * a.s - a.p;
  return {ceil_divide(max(-i_s, 0), a.d), min(ceil_divide(max(a.size - i_s, 0), a.d), a.F)};
}

// Outputs whose tap f meets the input (Algorithm 3B: oh_s, oh_e).
__device__ __forceinline__ Range valid_outputs(int f, const Axis& a) {
  const int i_s = f * a.d - a.p;
  return {ceil_divide(max(-i_s, 0), a.s), min(a.O, ceil_divide(max(a.size - i_s, 0), a.s))};
}

// Steps of split z of GZ, which share `total` steps as evenly as they can.
__device__ __forceinline__ Range split_steps(int total, int z, int GZ) {
  const auto [each, left] = divide(total, GZ);
  const int begin = z * each + min(z, left);
  return {begin, begin + each + (z < left)};
}

// Taps of the split filter of residue y: C_H = ceil((FH - y) / sh).
__device__ __forceinline__ int split_size(int y, int F, int s) { return ceil_divide(max(F - y, 0), s); }

// Taps of the split filters of the residues before y.
__device__ __forceinline__ int split_before(int y, int F, int s) {
  int before = 0;
  for (int r = 0; r < y; r++) before += split_size(r, F, s);
  return before;
}

// Input pixel i with the split filter of its residue. Tap c reads dY at first + c d; `first` may be outside of dY.
struct SplitPixel {
  int residue, size, first;
  Range taps;  // Algorithm 2B: ch_s, ch_e; the paper prints oph as the upper bound, it is C_H
};

__device__ __forceinline__ SplitPixel split_pixel(int i, const Axis& a) {
  SplitPixel r;
  const auto [pixel, residue] = divide(i + a.p, a.s);
  r.residue = residue;
  r.size = split_size(residue, a.F, a.s);
  r.first = pixel - (r.size - 1) * a.d;
  r.taps = {ceil_divide(max(-r.first, 0), a.d), min(ceil_divide(max(a.O - r.first, 0), a.d), r.size)};
  return r;
}

// The tap with which the split filter of residue (z, y, x) begins; split filters lie one after the other.
template <class Shape>
__device__ __forceinline__ int split_begin(int z, int y, int x, const Shape& s) {
  const Axis d = depth_of(s), h = height_of(s), w = width_of(s);
  const int CD = split_size(z, d.F, d.s), CH = split_size(y, h.F, h.s);
  return (split_before(z, d.F, d.s) * h.F + CD * split_before(y, h.F, h.s)) * w.F + CD * CH * split_before(x, w.F, w.s);
}

// The tap at which stage 1 puts (fd, fh, fw): each split filter is rotated by 180 degrees in every axis.
template <class Shape>
__device__ __forceinline__ int split_tap(int fd, int fh, int fw, const Shape& s) {
  const Axis d = depth_of(s), h = height_of(s), w = width_of(s);
  const auto [plane, z] = divide(fd, d.s);
  const auto [row, y] = divide(fh, h.s);
  const auto [column, x] = divide(fw, w.s);
  const int CD = split_size(z, d.F, d.s), CH = split_size(y, h.F, h.s), CW = split_size(x, w.F, w.s);
  return split_begin(z, y, x, s) + ((CD - 1 - plane) * CH + CH - 1 - row) * CW + CW - 1 - column;
}
