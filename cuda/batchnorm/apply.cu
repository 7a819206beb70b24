// Y = weight (X - mean) / sqrt(var + eps) + bias, by columns, plus a residual and rectified if the macros say so
//
// X, residual, Y (R, C) of TYPE, the others (C,).
// Grid: (ceil(R / rows), ceil(C / (VECTOR tx))); a block takes `rows` rows. Block: (tx, ty), at most 512
// threads. No shared memory: a thread keeps its columns' numbers.
// Macros: TYPE float | bfloat16; VECTOR 1 | 4 | 8 (not with a residual) divides C, arrays are aligned
// to packs; RESIDUAL, RECTIFIED 0 | 1; MAGNITUDE 1: `magnitude` gets the bits of the largest finite magnitude of Y, see
// fp16_terms.cuh, and the blocks meet in two words `state`, which are 0 before and again at the end; else 0.
#include "batchnorm/normalize.cuh"
#include "common/fp16_terms.cuh"
#include "common/largest.cuh"

using T = ALPHA_TYPE;
constexpr int V = ALPHA_VECTOR;
constexpr bool RESIDUAL = ALPHA_RESIDUAL, RECTIFIED = ALPHA_RECTIFIED, MAGNITUDE = ALPHA_MAGNITUDE;

struct Operands {
  Pack<float, V> x, residual;
};

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    apply(T* __restrict__ Y, unsigned* magnitude, unsigned* state, const T* __restrict__ X,
          const T* __restrict__ residual, const float* __restrict__ mean, const float* __restrict__ var,
          const float* __restrict__ weight, const float* __restrict__ bias, float eps, float smallest, float slope,
          float bound, int R, int C, int rows) {
  const int c = (blockIdx.y * blockDim.x + threadIdx.x) * V;
  unsigned largest = 0;
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
    });
  }
  if (MAGNITUDE) write_largest(magnitude, state, largest, gridDim.x * gridDim.y);
}
