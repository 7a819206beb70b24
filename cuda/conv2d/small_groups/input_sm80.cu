// Input gradient of a convolution with groups of few channels on tensor cores (KS-deconv).
//
// dX[n, ih, iw, ic] = f(sum over o < OG and the taps with (ih + ph - fh) % SH == 0 and (iw + PW - fw) % SW == 0
//                       of dY[n, (ih + ph - fh) / SH, (iw + PW - fw) / SW, g OG + o] W[g OG + o, fh, fw, ic % IG] + bias[ic])
// for the group g of ic; IG and OG are the channels of a group. GEMM and layout: see map_sm80.cuh.
// Grid: blocks of strips, by segments of rows, by chunks of 8 NT WN channels (fastest). Block: 32 WN WM.
// Shared memory: STAGES steps of a row of STRIPS strips (strip_rows.cuh), and the filters (map_sm80.cuh).
// Needs sm_80, IG and OG divisible by 4, and pixels of dY and dX of whole 16 bytes; dilation 1. Macros: see map_sm80.cuh.
#include "conv2d/small_groups/map_sm80.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    small_groups_input_sm80(Element* __restrict__ dX, const Element* __restrict__ dY, const Element* __restrict__ W,
                            const float* __restrict__ bias, float slope, GroupedShape s, int segment_rows) {
  const MapProblem p = {dX, W, bias, slope, s.N, s.IH, s.IW, s.IC, s.OC, s.ph, segment_rows};
  map_strips<InputMap>(p, {dY, s.N, s.OH, s.OW, s.OC, 0, PIECES, 0});
}
