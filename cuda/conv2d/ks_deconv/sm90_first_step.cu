// KS-deconv-V2 on Hopper that also takes the first step of the gradient behind it: dX becomes dZ. See
// ks_deconv/sm90.cuh, and sm90/step_operands.cuh for the other arguments and macros.
#include "conv2d/ks_deconv/sm90.cuh"
#if ALPHA_PING_PONG
#include "conv2d/sm90/first_step_channels.cuh"
#else
#include "conv2d/sm90/first_step.cuh"
#endif

extern "C" __global__ void __launch_bounds__(THREADS, ALPHA_BLOCKS) ks_deconv_first_step_sm90(
    Output* __restrict__ dZ, const TensorMap* __restrict__ dY, const TensorMap* __restrict__ C,
    const unsigned* __restrict__ absmax_a, const unsigned* __restrict__ absmax_b, const WorkTile* __restrict__ schedule,
    int count, int raster_order, float* workspace, unsigned* semaphores, const float* __restrict__ filter, float* sums,
    int parts, unsigned* magnitude, unsigned* state, const T* __restrict__ other, const T* __restrict__ X,
    const Kept* __restrict__ Y, const T* __restrict__ residual, const unsigned* __restrict__ Y_magnitude,
    const float* __restrict__ mean, const float* __restrict__ var, const float* __restrict__ weight,
    const float* __restrict__ bias, float eps, float smallest, float slope, float bound, Shape s) {
  GemmProblem p = deconv_problem(s);
  p.A = dY;
  p.B = C;
  p.absmax_a = absmax_a;
  p.absmax_b = absmax_b;
  p.C = dZ;
  p.workspace = workspace;
  p.semaphores = semaphores;
  p.num_work_tiles = count;
  p.raster_order = raster_order;
  p.filter = filter;
  p.statistics = sums;
  p.statistics_parts = parts;
  const FirstStep step({{other, X, Y, residual, Y_magnitude},
                        {mean, var, weight, bias, eps, smallest, slope, bound},
                        {magnitude, state}});
  run_output_tiles(p, schedule, step, DeconvTaps{s});
}
