// The gradients of weight and bias: dbias = sum of dZ, dweight = sum of dZ (X - mean) / sqrt(var + eps) over the rows
//
// dZ is the gradient of what a rectifier was given, or dY itself without one. RECTIFIED says where its sign is from:
//   NOT_RECTIFIED  there is no rectifier, dZ = dY;
//   FROM_X         it is computed again, and dZ is not written: input_gradient.cu computes it again as well;
//   FROM_Y         Y has it; dZ is written, because it is the gradient of the residual, too;
//   FROM_OUTPUT    Y has it; X is not read: (X - mean) / sqrt(var + eps) is found again from Y, with weights of at
//                  least `smallest` in magnitude. dZ is not written;
//   FROM_SUM       so, too, from Y and the residual; dZ is written.
// With OTHER 1 the gradient is dY + other, and dZ is written in each case; else 0.
// dY, other, X, Y, residual, dZ (R, C) of TYPE, everything else (C,). With Y_HALF 1 (TYPE float) Y is an fp16 copy,
// whose scale follows from `Y_magnitude` (batchnorm/kept_output.cuh).
// A block adds up segment z of the rows, `rows` of them. If there are several segments, it writes its sums to
// part[0, z, c] and part[1, z, c], and the last block that comes to a tile of columns adds up the parts in their order.
// `state` has a word per tile that is 0 before and again at the end.
// Grid: (tiles = ceil(C / (VECTOR tx)), splits). Block: (tx, ty), at most 512 threads, ty a power of two.
// Shared memory: two packs per thread, with LIMIT 1 three.
// LIMIT 1: part[2, z, c] is the largest finite magnitude of dZ in the segment, and `limit` gets the bits of a limit of
//   the magnitudes of dX (gradient_sums.cuh). Blocks meet in `limit_state`, two words as `state`. Else 0.
// merge_gradient_sums: the same from the sums of `parts` parts of the rows, part (2, parts, C), which a convolution
//   wrote on its way (conv2d/sm90/first_step.cuh), and with LIMIT 1 from the largest magnitude of dZ, whose bits are in
//   `most`. Grid: ceil(C / 2). Block: (2, 256).
// Macros: TYPE float | bfloat16; VECTOR 1 | 4 | 8 (only NOT_RECTIFIED, OTHER 0) divides C, arrays are aligned
// to packs; RECTIFIED, OTHER, LIMIT, Y_HALF as above.
#include "batchnorm/gradient_sums.cuh"
#include "batchnorm/kept_output.cuh"
#include "common/many_lanes.cuh"

constexpr bool OTHER = ALPHA_OTHER;
constexpr int ROWS = OTHER ? 2 : AHEAD;  // ahead

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    gradient_sums(float* dweight, float* dbias, T* __restrict__ dZ, float* part, unsigned* state,
                  const T* __restrict__ dY, const T* __restrict__ other, const T* __restrict__ X,
                  const Kept* __restrict__ Y, const T* __restrict__ residual, const float* __restrict__ mean,
                  const float* __restrict__ var, const float* __restrict__ weight, const float* __restrict__ bias,
                  float eps, float smallest, float slope, float bound, int R, int C, int rows, unsigned* limit,
                  unsigned* limit_state, const unsigned* __restrict__ Y_magnitude) {
  __shared__ Sums<V> shared[COLUMN_THREADS];
  const int c = (blockIdx.x * blockDim.x + threadIdx.x) * V;
  const Segment segment = segment_rows(blockIdx.y, rows, R);
  Sums<V> sums = {};
  const float Y_factor = kept_factor(Y_magnitude);
  if (c < C) {
    const Normalization<V> normalized(mean, var, weight, RECTIFIED == FROM_X ? bias : nullptr, eps, c);
    const Undone<V> undone = UNDONE ? Undone<V>(weight, bias, slope, smallest, c, sizeof(T) == 2) : Undone<V>();
    auto load = [&](int r) {
      const size_t at = size_t(r) * C + c;
      const bool reads_y = RECTIFIED == FROM_Y || UNDONE;
      const Pack<float, V> none = {};
      Pack<float, V> g = load_pack<V>(dY + at);
      if constexpr (OTHER) g += load_pack<V>(other + at);
      return GradientRow{g, UNDONE ? none : load_pack<V>(X + at), reads_y ? load_kept<V>(Y + at, Y_factor) : none,
                         RECTIFIED == FROM_SUM ? load_pack<V>(residual + at) : none};
    };
    visit_rows<ROWS>(segment.start + threadIdx.y, segment.stop, blockDim.y, load, [&](int r, const GradientRow& row) {
      const Pack<float, V> g = rectified_gradient(row, normalized, Rectifier<float>{slope, bound});
      if (RECTIFIED == FROM_Y || RECTIFIED == FROM_SUM || OTHER) store_pack(dZ + size_t(r) * C + c, g);
      sums.g += g;
#pragma unroll
      for (int i = 0; i < V; i++) sums.gx.v[i] += g.v[i] * centred(row, normalized, undone, i);
      sums.see(g);
    });
  }
  finish_sums<!UNDONE>(sums, shared, dweight, dbias, part, state, var, eps, c, C,
                       {limit, limit_state, var, weight, eps, R, nullptr});
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    merge_gradient_sums(float* __restrict__ dweight, float* __restrict__ dbias, const float* __restrict__ part,
                        const float* __restrict__ var, float eps, int C, int parts, const float* __restrict__ weight,
                        const unsigned* __restrict__ most, int R, unsigned* limit, unsigned* limit_state) {
  __shared__ Sums<1> shared[COLUMN_THREADS];
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  const GradientLimit limits = {limit, limit_state, var, weight, eps, R, most};
  Sums<1> sums = lane_sums<1, false>(part, parts, C, c, c < C);
  reduce_many_lanes(sums, shared);
  unsigned word = 0;
  if (c < C && threadIdx.y == 0) word = store_gradients<!UNDONE>(dweight, dbias, sums, var, eps, c, limits);
  if (LIMIT && threadIdx.y * blockDim.x + threadIdx.x < 32)
    write_largest_of_first_warps(limit, limit_state, word, gridDim.x);
}
