// The shape of a convolution and the arithmetic of filter trimming, one axis at a time (alpha/ops/conv2d/shape.py).
#pragma once
#include "common/cuda.h"

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
  const int first = i_s < 0 ? (-i_s + s - 1) / s : 0;
  const int last = size - i_s > 0 ? (size - i_s + s - 1) / s : 0;
  return {first, min(O, last)};
}

// Taps of the split filter of residue y: C_H = ceil((FH - y) / sh).
__device__ __forceinline__ int split_size(int y, int F, int s) { return F > y ? (F - y + s - 1) / s : 0; }

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
  r.residue = (i + p) % s;
  r.size = split_size(r.residue, F, s);
  r.first = (i + p - r.residue) / s - (r.size - 1);
  r.taps = {max(-r.first, 0), min(O - r.first, r.size)};
  return r;
}

// The tap at which stage 1 puts (fh, fw): the split filters lie one after the other, each rotated by 180 degrees.
__device__ __forceinline__ int split_tap(int fh, int fw, const ConvShape& s) {
  const int y = fh % s.sh, x = fw % s.sw, CH = split_size(y, s.FH, s.sh), CW = split_size(x, s.FW, s.sw);
  const int ch = CH - 1 - fh / s.sh, cw = CW - 1 - fw / s.sw;
  return split_before(y, s.FH, s.sh) * s.FW + CH * split_before(x, s.FW, s.sw) + ch * CW + cw;
}
