// Input gradient of batch normalisation: dX = a dY with a = weight / sqrt(var + eps), and if mean and
// var came from the batch   dX = a (dY - dbias / R - (X - mean) dweight / (R sqrt(var + eps))).
//
// dX, dY, X (R, C) of TYPE, everything else (C,).
// Grid: (ceil(R / rows), ceil(C / (VECTOR tx))); a block takes `rows` rows. Block: (tx, ty), at most 512
// threads. No shared memory: a thread keeps its columns' numbers.
// Macros: TYPE float | bfloat16; VECTOR 1 | 4 divides C, arrays are aligned to packs.
#include "batchnorm/pair.cuh"

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    input_gradient(T* __restrict__ dX, const T* __restrict__ dY, const T* __restrict__ X,
                   const float* __restrict__ mean, const float* __restrict__ var, const float* __restrict__ weight,
                   const float* __restrict__ dweight, const float* __restrict__ dbias, float eps, int R, int C,
                   int rows, int batch) {
  const int c = (blockIdx.y * blockDim.x + threadIdx.x) * V;
  if (c >= C) return;
  const Pack<float, V> m = load_pack<V>(mean + c);
  Pack<float, V> a = load_pack<V>(weight + c), slope = {}, shift = {};
  const Pack<float, V> s = load_pack<V>(var + c);
  if (batch) slope = load_pack<V>(dweight + c), shift = load_pack<V>(dbias + c);
#pragma unroll
  for (int i = 0; i < V; i++) {
    const float rstd = 1 / sqrtf(s.v[i] + eps);
    a.v[i] *= rstd;
    slope.v[i] *= -a.v[i] * rstd / R;
    shift.v[i] *= -a.v[i] / R;
  }
  const Segment segment = segment_rows(blockIdx.x, rows, R);
  auto load = [&](int r) {
    const size_t at = size_t(r) * C + c;
    return Pair{load_pack<V>(dY + at), batch ? load_pack<V>(X + at) : Pack<float, V>{}};
  };
  visit_rows(segment.start + threadIdx.y, segment.stop, blockDim.y, load, [&](int r, Pair p) {
#pragma unroll
    for (int i = 0; i < V; i++) {
      const float through = batch ? (p.x.v[i] - m.v[i]) * slope.v[i] + shift.v[i] : 0;  // not 0 times a mean of inf
      p.g.v[i] = a.v[i] * p.g.v[i] + through;
    }
    store_pack(dX + size_t(r) * C + c, p.g);
  });
}
