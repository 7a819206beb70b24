// ConvV2: forward convolution with trimmed filters (Algorithm 1), one output pixel (oh, ow) per block.
//
// Y[n, oh, ow, oc] = sum over fh in [fh_s, fh_e), fw in [fw_s, fw_e), ic of
//                    X[n, ih_s + fh, iw_s + fw, ic] W[oc, fh, fw, ic]
// Grid: OH OW ceil(N / BM) ceil(OC / BN). Block, shared memory, macros and needs: sm80/mainloop.cuh with K = IC,
// GN = OC.
#include "conv2d/sm80/mainloop.cuh"
#include "conv2d/shape.cuh"

extern "C" __global__ void __launch_bounds__(Tile::THREADS, Tile::RESIDENT)
    conv_v2_sm80(Element* __restrict__ Y, const Element* __restrict__ X, const Element* __restrict__ W,
                 const int* __restrict__ order, ConvShape s) {
  PixelGemm<Element> p;
  p.A = X;
  p.B = W;
  p.C = Y;
  p.N = s.N;
  p.pixels = s.IH * s.IW;
  p.K = s.IC;
  p.output_pixels = s.OH * s.OW;
  p.GN = s.OC;
  p.b_row = (long)s.FH * s.FW * s.IC;
  p.b_tap = s.IC;
  run_output_pixel(p, order, [&](int output_pixel) {
    const auto [oh, ow] = divide(output_pixel, s.OW);
    const Range fh = trimmed_taps(oh, height_of(s)), fw = trimmed_taps(ow, width_of(s));
    const int ih = oh * s.sh - s.ph + fh.begin, iw = ow * s.sw - s.pw + fw.begin;
    TapRectangle taps;
    taps.rows = fh.size();
    taps.columns = fw.size();
    taps.pixel = ih * s.IW + iw;
    taps.tap = fh.begin * s.FW + fw.begin;
    taps.pixel_row = s.IW;
    taps.tap_row = s.FW;
    return taps;
  });
}
