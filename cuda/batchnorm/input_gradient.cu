// Input gradient of batch normalisation: dX = a dZ with a = weight / sqrt(var + eps), and if mean and
// var came from the batch   dX = a (dZ - dbias / R - (X - mean) dweight / (R sqrt(var + eps))).
//
// dZ is dY; with RECTIFIED FROM_X (gradient_rows.cuh), it is the gradient of what a rectifier was given.
// dX, dY, X (R, C) of TYPE, everything else (C,).
// Grid: (ceil(R / rows), ceil(C / (VECTOR tx))); a block takes `rows` rows. Block: (tx, ty), at most 512
// threads. No shared memory: a thread keeps its columns' numbers.
// Macros: TYPE float | bfloat16; VECTOR 1 | 4 divides C, arrays are aligned to packs; RECTIFIED NOT_RECTIFIED | FROM_X;
// MAGNITUDE 1: `magnitude` gets the bits of the largest finite magnitude of dX, see fp16_terms.cuh, and the blocks meet
// in two words `state`, which are 0 before and again at the end; else 0.
#include "batchnorm/gradient_rows.cuh"
#include "common/fp16_terms.cuh"
#include "common/largest.cuh"

constexpr bool MAGNITUDE = ALPHA_MAGNITUDE;

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    input_gradient(T* __restrict__ dX, unsigned* magnitude, unsigned* state, const T* __restrict__ dY,
                   const T* __restrict__ X, const float* __restrict__ mean, const float* __restrict__ var,
                   const float* __restrict__ weight, const float* __restrict__ bias, const float* __restrict__ dweight,
                   const float* __restrict__ dbias, float eps, float slope, float bound, int R, int C, int rows,
                   int batch) {
  const int c = (blockIdx.y * blockDim.x + threadIdx.x) * V;
  unsigned largest = 0;
  if (c < C) {
    const Normalization<V> normalized(mean, var, weight, RECTIFIED == FROM_X ? bias : nullptr, eps, c);
    Pack<float, V> tilt = {}, shift = {};
    const Pack<float, V> s = load_pack<V>(var + c);
    if (batch) tilt = load_pack<V>(dweight + c), shift = load_pack<V>(dbias + c);
#pragma unroll
    for (int i = 0; i < V; i++) {
      const float a = normalized.scale.v[i];
      tilt.v[i] = tilt.v[i] / R * (-a / sqrtf(s.v[i] + eps));  // a / sqrt / R may be too small for a float
      shift.v[i] *= -a / R;
    }
    const Segment segment = segment_rows(blockIdx.x, rows, R);
    const bool reads_x = batch || RECTIFIED == FROM_X;
    auto load = [&](int r) {
      const size_t at = size_t(r) * C + c;
      return GradientRow{load_pack<V>(dY + at), reads_x ? load_pack<V>(X + at) : Pack<float, V>{}, {}};
    };
    visit_rows<AHEAD>(segment.start + threadIdx.y, segment.stop, blockDim.y, load, [&](int r, const GradientRow& row) {
      Pack<float, V> g = rectified_gradient(row, normalized, {slope, bound});
#pragma unroll
      for (int i = 0; i < V; i++) {
        const float centred = row.x.v[i] - normalized.mean.v[i];
        const float through = batch ? centred * tilt.v[i] + shift.v[i] : 0;  // not 0 times a mean of inf
        g.v[i] = normalized.scale.v[i] * g.v[i] + through;
        if (MAGNITUDE) largest = max(largest, finite_magnitude(g.v[i]));
      }
      store_pack(dX + size_t(r) * C + c, g);
    });
  }
  if (MAGNITUDE) write_largest(magnitude, state, largest, gridDim.x * gridDim.y);
}
