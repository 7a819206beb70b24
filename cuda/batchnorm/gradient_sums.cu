// Sums over the rows that the gradients of batch normalisation need   dY, X (R, C) of TYPE, everything else (C,)
//
// gradient_sums: part[0, z, c], part[1, z, c] = sum of dY and of dY (X - mean) over segment z of the rows.
//   Grid: (ceil(C / (VECTOR tx)), splits). Block: (tx, ty), at most 512 threads, ty a power of two.
//   Shared memory: two packs per thread.
// merge_sums: dbias = sum of dY; dweight = sum of dY (X - mean) / sqrt(var + eps).
//   Grid: ceil(C / 32). Block: (32, 16).
// Macros: TYPE float | bfloat16; VECTOR 1 | 4 | 8 divides C, arrays are aligned to packs.
#include "batchnorm/pair.cuh"

template <int N>
struct Sums {
  Pack<float, N> g, gx;
};

template <int N>
__device__ __forceinline__ void operator+=(Sums<N>& a, const Sums<N>& b) {
  a.g += b.g, a.gx += b.gx;
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    gradient_sums(float* __restrict__ part, const T* __restrict__ dY, const T* __restrict__ X,
                  const float* __restrict__ mean, int R, int C, int rows) {
  __shared__ Sums<V> shared[COLUMN_THREADS];
  const int c = (blockIdx.x * blockDim.x + threadIdx.x) * V;
  const Segment segment = segment_rows(blockIdx.y, rows, R);
  Sums<V> sums = {};
  if (c < C) {
    const Pack<float, V> m = load_pack<V>(mean + c);
    auto load = [&](int r) {
      const size_t at = size_t(r) * C + c;
      return Pair{load_pack<V>(dY + at), load_pack<V>(X + at)};
    };
    visit_rows(segment.start + threadIdx.y, segment.stop, blockDim.y, load, [&](int, const Pair& p) {
      sums.g += p.g;
#pragma unroll
      for (int i = 0; i < V; i++) sums.gx.v[i] += p.g.v[i] * (p.x.v[i] - m.v[i]);
    });
  }
  reduce_lanes(sums, shared);
  if (c < C && threadIdx.y == 0) {
    float* target = part + size_t(blockIdx.y) * C + c;
    store_pack(target, sums.g);
    store_pack(target + size_t(gridDim.y) * C, sums.gx);
  }
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    merge_sums(float* __restrict__ dweight, float* __restrict__ dbias, const float* __restrict__ part,
               const float* __restrict__ var, float eps, int C, int splits) {
  __shared__ Sums<1> shared[COLUMN_THREADS];
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  Sums<1> sums = {};
  if (c < C)
    for (int z = threadIdx.y; z < splits; z += blockDim.y) {
      const float* source = part + size_t(z) * C + c;
      sums += Sums<1>{load_pack<1>(source), load_pack<1>(source + size_t(splits) * C)};
    }
  reduce_lanes(sums, shared);
  if (c >= C || threadIdx.y > 0) return;
  dbias[c] = sums.g.v[0];
  dweight[c] = sums.gx.v[0] / sqrtf(var[c] + eps);
}
