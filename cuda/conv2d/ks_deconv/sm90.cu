// KS-deconv-V2 on Hopper, stages 2 and 3 (Algorithm 2B): input gradient of any stride, TILE_OW pixels of one residue per tile.
//
// dX[n, ih, iw, ic] = sum over ch in [ch_s, ch_e), cw in [cw_s, cw_e), oc of
//                     dY[n, oh_s + ch, ow_s + cw, oc] C[y, x][ch, cw][ic, oc],   (y, x) the residue of (ih, iw)
// Pixels of one residue are sw apart and read neighbours of dY, in unit steps. `schedule`: `count` work tiles. A is dY, with a
// tensor map (OC, N, OW, OH) for each residue x. B is C of stage 1, or with B_MN the filters W themselves, whose split is then
// only the order in which their taps are read. Stage 3, the composition, is the store. `workspace`, `semaphores`,
// `raster_order`: GemmProblem (sm90/tile.cuh). K = OC, GN = IC.
// Grid: count ceil(N TILE_OW / BM) ceil(IC / BN) blocks, or fewer. Block, shared memory, macros and needs: sm90/mainloop.cuh.
#include "conv2d/sm90/mainloop.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, ALPHA_BLOCKS)
    ks_deconv_sm90(Output* __restrict__ dX, const TensorMap* __restrict__ dY, const TensorMap* __restrict__ C,
                   const unsigned* __restrict__ absmax_a, const unsigned* __restrict__ absmax_b,
                   const float* __restrict__ bias, float slope, const WorkTile* __restrict__ schedule, int count,
                   int raster_order, float* workspace, unsigned* semaphores, ConvShape s) {
  const GemmProblem p = {dY,        C,          absmax_a,     absmax_b, bias,        slope, dX,
                         workspace, semaphores, s.N,          s.OC,     s.IH * s.IW, s.IC,  s.FW,
                         s.sw,      count,      raster_order, nullptr,  nullptr,     0,     s.IW};
  run_output_tiles(p, schedule, [&](int output_pixel, TileTaps& taps, OutputPixels& to) {
    const auto [ih, iw] = divide(output_pixel, s.IW);
    const int count = min(TILE_OW, ceil_divide(s.IW - iw, s.sw));
    const SplitPixel h = split_pixel(ih, s.OH, s.FH, s.sh, s.ph);
    const SplitPixel w = split_pixel(iw, s.OW, s.FW, s.sw, s.pw);
    const SplitPixel last = split_pixel(iw + (count - 1) * s.sw, s.OW, s.FW, s.sw, s.pw);
    const int cw_s = last.taps.begin, cw_e = w.taps.end;
    int tap, tap_row, tap_column;
    if (B_MN) {
      const int fh = h.residue + (h.size - 1 - h.taps.begin) * s.sh, fw = w.residue + (w.size - 1 - cw_s) * s.sw;
      tap = fh * s.FW + fw, tap_row = -s.sh * s.FW, tap_column = -s.sw;
    } else {
      const int before = split_before(h.residue, s.FH, s.sh) * s.FW + h.size * split_before(w.residue, s.FW, s.sw);
      tap = before + h.taps.begin * w.size + cw_s, tap_row = w.size, tap_column = 1;
    }
    taps = {h.taps.size(), max(cw_e - cw_s, 0), h.first + h.taps.begin, w.first + cw_s, tap, tap_row, tap_column, 1, 0,
            w.residue};
    to = {output_pixel, s.sw, count};
  });
}
