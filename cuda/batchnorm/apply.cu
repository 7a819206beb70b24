// Y = weight (X - mean) / sqrt(var + eps) + bias, by columns   X, Y (R, C) of TYPE, the others (C,)
//
// Grid: (ceil(R / rows), ceil(C / (VECTOR tx))); a block takes `rows` rows. Block: (tx, ty), at most 512
// threads. No shared memory: a thread keeps its columns' numbers.
// Macros: TYPE float | bfloat16; VECTOR 1 | 4 | 8 divides C, arrays are aligned to packs.
#include "common/columns.cuh"

using T = ALPHA_TYPE;
constexpr int V = ALPHA_VECTOR;

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    apply(T* __restrict__ Y, const T* __restrict__ X, const float* __restrict__ mean, const float* __restrict__ var,
          const float* __restrict__ weight, const float* __restrict__ bias, float eps, int R, int C, int rows) {
  const int c = (blockIdx.y * blockDim.x + threadIdx.x) * V;
  if (c >= C) return;
  const Pack<float, V> m = load_pack<V>(mean + c), w = load_pack<V>(weight + c);
  const Pack<float, V> s = load_pack<V>(var + c), b = load_pack<V>(bias + c);
  Pack<float, V> scale;
#pragma unroll
  for (int i = 0; i < V; i++) scale.v[i] = w.v[i] / sqrtf(s.v[i] + eps);
  const Segment segment = segment_rows(blockIdx.x, rows, R);
  visit_rows(
      segment.start + threadIdx.y, segment.stop, blockDim.y, [&](int r) { return load_pack<V>(X + size_t(r) * C + c); },
      [&](int r, Pack<float, V> x) {
#pragma unroll
        for (int i = 0; i < V; i++) x.v[i] = (x.v[i] - m.v[i]) * scale.v[i] + b.v[i];
        store_pack(Y + size_t(r) * C + c, x);
      });
}
