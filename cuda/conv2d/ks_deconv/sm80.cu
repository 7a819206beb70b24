// KS-deconv-V2, stages 2 and 3 (Algorithm 2B): input gradient of any stride, one pixel (ih, iw) of dX per block.
//
// dX[n, ih, iw, ic] = sum over ch in [ch_s, ch_e), cw in [cw_s, cw_e), oc of
//                     dY[n, oh_s + ch, ow_s + cw, oc] C[y, x][ch, cw][ic, oc],   (y, x) the residue of (ih, iw)
// C is the result of stage 1 (ks_deconv/split_filter.cu). Stage 3, the composition, is the store: a block writes its
// pixel of dX.
// Grid: IH IW ceil(N / BM) ceil(IC / BN). Block, shared memory, macros and needs: sm80/mainloop.cuh with K = OC,
// GN = IC.
#include "conv2d/sm80/mainloop.cuh"
#include "conv2d/shape.cuh"

extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::RESIDENT)
    ks_deconv_sm80(Element* __restrict__ dX, const Element* __restrict__ dY, const Element* __restrict__ C,
                   const int* __restrict__ order, ConvShape s) {
  PixelGemm<Element> p;
  p.A = dY;
  p.B = C;
  p.C = dX;
  p.N = s.N;
  p.pixels = s.OH * s.OW;
  p.K = s.OC;
  p.output_pixels = s.IH * s.IW;
  p.GN = s.IC;
  p.b_row = s.OC;
  p.b_tap = (long)s.IC * s.OC;
  run_output_pixel(p, order, [&](int output_pixel) {
    const auto [ih, iw] = divide(output_pixel, s.IW);
    const SplitPixel h = split_pixel(ih, height_of(s)), w = split_pixel(iw, width_of(s));
    const int before = split_begin(0, h.residue, w.residue, s);
    const int pixel = (h.first + h.taps.begin) * s.OW + w.first + w.taps.begin;
    const int tap = before + h.taps.begin * w.size + w.taps.begin;
    TapRectangle taps;
    taps.rows = h.taps.size();
    taps.columns = w.taps.size();
    taps.pixel = pixel;
    taps.tap = tap;
    taps.pixel_row = s.OW;
    taps.tap_row = w.size;
    return taps;
  });
}
