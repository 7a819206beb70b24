// Y = weight (X - mean) / sqrt(var + eps) + bias, by columns, plus a residual and rectified if the macros say so
//
// X, residual, Y (R, C) of TYPE, the others (C,).
// Grid: (ceil(R / rows), ceil(C / (VECTOR tx))); a block takes `rows` rows. Block: (tx, ty), at most 512
// threads. No shared memory: a thread keeps its columns' numbers.
// Macros: TYPE float | bfloat16; VECTOR 1 | 4 | 8 (not with a residual) divides C, arrays are aligned
// to packs; RESIDUAL, RECTIFIED 0 | 1; MAGNITUDE 1: `magnitude` gets the bits of the largest finite magnitude of Y, see
// fp16_terms.cuh, and the blocks meet in two words `state`, which are 0 before and again at the end; else 0.
// HALF 1 (MAGNITUDE 0, VECTOR above 1): `half` (R, C) gets Y in fp16, by the scale of `magnitude`. That word gets the
// bits of a limit of the magnitudes of Y: the sum of `limit`, that of X normalised, and of `residual_limit`, which a
// rectifier may change. Else 0.
#include "batchnorm/half.cuh"
#include "batchnorm/normalize.cuh"
#include "common/largest.cuh"

using T = ALPHA_TYPE;
constexpr int V = ALPHA_VECTOR;
constexpr bool RESIDUAL = ALPHA_RESIDUAL, RECTIFIED = ALPHA_RECTIFIED, MAGNITUDE = ALPHA_MAGNITUDE, HALF = ALPHA_HALF;

struct Operands {
  Pack<float, V> x, residual;
};

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    apply(T* __restrict__ Y, unsigned* magnitude, unsigned* state, const T* __restrict__ X,
          const T* __restrict__ residual, const float* __restrict__ mean, const float* __restrict__ var,
          const float* __restrict__ weight, const float* __restrict__ bias, float eps, float smallest, float slope,
          float bound, int R, int C, int rows, uint16_t* __restrict__ half, const unsigned* __restrict__ limit,
          const unsigned* __restrict__ residual_limit) {
  const int c = (blockIdx.y * blockDim.x + threadIdx.x) * V;
  unsigned largest = 0;
  float scale = 1;
  if (HALF) {
    float most = __uint_as_float(*limit);
    if (RESIDUAL) most += __uint_as_float(*residual_limit);
    if (RECTIFIED) most *= fmaxf(slope, 1.f);
    if (RECTIFIED && slope == 0) most = fminf(most, bound);
    if (blockIdx.x + blockIdx.y + threadIdx.x + threadIdx.y == 0) *magnitude = __float_as_uint(most);
    scale = half_scale(__float_as_uint(most));
  }
  if (c < C) {
    const Normalization<V> normalized(mean, var, weight, bias, eps, c, smallest);
    const Rectifier<float> rectified = {slope, bound};
    const Segment segment = segment_rows(blockIdx.x, rows, R);
    auto load = [&](int r) {
      const size_t at = size_t(r) * C + c;
      return Operands{load_pack<V>(X + at), RESIDUAL ? load_pack<V>(residual + at) : Pack<float, V>{}};
    };
    visit_rows(segment.start + threadIdx.y, segment.stop, blockDim.y, load, [&](int r, const Operands& row) {
      Pack<float, V> y;
#pragma unroll
      for (int i = 0; i < V; i++) {
        float z = normalized(row.x, i);
        if (RESIDUAL) z += row.residual.v[i];
        y.v[i] = RECTIFIED ? rectified(z) : z;
        if (MAGNITUDE) largest = max(largest, finite_magnitude(y.v[i]));
      }
      store_pack(Y + size_t(r) * C + c, y);
      if constexpr (HALF) store_half(half + size_t(r) * C + c, y, scale);
    });
  }
  if (MAGNITUDE) write_largest(magnitude, state, largest, gridDim.x * gridDim.y);
}
