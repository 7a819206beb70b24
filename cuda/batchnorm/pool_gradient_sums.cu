// The gradients of weight and bias of a batch normalisation that a maximum pool follows: dbias = sum of dZ, dweight =
// sum of dZ (X - mean) / sqrt(var + eps) over all pixels, dZ the gradient of the pool, through a rectifier if RECTIFIED
// is FROM_X.
//
// The gradient of the pool is nowhere in memory: each window adds its own, at the pixel that is its maximum.
// X (N, IH, IW, C) and dY (N, OH, OW, C) of TYPE, I (N, OH, OW, C) of uint8, everything else (C,); R = N OH OW. A block
// adds up segment z of the windows, `rows` of them; part and state as in gradient_sums.cuh.
// Grid: (tiles = ceil(C / (VECTOR tx)), splits). Block: (tx, ty), at most 512 threads, ty a power of two.
// Shared memory: two packs per thread.
// Macros: TYPE float | bfloat16; VECTOR 1 | 4 divides C, arrays are aligned to packs; RECTIFIED NOT_RECTIFIED | FROM_X;
// FH FW SH SW PH PW WHOLE (pooled.cuh).
#include "batchnorm/gradient_rows.cuh"
#include "batchnorm/gradient_sums.cuh"
#include "batchnorm/pooled.cuh"

// Blocks that share an SM: with two a thread has 64 registers. On most architectures they do not suffice for
// large windows of floats beside the numbers of a rectifier.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 800 && __CUDA_ARCH__ != 900
constexpr int BLOCKS = RECTIFIED == FROM_X && sizeof(T) == 4 && ALPHA_FH * ALPHA_FW > 4 ? 1 : 2;
#else
constexpr int BLOCKS = 2;
#endif

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, BLOCKS)
    pool_gradient_sums(float* dweight, float* dbias, float* part, unsigned* state, const T* __restrict__ dY,
                       const Tap* __restrict__ I, const T* __restrict__ X, const float* __restrict__ mean,
                       const float* __restrict__ var, const float* __restrict__ weight, const float* __restrict__ bias,
                       float eps, float slope, float bound, int R, int IH, int IW, int C, int OH, int OW, int rows) {
  __shared__ Sums<V> shared[COLUMN_THREADS];
  const int c = (blockIdx.x * blockDim.x + threadIdx.x) * V;
  Sums<V> sums = {};
  if (c < C) {
    const Normalization<V> normalized(mean, var, weight, RECTIFIED == FROM_X ? bias : nullptr, eps, c);
    const Shape s = {IH, IW, C, OH, OW};
    const Segment segment = segment_rows(blockIdx.y, rows, R);
    visit_places(segment.start + threadIdx.y, segment.stop, blockDim.y, OH, OW, [&](int r, const Place& place) {
      const size_t at = size_t(r) * C + c;
      const Bits<T, V> given = load_bits<V>(dY + at);
      const Pack<Tap, V> taps = load_pack<V>(I + at);
      GradientRow row = {};
      row.g = given.widened();
      visit_taps<V>(Window(place, s), s, X, c, [&](int tap, const Pack<float, V>& x) {
#pragma unroll
        for (int i = 0; i < V; i++)
          if (taps.v[i] == tap) row.x.v[i] = x.v[i];
      });
      const Pack<float, V> g = rectified_gradient(row, normalized, Rectifier<float>{slope, bound});
      sums.g += g;
#pragma unroll
      for (int i = 0; i < V; i++) sums.gx.v[i] += g.v[i] * (row.x.v[i] - normalized.mean.v[i]);
    });
  }
  finish_sums<true>(sums, shared, dweight, dbias, part, state, var, eps, c, C, GradientLimit{});
}
