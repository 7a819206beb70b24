// ConvV2 on Hopper: forward convolution with trimmed filters (Algorithm 1), PW positions (oh, ow) of one row a block.
//
// Y[n, oh, ow, oc] = sum over fh in [fh_s, fh_e), fw in [fw_s, fw_e), ic of X[n, ih_s + fh, iw_s + fw, ic] W[oc, fh, fw, ic]
// `works`: the groups of positions or segments of their products, `count` of them. A is X, a map (IC, N, IW / sw, IH) for each
// residue of fw by sw; B is W. `parts`, `arrived`, `works_first`, `moments`: BandProblem. K = IC, GN = OC.
// Grid: count ceil(N PW / BM) ceil(OC / BN), or fewer. Block, shared memory, macros and needs: band_gemm.cuh.
#include "conv2d/band_gemm.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, ALPHA_BLOCKS)
    conv_v2_wgmma(Output* __restrict__ Y, const TensorMap* __restrict__ X, const TensorMap* __restrict__ W,
                  const unsigned* __restrict__ absmax_a, const unsigned* __restrict__ absmax_b,
                  const float* __restrict__ bias, float slope, const Work* __restrict__ works, int count,
                  int works_first, float* parts, unsigned* arrived, float* moments, float* moment_counts,
                  int moment_parts, ConvShape s) {
  const BandProblem p = {X,     W,       absmax_a,    absmax_b, bias,          slope,        Y,
                         parts, arrived, s.N,         s.IC,     s.OH * s.OW,   s.OC,         s.FW,
                         s.sw,  count,   works_first, moments,  moment_counts, moment_parts, s.OW};
  run_band_block(p, works, [&](int position, BlockTaps& taps, BlockPositions& to) {
    const int oh = position / s.OW, ow = position % s.OW, last = min(ow + PW, s.OW) - 1;
    const Range fh = trimmed_taps(oh, s.IH, s.FH, s.sh, s.ph);
    const int fw_s = trimmed_taps(last, s.IW, s.FW, s.sw, s.pw).begin,
              fw_e = trimmed_taps(ow, s.IW, s.FW, s.sw, s.pw).end;
    taps = {fh.size(),
            max(fw_e - fw_s, 0),
            oh * s.sh - s.ph + fh.begin,
            ow * s.sw - s.pw + fw_s,
            fh.begin * s.FW + fw_s,
            s.FW,
            1,
            s.sw,
            fw_s % s.sw,
            0};
    to = {position, 1, last - ow + 1};
  });
}
