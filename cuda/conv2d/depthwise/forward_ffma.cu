// Depthwise forward convolution on FFMA (ConvV2): each channel has filters of its own.
//
// Y[n, oh, ow, c] = f(sum over fh, fw of X[n, oh SH - ph + fh, ow SW - PW + fw, c / MULTIPLIER] W[c, fh, fw] + bias[c])
// Grid: ceil(N segments / ty) strips ceil(OC / (V tx)). Block: (tx packs of channels, ty strips), at most 128.
// Shared memory: the filters of tx V channels. Needs OC % V == 0; V = 1 if MULTIPLIER > 1. Macros: channels.cuh.
#include "conv2d/depthwise/map.cuh"

extern "C" __global__ void __launch_bounds__(MAX_THREADS, BLOCKS)
    depthwise_forward_ffma(T* __restrict__ Y, const T* __restrict__ X, const T* __restrict__ W,
                           const float* __restrict__ bias, float slope, GroupedShape s, int segment_rows, int strips) {
  MapProblem p;
  p.result = Y;
  p.source = X;
  p.W = W;
  p.bias = bias;
  p.slope = slope;
  p.height = s.OH;
  p.width = s.OW;
  p.source_height = s.IH;
  p.source_width = s.IW;
  p.ph = s.ph;
  p.images = s.N;
  p.segment_rows = segment_rows;
  p.strips = strips;
  map_rows<ForwardStrip>(p);
}
