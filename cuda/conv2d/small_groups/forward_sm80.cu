// Forward convolution with groups of few channels on tensor cores (ConvV2).
//
// Y[n, oh, ow, oc] = f(sum over fh, fw, i < IG of X[n, oh SH - ph + fh, ow SW - PW + fw, g IG + i] W[oc, fh, fw, i] + bias[oc])
// for the group g of oc; IG and OG are the channels of a group. GEMM and layout: see map_sm80.cuh.
// Grid: blocks of strips, by segments of rows, by chunks of 8 NT WN channels (fastest). Block: 32 WN WM.
// Shared memory: STAGES steps of SH rows of STRIPS strips (strip_rows.cuh), and the filters (map_sm80.cuh).
// Needs sm_80, IG and OG divisible by 4, and pixels of X and Y of whole 16 bytes; dilation 1. Macros: see map_sm80.cuh.
#include "conv2d/small_groups/map_sm80.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    small_groups_forward_sm80(Element* __restrict__ Y, const Element* __restrict__ X, const Element* __restrict__ W,
                              const float* __restrict__ bias, float slope, GroupedShape s, int segment_rows) {
  const MapProblem p = {Y, W, bias, slope, s.N, s.OH, s.OW, s.OC, s.IC, s.ph, segment_rows};
  map_strips<ForwardMap>(p, {X, s.N, s.IH, s.IW, s.IC, 0, PIECES, 0});
}
