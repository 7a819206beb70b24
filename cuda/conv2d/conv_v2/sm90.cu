// ConvV2 on Hopper: forward convolution with trimmed filters (Algorithm 1), TILE_OW output pixels of one row per tile.
//
// Y[n, oh, ow, oc] = sum over fh in [fh_s, fh_e), fw in [fw_s, fw_e), ic of X[n, ih_s + fh, iw_s + fw, ic] W[oc, fh, fw, ic]
// `schedule`: `count` work tiles. A is X, with a tensor map (IC, N, IW / sw, IH) for each residue of fw by sw; B is W.
// `workspace`, `semaphores`, `raster_order`, `statistics`: GemmProblem (sm90/tile.cuh). K = IC, GN = OC.
// Grid: count ceil(N TILE_OW / BM) ceil(OC / BN) blocks, or fewer. Block, shared memory, macros and needs: sm90/mainloop.cuh.
#include "conv2d/sm90/mainloop.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, ALPHA_BLOCKS)
    conv_v2_sm90(Output* __restrict__ Y, const TensorMap* __restrict__ X, const TensorMap* __restrict__ W,
                 const unsigned* __restrict__ absmax_a, const unsigned* __restrict__ absmax_b,
                 const float* __restrict__ bias, float slope, const WorkTile* __restrict__ schedule, int count,
                 int raster_order, float* workspace, unsigned* semaphores, float* statistics, float* statistics_counts,
                 int statistics_parts, ConvShape s) {
  const GemmProblem p = {X,
                         W,
                         absmax_a,
                         absmax_b,
                         bias,
                         slope,
                         Y,
                         workspace,
                         semaphores,
                         s.N,
                         s.IC,
                         s.OH * s.OW,
                         s.OC,
                         s.FW,
                         s.sw,
                         count,
                         raster_order,
                         statistics,
                         statistics_counts,
                         statistics_parts,
                         s.OW};
  run_output_tiles(p, schedule, [&](int output_pixel, TileTaps& taps, OutputPixels& to) {
    const auto [oh, ow] = divide(output_pixel, s.OW);
    const int last = min(ow + TILE_OW, s.OW) - 1;
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
            divide(fw_s, s.sw).remainder,
            0};
    to = {output_pixel, 1, last - ow + 1};
  });
}
