// KS-deconv-V2 on Hopper, stages 2 and 3 (Algorithm 2B): input gradient of any stride, PW positions of one residue a block.
//
// dX[n, ih, iw, ic] = sum over ch in [ch_s, ch_e), cw in [cw_s, cw_e), oc of
//                     dY[n, oh_s + ch, ow_s + cw, oc] C[y, x][ch, cw][ic, oc],   (y, x) the residue of (ih, iw)
// Positions of one residue are sw apart and read neighbours of dY, in unit steps. `order` lists the first position of
// each group. C is stage 1's, as planes (filter_planes.cu). The composition of stage 3 is the store.
// Grid: groups ceil(N PW / 128) ceil(IC / BN). Block, shared memory, macros and needs: position_wgmma.cuh, K = OC, GN = IC.
#include "conv2d/position_wgmma.cuh"
#include "conv2d/shape.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    ks_deconv_wgmma(float* __restrict__ dX, const TensorMap* __restrict__ dY, const TensorMap* __restrict__ C,
                    const unsigned* __restrict__ absmax, const int* __restrict__ order, ConvShape s) {
  const WgmmaProblem p = {dY, C, absmax, dX, s.N, s.OC, s.IH * s.IW, s.IC, 1};
  run_wgmma_block(p, order, [&](int position, BlockTaps& taps, BlockPositions& to) {
    const int iw = position % s.IW, count = min(PW, (s.IW - iw + s.sw - 1) / s.sw);
    const SplitPosition h = split_position(position / s.IW, s.OH, s.FH, s.sh, s.ph);
    const SplitPosition w = split_position(iw, s.OW, s.FW, s.sw, s.pw);
    const SplitPosition last = split_position(iw + (count - 1) * s.sw, s.OW, s.FW, s.sw, s.pw);
    const int cw_s = last.taps.begin, cw_e = w.taps.end;
    const int before = split_before(h.residue, s.FH, s.sh) * s.FW + h.size * split_before(w.residue, s.FW, s.sw);
    taps = {h.taps.size(), max(cw_e - cw_s, 0), h.first + h.taps.begin, w.first + cw_s,
            before + h.taps.begin * w.size + cw_s, w.size};
    to = {position, s.sw, count};
  });
}
