// KS-deconv-V2 on Hopper, with a bias and an activation as a transposed convolution: ks_deconv/sm90.cuh
#include "conv2d/ks_deconv/sm90.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, ALPHA_BLOCKS)
    ks_deconv_sm90(Output* __restrict__ dX, const TensorMap* __restrict__ dY, const TensorMap* __restrict__ C,
                   const unsigned* __restrict__ absmax_a, const unsigned* __restrict__ absmax_b,
                   const float* __restrict__ bias, float slope, const WorkTile* __restrict__ schedule, int count,
                   int raster_order, float* workspace, unsigned* semaphores, const float* __restrict__ filter,
                   Shape s) {
  GemmProblem p = deconv_problem(s);
  p.A = dY;
  p.B = C;
  p.absmax_a = absmax_a;
  p.absmax_b = absmax_b;
  p.bias = bias;
  p.slope = slope;
  p.C = dX;
  p.workspace = workspace;
  p.semaphores = semaphores;
  p.num_work_tiles = count;
  p.raster_order = raster_order;
  p.filter = filter;
  run_output_tiles(p, schedule, NoFirstStep(), DeconvTaps{s});
}
