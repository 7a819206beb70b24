// ConvV2 on Hopper: forward convolution with trimmed filters (Algorithm 1), TILE_OW output pixels of one row per tile.
//
// Y[n, oh, ow, oc] = sum over fh in [fh_s, fh_e), fw in [fw_s, fw_e), ic of
//                    X[n, ih_s + fh, iw_s + fw, ic] W[oc, fh, fw, ic]
// With NDIM 3 also over fd in [fd_s, fd_e), and X is read at (id_s + fd dd, ih_s + fh dh, iw_s + fw dw).
// `schedule`: `count` work tiles. A is X, with a tensor map (IC, N, IW / sw, IH) for each residue of fw by sw; B is W.
// `workspace`, `semaphores`, `raster_order`, `statistics`, `magnitude`: GemmProblem (sm90/tile.cuh). K = IC, GN = OC.
// Grid: count ceil(N TILE_OW / BM) ceil(OC / BN) blocks, or fewer. Block, shared memory, macros and needs:
// sm90/mainloop.cuh.
#include "conv2d/sm90/output_tiles.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, ALPHA_BLOCKS)
    conv_v2_sm90(Output* __restrict__ Y, const TensorMap* __restrict__ X, const TensorMap* __restrict__ W,
                 const unsigned* __restrict__ absmax_a, const unsigned* __restrict__ absmax_b,
                 const float* __restrict__ bias, float slope, const WorkTile* __restrict__ schedule, int count,
                 int raster_order, float* workspace, unsigned* semaphores, float* statistics, float* statistics_counts,
                 int statistics_parts, unsigned* magnitude, unsigned* meeting, Shape s) {
  GemmProblem p;
  p.A = X;
  p.B = W;
  p.absmax_a = absmax_a;
  p.absmax_b = absmax_b;
  p.bias = bias;
  p.slope = slope;
  p.C = Y;
  p.workspace = workspace;
  p.semaphores = semaphores;
  p.N = s.N;
  p.K = s.IC;
  p.output_pixels = depth_of(s).O * s.OH * s.OW;
  p.GN = s.OC;
  p.FW = s.FW;
  p.sw = s.sw;
  p.num_work_tiles = count;
  p.raster_order = raster_order;
  p.statistics = statistics;
  p.statistics_counts = statistics_counts;
  p.statistics_parts = statistics_parts;
  p.columns = s.OW;
  p.magnitude = magnitude;
  p.meeting = meeting;
  p.filter = nullptr;
  run_output_tiles(p, schedule, NoFirstStep(), [&](int output_pixel, TileTaps& taps, OutputPixels& to) {
    const Axis d = depth_of(s), h = height_of(s), w = width_of(s);
    const auto [output_row, ow] = divide(output_pixel, w.O);
    const auto [od, oh] = NDIM == 3 ? divide(output_row, h.O) : Division{0, output_row};
    const int last = min(ow + TILE_OW, w.O) - 1;
    const Range fd = trimmed_taps(od, d), fh = trimmed_taps(oh, h);
    // Further to the right a trimmed filter begins sooner and ends sooner. So the taps that any of the output pixels
    // needs begin with those of the last one, and end with those of the first one.
    const int fw_s = trimmed_taps(last, w).begin, fw_e = trimmed_taps(ow, w).end;
    const int id = od * d.s - d.p + fd.begin * d.d, ih = oh * h.s - h.p + fh.begin * h.d;
    FilterPlanes planes;
    planes.height = fh.size();
    planes.row_distance = h.d;
    planes.plane_distance = d.d * h.size;
    planes.taps_per_plane = h.F * w.F;
    planes.column_distance = w.d;
    TileTaps found;  // `taps` may lie in shared memory: it is written at once, when all fields are known
    found.set_planes(planes);
    found.rows = fd.size() * fh.size();
    found.columns = max(fw_e - fw_s, 0);
    found.first_row = id * h.size + ih;
    found.column = ow * w.s - w.p + fw_s * w.d;
    found.first_tap = (fd.begin * h.F + fh.begin) * w.F + fw_s;
    found.taps_per_row = s.FW;
    found.taps_per_column = 1;
    found.stride = s.sw;
    found.residue = divide(fw_s, s.sw).remainder;
    found.tensor_map = 0;
    taps = found;
    to.first = output_pixel;
    to.distance = 1;
    to.count = last - ow + 1;
  });
}
