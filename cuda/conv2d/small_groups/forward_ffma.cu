// Forward convolution with groups of few channels on FFMA (ConvV2).
//
// Y[n, oh, ow, oc] = f(sum over fh, fw, i < IG of
//                      X[n, oh SH - ph + fh, ow SW - PW + fw, g IG + i] W[oc, fh, fw, i] + bias[oc])
// for the group g of oc; IG and OG are the channels of a group.
// Grid: chunks of 4 tx channels, by blocks that share the strips of all rows. Block: (tx quads of channels, ty strips).
// Shared memory: the filters of 4 tx channels. Needs IG and OG divisible by 4. Macros: see strips.cuh, VECTOR 4.
#include "conv2d/small_groups/map.cuh"

extern "C" __global__ void __launch_bounds__(MAX_THREADS, BLOCKS)
    small_groups_forward_ffma(T* __restrict__ Y, const T* __restrict__ X, const T* __restrict__ W,
                              const float* __restrict__ bias, float slope, GroupedShape s, int strips, int tasks) {
  MapProblem p;
  p.result = Y;
  p.source = X;
  p.W = W;
  p.bias = bias;
  p.slope = slope;
  p.height = s.OH;
  p.width = s.OW;
  p.channels = s.OC;
  p.group = s.OC / s.groups;
  p.source_height = s.IH;
  p.source_width = s.IW;
  p.source_channels = s.IC;
  p.source_group = s.IC / s.groups;
  p.ph = s.ph;
  p.strips = strips;
  p.tasks = tasks;
  map_rows<ForwardStrip>(p);
}
