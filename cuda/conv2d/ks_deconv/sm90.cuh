// KS-deconv-V2 on Hopper, stages 2 and 3 (Algorithm 2B): input gradient of any stride, TILE_OW pixels of one residue
// per tile. What its kernels share.
//
// dX[n, ih, iw, ic] = sum over ch in [ch_s, ch_e), cw in [cw_s, cw_e), oc of
//                     dY[n, oh_s + ch, ow_s + cw, oc] C[y, x][ch, cw][ic, oc],   (y, x) the residue of (ih, iw)
// With NDIM 3 also over cd in [cd_s, cd_e), and dY is read at (od_s + cd dd, oh_s + ch dh, ow_s + cw dw).
// Pixels of one residue are sw apart and read neighbours of dY, in unit steps. `schedule`: `count` work tiles. A is dY,
// with a tensor map (OC, N, OW, OH) for each residue x. B is C of stage 1, or with B_MN the filters W themselves, whose
// split is then only the order in which their taps are read. Stage 3, the composition, is the store. `workspace`,
// `semaphores`, `raster_order`, `filter`: GemmProblem (sm90/tile.cuh). K = OC, GN = IC.
// Grid: count ceil(N TILE_OW / BM) ceil(IC / BN) blocks, or fewer. Block, shared memory, macros and needs:
// sm90/mainloop.cuh.
#pragma once
#include "conv2d/sm90/output_tiles.cuh"

// The problem of a shape. Bias, statistics and `filter` are null.
__device__ __forceinline__ GemmProblem deconv_problem(const Shape& s) {
  GemmProblem p = {};
  p.slope = 1;
  p.N = s.N;
  p.K = s.OC;
  p.output_pixels = depth_of(s).size * s.IH * s.IW;
  p.GN = s.IC;
  p.FW = s.FW;
  p.sw = s.sw;
  p.columns = s.IW;
  return p;
}

// The taps and the output pixels of the tile that begins with `output_pixel`.
struct DeconvTaps {
  const Shape& s;

  __device__ __forceinline__ void operator()(int output_pixel, TileTaps& taps, OutputPixels& to) const {
    const Axis depth = depth_of(s), height = height_of(s), width = width_of(s);
    const auto [output_row, iw] = divide(output_pixel, s.IW);
    const auto [id, ih] = NDIM == 3 ? divide(output_row, s.IH) : Division{0, output_row};
    const int count = min(TILE_OW, ceil_divide(s.IW - iw, s.sw));
    const SplitPixel d = split_pixel(id, depth), h = split_pixel(ih, height), w = split_pixel(iw, width),
                     last = split_pixel(iw + (count - 1) * s.sw, width);
    // The taps that any of the output pixels needs begin with those of the last one, and end with those of the first.
    const int cd_s = d.taps.begin, ch_s = h.taps.begin, cw_s = last.taps.begin, cw_e = w.taps.end;
    int tap, taps_per_plane, taps_per_row, taps_per_column;
    if (B_MN) {
      const int fd = d.residue + (d.size - 1 - cd_s) * depth.s, fh = h.residue + (h.size - 1 - ch_s) * s.sh,
                fw = w.residue + (w.size - 1 - cw_s) * s.sw;
      tap = (fd * s.FH + fh) * s.FW + fw;
      taps_per_plane = -depth.s * s.FH * s.FW, taps_per_row = -s.sh * s.FW, taps_per_column = -s.sw;
    } else {
      tap = split_begin(d.residue, h.residue, w.residue, s) + (cd_s * h.size + ch_s) * w.size + cw_s;
      taps_per_plane = h.size * w.size, taps_per_row = w.size, taps_per_column = 1;
    }
    FilterPlanes planes;
    planes.height = h.taps.size();
    planes.row_distance = height.d;
    planes.plane_distance = depth.d * s.OH;
    planes.taps_per_plane = taps_per_plane;
    planes.column_distance = width.d;
    TileTaps found;  // `taps` may lie in shared memory: it is written at once, when all fields are known
    found.set_planes(planes);
    found.rows = d.taps.size() * h.taps.size();
    found.columns = max(cw_e - cw_s, 0);
    found.first_row = (d.first + cd_s * depth.d) * s.OH + h.first + ch_s * height.d;
    found.column = w.first + cw_s * width.d;
    found.first_tap = tap;
    found.taps_per_row = taps_per_row;
    found.taps_per_column = taps_per_column;
    found.stride = 1;
    found.residue = 0;
    found.tensor_map = w.residue;
    taps = found;
    to.first = output_pixel;
    to.distance = s.sw;
    to.count = count;
  }
};
