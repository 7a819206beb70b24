// Input gradient of a convolution with groups of few channels on FFMA (KS-deconv).
//
// dX[n, ih, iw, ic] = f(sum over o < OG and the taps with (ih + ph - fh) % SH == 0 and (iw + PW - fw) % SW == 0
//                       of dY[n, (ih + ph - fh) / SH, (iw + PW - fw) / SW, g OG + o]
//                       W[g OG + o, fh, fw, ic % IG] + bias[ic])
// for the group g of ic; IG and OG are the channels of a group.
// Grid: chunks of 4 tx channels, by blocks that share the strips of all rows. Block: (tx quads of channels, ty strips).
// Shared memory: the filters of 4 tx channels. Needs IG and OG divisible by 4, COLUMNS % SW == 0. Macros: see
// strips.cuh, VECTOR 4.
#include "conv2d/small_groups/map.cuh"

extern "C" __global__ void __launch_bounds__(MAX_THREADS, BLOCKS)
    small_groups_input_ffma(T* __restrict__ dX, const T* __restrict__ dY, const T* __restrict__ W,
                            const float* __restrict__ bias, float slope, GroupedShape s, int strips, int tasks) {
  MapProblem p;
  p.result = dX;
  p.source = dY;
  p.W = W;
  p.bias = bias;
  p.slope = slope;
  p.height = s.IH;
  p.width = s.IW;
  p.channels = s.IC;
  p.group = s.IC / s.groups;
  p.source_height = s.OH;
  p.source_width = s.OW;
  p.source_channels = s.OC;
  p.source_group = s.OC / s.groups;
  p.ph = s.ph;
  p.strips = strips;
  p.tasks = tasks;
  map_rows<InputStrip>(p);
}
