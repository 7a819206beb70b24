// ConvV2 on Hopper: forward convolution with trimmed filters (Algorithm 1), PW positions (oh, ow) of one row a block.
//
// Y[n, oh, ow, oc] = sum over fh in [fh_s, fh_e), fw in [fw_s, fw_e), ic of X[n, ih_s + fh, iw_s + fw, ic] W[oc, fh, fw, ic]
// `order` lists the first position of each group. A is X as (N, IH, IW / sw, IC), a map for each phase of sw; B the planes of W.
// Grid: groups ceil(N PW / 128) ceil(OC / BN). Block, shared memory, macros and needs: position_wgmma.cuh, K = IC, GN = OC.
#include "conv2d/position_wgmma.cuh"
#include "conv2d/shape.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    conv_v2_wgmma(float* __restrict__ Y, const TensorMap* __restrict__ X, const TensorMap* __restrict__ W,
                  const unsigned* __restrict__ absmax, const int* __restrict__ order, ConvShape s) {
  const WgmmaProblem p = {X, W, absmax, Y, s.N, s.IC, s.OH * s.OW, s.OC, s.sw};
  run_wgmma_block(p, order, [&](int position, BlockTaps& taps, BlockPositions& to) {
    const int oh = position / s.OW, ow = position % s.OW, last = min(ow + PW, s.OW) - 1;
    const Range fh = trimmed_taps(oh, s.IH, s.FH, s.sh, s.ph);
    const int fw_s = trimmed_taps(last, s.IW, s.FW, s.sw, s.pw).begin, fw_e = trimmed_taps(ow, s.IW, s.FW, s.sw, s.pw).end;
    taps = {fh.size(), max(fw_e - fw_s, 0), oh * s.sh - s.ph + fh.begin, ow * s.sw - s.pw + fw_s, fh.begin * s.FW + fw_s,
            s.FW};
    to = {position, 1, last - ow + 1};
  });
}
