// Y = the maxima over windows of  rectifier(weight (X - mean) / sqrt(var + eps) + bias),  and the tap I of each
//
// Each element is computed and rounded as apply.cu does it, so the maxima are those of its result, which nobody writes.
// The first of equal numbers wins, NaN is above every number, and the last NaN wins, as in pool2d/max_pool2d.cu.
// X (N, IH, IW, C) and Y (N, OH, OW, C) of TYPE, I (N, OH, OW, C) of uint8, the others (C,); R = N OH OW.
// Grid: (ceil(R / rows), ceil(C / (VECTOR tx))); a block takes `rows` windows. Block: (tx, ty), at most 512 threads.
// Macros: TYPE float | bfloat16; VECTOR 1 | 4 divides C, arrays are aligned to packs; RECTIFIED 0 | 1;
// FH FW SH SW PH PW WHOLE (pooled.cuh); MAGNITUDE 1: `magnitude` gets the bits of the largest finite magnitude of Y,
// see fp16_terms.cuh, and the blocks meet in two words `state`, which are 0 before and again at the end; else 0.
#include "batchnorm/normalize.cuh"
#include "batchnorm/pooled.cuh"
#include "common/fp16_terms.cuh"
#include "common/largest.cuh"

using T = ALPHA_TYPE;
constexpr int V = ALPHA_VECTOR;
constexpr bool RECTIFIED = ALPHA_RECTIFIED, MAGNITUDE = ALPHA_MAGNITUDE;

// A number as it is in memory.
__device__ __forceinline__ float stored(float z) {
  if constexpr (sizeof(T) == sizeof(float)) return z;
  return __bfloat162float(__float2bfloat16_rn(z));
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    apply_pool(T* __restrict__ Y, Tap* __restrict__ I, unsigned* magnitude, unsigned* state, const T* __restrict__ X,
               const float* __restrict__ mean, const float* __restrict__ var, const float* __restrict__ weight,
               const float* __restrict__ bias, float eps, float slope, float bound, int R, int IH, int IW, int C,
               int OH, int OW, int rows) {
  const int c = (blockIdx.y * blockDim.x + threadIdx.x) * V;
  unsigned largest = 0;
  if (c < C) {
    const Normalization<V> normalized(mean, var, weight, bias, eps, c);
    const Rectifier<float> rectified = {slope, bound};
    const Shape s = {IH, IW, C, OH, OW};
    const Segment segment = segment_rows(blockIdx.x, rows, R);
    visit_places(segment.start + threadIdx.y, segment.stop, blockDim.y, OH, OW, [&](int r, const Place& place) {
      const Window window(place, s);
      Pack<float, V> best = splat<V>(-__int_as_float(0x7f800000));
      Pack<Tap, V> taps = splat<V>(Tap(window.first_tap()));  // of a window without a number above -inf
      visit_taps<V>(window, s, X, c, [&](int tap, const Pack<float, V>& x) {
#pragma unroll
        for (int i = 0; i < V; i++) {
          float z = normalized(x, i);
          z = stored(RECTIFIED ? rectified(z) : z);
          if (z > best.v[i] || z != z) best.v[i] = z, taps.v[i] = tap;
        }
      });
#pragma unroll
      for (int i = 0; i < V && MAGNITUDE; i++) largest = max(largest, finite_magnitude(best.v[i]));
      store_pack(Y + (size_t(r) * C + c), best);
      store_pack(I + (size_t(r) * C + c), taps);
    });
  }
  if (MAGNITUDE) write_largest(magnitude, state, largest, gridDim.x * gridDim.y);
}
