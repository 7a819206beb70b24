// Depthwise input gradient on FFMA (KS-deconv), for one output channel per input channel.
//
// dX[n, ih, iw, c] = f(sum over the taps with (ih + ph - fh) % SH == 0 and (iw + PW - fw) % SW == 0
//                      of dY[n, (ih + ph - fh) / SH, (iw + PW - fw) / SW, c] W[c, fh, fw] + bias[c])
// Which taps a column of a strip meets is known at compile time, so no zero between the pixels of dY is multiplied.
// Grid: ceil(N segments / ty) strips ceil(IC / (V tx)). Block: (tx packs of channels, ty strips), at most 128.
// Shared memory: the filters of tx V channels. Needs IC == OC, IC % V == 0, COLUMNS % SW == 0. Macros: channels.cuh.
#include "conv2d/depthwise/map.cuh"

extern "C" __global__ void __launch_bounds__(MAX_THREADS, BLOCKS)
    depthwise_input_ffma(T* __restrict__ dX, const T* __restrict__ dY, const T* __restrict__ W,
                         const float* __restrict__ bias, float slope, GroupedShape s, int segment_rows, int strips) {
  MapProblem p;
  p.result = dX;
  p.source = dY;
  p.W = W;
  p.bias = bias;
  p.slope = slope;
  p.height = s.IH;
  p.width = s.IW;
  p.source_height = s.OH;
  p.source_width = s.OW;
  p.ph = s.ph;
  p.images = s.N;
  p.segment_rows = segment_rows;
  p.strips = strips;
  map_rows<InputStrip>(p);
}
