// KS-deconv-V2 on Hopper, stages 2 and 3 (Algorithm 2B): input gradient of any stride, PW positions of one residue a block.
//
// dX[n, ih, iw, ic] = sum over ch in [ch_s, ch_e), cw in [cw_s, cw_e), oc of
//                     dY[n, oh_s + ch, ow_s + cw, oc] C[y, x][ch, cw][ic, oc],   (y, x) the residue of (ih, iw)
// Positions of one residue are sw apart and read neighbours of dY, in unit steps. `works`: the groups of positions or
// segments of their products, `count` of them. A is dY, a map (OC, N, OW, OH) for each residue x. B is stage 1's C, or with
// B_MN the filters W themselves, whose split is then only in the order in which their taps are read. The composition of
// stage 3 is the store. `parts`, `arrived`, `works_first`: BandProblem. K = OC, GN = IC.
// Grid: count ceil(N PW / BM) ceil(IC / BN), or fewer. Block, shared memory, macros and needs: band_gemm.cuh.
#include "conv2d/band_gemm.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, ALPHA_BLOCKS)
    ks_deconv_wgmma(Output* __restrict__ dX, const TensorMap* __restrict__ dY, const TensorMap* __restrict__ C,
                    const unsigned* __restrict__ absmax_a, const unsigned* __restrict__ absmax_b,
                    const float* __restrict__ bias, float slope, const Work* __restrict__ works, int count,
                    int works_first, float* parts, unsigned* arrived, ConvShape s) {
  const BandProblem p = {dY,    C,       absmax_a,    absmax_b, bias,        slope, dX,
                         parts, arrived, s.N,         s.OC,     s.IH * s.IW, s.IC,  s.FW,
                         s.sw,  count,   works_first, nullptr,  nullptr,     0,     s.IW};
  run_band_block(p, works, [&](int position, BlockTaps& taps, BlockPositions& to) {
    const int iw = position % s.IW, count = min(PW, (s.IW - iw + s.sw - 1) / s.sw);
    const SplitPosition h = split_position(position / s.IW, s.OH, s.FH, s.sh, s.ph);
    const SplitPosition w = split_position(iw, s.OW, s.FW, s.sw, s.pw);
    const SplitPosition last = split_position(iw + (count - 1) * s.sw, s.OW, s.FW, s.sw, s.pw);
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
    to = {position, s.sw, count};
  });
}
