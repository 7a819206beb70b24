// Forward convolution with groups of few channels on tensor cores (ConvV2).
//
// Y[n, oh, ow, oc] = f(sum over fh, fw, i < IG of
//                      X[n, oh SH - ph + fh, ow SW - PW + fw, g IG + i] W[oc, fh, fw, i] + bias[oc])
// for the group g of oc; IG and OG are the channels of a group. GEMM and layout: see map_sm80.cuh.
// Grid: blocks of strips, by segments of rows, by chunks of 8 NT WN channels (fastest). Block: 32 WN WM.
// Shared memory: STAGES steps of SH rows of STRIPS strips (strip_rows.cuh), and the filters (map_sm80.cuh).
// Needs sm_80, IG and OG divisible by 4, and pixels of X and Y of whole 16 bytes; dilation 1. Macros: see map_sm80.cuh.
#include "conv2d/small_groups/map_sm80.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    small_groups_forward_sm80(Element* __restrict__ Y, const Element* __restrict__ X, const Element* __restrict__ W,
                              const float* __restrict__ bias, float slope, GroupedShape s, int segment_rows) {
  MapProblem p;
  p.result = Y;
  p.W = W;
  p.bias = bias;
  p.slope = slope;
  p.images = s.N;
  p.height = s.OH;
  p.width = s.OW;
  p.channels = s.OC;
  p.source_channels = s.IC;
  p.ph = s.ph;
  p.segment_rows = segment_rows;
  StripSource<Element> source;
  source.map = X;
  source.images = s.N;
  source.height = s.IH;
  source.width = s.IW;
  source.channels = s.IC;
  source.channel = 0;
  source.pieces = PIECES;
  source.first_strip = 0;
  map_strips<ForwardMap>(p, source);
}
