// Input gradient of batch normalisation: dX = a dZ with a = weight / sqrt(var + eps), and if mean and
// var came from the batch   dX = a (dZ - dbias / R - (X - mean) dweight / (R sqrt(var + eps))).
//
// dZ is dY; with RECTIFIED FROM_X or FROM_OUTPUT (gradient_rows.cuh), it is the gradient of what a rectifier was given.
// With FROM_OUTPUT and FROM_SUM, Y and the residual are read in place of X; with FROM_SUM the residual may be null.
// With BEHIND, X is the result of a rectifier, and dX the gradient of what this was given.
// dX, dY, X, Y, residual (R, C) of TYPE, everything else (C,). With Y_HALF 1 (TYPE float) Y is an fp16 copy, whose
// scale follows from `Y_magnitude` (batchnorm/kept_output.cuh).
// Grid: (ceil(R / rows), ceil(C / (VECTOR tx))); a block takes `rows` rows. Block: (tx, ty), at most 512
// threads. No shared memory: a thread keeps its columns' numbers.
// Macros: TYPE float | bfloat16; VECTOR 1 | 4 divides C, arrays are aligned to packs; RECTIFIED any but FROM_Y;
// BEHIND 0 | 1, which needs X; MAGNITUDE 1: `magnitude` gets the bits of the largest finite magnitude of dX, see
// fp16_terms.cuh, and the blocks meet in two words `state`, which are 0 before and again at the end; else 0. HALF 1
// (MAGNITUDE 0, VECTOR above 1): `half` (R, C) gets dX in fp16, by the scale of `limit`, a limit of its magnitudes
// (gradient_sums.cuh); HALF 2: and dX is not written; else 0. Y_HALF as above.
#include "batchnorm/half.cuh"
#include "batchnorm/input_gradient.cuh"
#include "batchnorm/kept_output.cuh"
#include "common/largest.cuh"

constexpr bool BEHIND = ALPHA_BEHIND, MAGNITUDE = ALPHA_MAGNITUDE, HALF = ALPHA_HALF, ALONE = ALPHA_HALF == 2;

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    input_gradient(T* __restrict__ dX, unsigned* magnitude, unsigned* state, const T* __restrict__ dY,
                   const T* __restrict__ X, const Kept* __restrict__ Y, const T* __restrict__ residual,
                   const float* __restrict__ mean, const float* __restrict__ var, const float* __restrict__ weight,
                   const float* __restrict__ bias, const float* __restrict__ dweight, const float* __restrict__ dbias,
                   float eps, float smallest, float slope, float bound, float behind_slope, float behind_bound, int R,
                   int C, int rows, int batch, uint16_t* __restrict__ half, const unsigned* __restrict__ limit,
                   const unsigned* __restrict__ Y_magnitude) {
  const int c = (blockIdx.y * blockDim.x + threadIdx.x) * V;
  unsigned largest = 0;
  const float scale = HALF ? half_scale(*limit) : 1;
  const float Y_factor = kept_factor(Y_magnitude);
  if (c < C) {
    const Normalization<V> normalized(mean, var, weight, RECTIFIED == FROM_X ? bias : nullptr, eps, c);
    const Undone<V> undone = UNDONE ? Undone<V>(weight, bias, slope, smallest, c, sizeof(T) == 2) : Undone<V>();
    const InputGradient<V> gradient(normalized, var, dweight, dbias, eps, R, c, batch, UNDONE);
    const Segment segment = segment_rows(blockIdx.x, rows, R);
    const bool reads_x = !UNDONE && (batch || RECTIFIED == FROM_X || BEHIND);
    const Rectifier<float> behind = {behind_slope, behind_bound};
    auto load = [&](int r) {
      const size_t at = size_t(r) * C + c;
      const Pack<float, V> none = {};
      return GradientRow{load_pack<V>(dY + at), reads_x ? load_pack<V>(X + at) : none,
                         UNDONE ? load_kept<V>(Y + at, Y_factor) : none,
                         RECTIFIED == FROM_SUM && residual ? load_pack<V>(residual + at) : none};
    };
    visit_rows<AHEAD>(segment.start + threadIdx.y, segment.stop, blockDim.y, load, [&](int r, const GradientRow& row) {
      // with FROM_SUM dY has been through the rectifier
      Pack<float, V> g =
          RECTIFIED == FROM_SUM ? row.g : rectified_gradient(row, normalized, Rectifier<float>{slope, bound});
#pragma unroll
      for (int i = 0; i < V; i++) {
        g.v[i] = gradient(normalized, g.v[i], centred(row, normalized, undone, i), i);
        if (BEHIND) g.v[i] = behind.gradient(g.v[i], row.x.v[i]);
        if (MAGNITUDE) largest = max(largest, finite_magnitude(g.v[i]));
      }
      if constexpr (!ALONE) store_pack(dX + size_t(r) * C + c, g);
      if constexpr (HALF) store_half(half + size_t(r) * C + c, g, scale);
    });
  }
  if (MAGNITUDE) write_largest(magnitude, state, largest, gridDim.x * gridDim.y);
}
