// Input gradient of a convolution with groups of few channels on tensor cores (KS-deconv).
//
// dX[n, ih, iw, ic] = f(sum over o < OG and the taps with (ih + ph - fh) % SH == 0 and (iw + PW - fw) % SW == 0
//                       of dY[n, (ih + ph - fh) / SH, (iw + PW - fw) / SW, g OG + o]
//                       W[g OG + o, fh, fw, ic % IG] + bias[ic])
// for the group g of ic; IG and OG are the channels of a group. GEMM and layout: see map_sm80.cuh.
// Grid: blocks of strips, by segments of rows, by chunks of 8 NT WN channels (fastest). Block: 32 WN WM.
// Shared memory: STAGES steps of a row of STRIPS strips (strip_rows.cuh), and the filters (map_sm80.cuh).
// Needs sm_80, IG and OG divisible by 4, and pixels of dY and dX of whole 16 bytes; dilation 1. Macros: see
// map_sm80.cuh.
#include "conv2d/small_groups/map_sm80.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    small_groups_input_sm80(Element* __restrict__ dX, const Element* __restrict__ dY, const Element* __restrict__ W,
                            const float* __restrict__ bias, float slope, GroupedShape s, int segment_rows) {
  MapProblem p;
  p.result = dX;
  p.W = W;
  p.bias = bias;
  p.slope = slope;
  p.images = s.N;
  p.height = s.IH;
  p.width = s.IW;
  p.channels = s.IC;
  p.source_channels = s.OC;
  p.ph = s.ph;
  p.segment_rows = segment_rows;
  StripSource<Element> source;
  source.map = dY;
  source.images = s.N;
  source.height = s.OH;
  source.width = s.OW;
  source.channels = s.OC;
  source.channel = 0;
  source.pieces = PIECES;
  source.first_strip = 0;
  map_strips<InputMap>(p, source);
}
