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

struct Range {
  int begin, end;
  __device__ __forceinline__ int size() const { return end > begin ? end - begin : 0; }
};

// Taps of output o that meet the input (Algorithm 1: fh_s, fh_e).
__device__ __forceinline__ Range trimmed_taps(int o, int size, int F, int s, int p) {
  const int i_s = o * s - p;
  return {max(-i_s, 0), min(size - i_s, F)};
}

// Outputs whose tap f meets the input (Algorithm 3B: oh_s, oh_e).
__device__ __forceinline__ Range valid_outputs(int f, int O, int size, int s, int p) {
  const int i_s = f - p;
  return {ceil_divide(max(-i_s, 0), s), min(O, ceil_divide(max(size - i_s, 0), s))};
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

// Input pixel i with the split filter of its residue. Tap c reads dY at first + c; `first` may be outside of dY.
struct SplitPixel {
  int residue, size, first;
  Range taps;  // Algorithm 2B: ch_s, ch_e; the paper prints oph as the upper bound, it is C_H
};

__device__ __forceinline__ SplitPixel split_pixel(int i, int O, int F, int s, int p) {
  SplitPixel r;
  const auto [pixel, residue] = divide(i + p, s);
  r.residue = residue;
  r.size = split_size(residue, F, s);
  r.first = pixel - (r.size - 1);
  r.taps = {max(-r.first, 0), min(O - r.first, r.size)};
  return r;
}

// The tap at which stage 1 puts (fh, fw): the split filters lie one after the other, each rotated by 180 degrees.
__device__ __forceinline__ int split_tap(int fh, int fw, const ConvShape& s) {
  const auto [row, y] = divide(fh, s.sh);
  const auto [column, x] = divide(fw, s.sw);
  const int CH = split_size(y, s.FH, s.sh), CW = split_size(x, s.FW, s.sw);
  const int ch = CH - 1 - row, cw = CW - 1 - column;
  return split_before(y, s.FH, s.sh) * s.FW + CH * split_before(x, s.FW, s.sw) + ch * CW + cw;
}
