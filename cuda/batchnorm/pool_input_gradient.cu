// Input gradient of a batch normalisation that a maximum pool follows, as input_gradient.cu computes it of dZ, the
// gradient of the pool, through a rectifier if RECTIFIED is FROM_X.
//
// The gradient of the pool is nowhere in memory: that of a pixel is gathered from the windows whose maximum it is. A
// thread takes the pixels of a *cell* together, the SH x SW pixels that a stride has in both directions: they lie in
// the same few windows, and which taps of them they are is known when the kernel is compiled.
// dX, X (N, IH, IW, C) and dY (N, OH, OW, C) of TYPE, I (N, OH, OW, C) of uint8, everything else (C,); R = N IH IW.
// With BEHIND, X is the result of a rectifier, and dX the gradient of what this was given.
// Grid: (ceil(cells / rows), ceil(C / (VECTOR tx))); a block takes `rows` cells. Block: (tx, ty), at most 512 threads.
// Macros: TYPE float | bfloat16; VECTOR 1 | 4 divides C, arrays are aligned to packs; RECTIFIED NOT_RECTIFIED | FROM_X;
// BEHIND 0 | 1; FH FW SH SW PH PW WHOLE (pooled.cuh), with FH <= SH + 1 and FW <= SW + 1; MAGNITUDE 1: `magnitude` gets
// the bits of the largest finite magnitude of dX, see fp16_terms.cuh, and the blocks meet in two words `state`, which
// are 0 before and again at the end; else 0.
#include "batchnorm/gradient_rows.cuh"
#include "batchnorm/input_gradient.cuh"
#include "batchnorm/pooled.cuh"
#include "common/fp16_terms.cuh"
#include "common/largest.cuh"

constexpr bool BEHIND = ALPHA_BEHIND, MAGNITUDE = ALPHA_MAGNITUDE;
constexpr int NO_TAP = 255;  // of a window that does not exist

// The windows of an axis that a cell meets: those with numbers from cell + FIRST to cell + LAST. Window j takes pixel a
// of the cell as its tap  a - j S + P  if this is one of its F taps.
template <int F, int S, int P>
struct Met {
  static constexpr int FIRST = -((F - P - 1) / S), LAST = (S - 1 + P) / S, COUNT = LAST - FIRST + 1;
};
using Down = Met<FH, SH, PH>;
using Right = Met<FW, SW, PW>;
constexpr int WINDOWS = Down::COUNT * Right::COUNT, PIXELS = SH * SW;
constexpr int RESIDENT = (WINDOWS + PIXELS) * V * sizeof(T) <= 40 ? 2 : 1;  // blocks, as the registers allow

// V channels of the pixels of a cell, and of the gradients and the taps of its windows. X may be null: x is then 0.
struct Cell {
  int h, w;
  int pixel;  // the number of the first one
  Bits<T, V> g[WINDOWS], x[PIXELS];
  Pack<Tap, V> taps[WINDOWS];

  __device__ __forceinline__ Cell(const Place& place, const Shape& s, const T* dY, const Tap* I, const T* X, int c)
      : h(place.h), w(place.w), pixel((place.n * s.IH + h * SH) * s.IW + w * SW) {
#pragma unroll
    for (int j = 0; j < WINDOWS; j++) {
      const int oh = h + Down::FIRST + j / Right::COUNT, ow = w + Right::FIRST + j % Right::COUNT;
      g[j] = Bits<T, V>::of(0), taps[j] = splat<V>(Tap(NO_TAP));
      if (!WHOLE && (unsigned(oh) >= unsigned(s.OH) || unsigned(ow) >= unsigned(s.OW))) continue;
      const size_t from = size_t((place.n * s.OH + oh) * s.OW + ow) * s.C + c;
      g[j] = load_bits<V>(dY + from), taps[j] = load_pack<V>(I + from);
    }
#pragma unroll
    for (int p = 0; p < PIXELS; p++) {
      x[p] = Bits<T, V>::of(0);
      if (X && has(p, s)) x[p] = load_bits<V>(X + (at(p, s) + c));
    }
  }

  // Pixel p: whether the map has it, and the offset of its channels.
  __device__ __forceinline__ bool has(int p, const Shape& s) const {
    return WHOLE || (h * SH + p / SW < s.IH && w * SW + p % SW < s.IW);
  }
  __device__ __forceinline__ size_t at(int p, const Shape& s) const {
    return size_t(pixel + p / SW * s.IW + p % SW) * s.C;
  }

  // The gradient of the pool at pixel p, and x.
  __device__ __forceinline__ GradientRow row(int p) const {
    GradientRow found = {};
    found.x = x[p].widened();
#pragma unroll
    for (int j = 0; j < WINDOWS; j++) {
      const int fh = p / SW - (Down::FIRST + j / Right::COUNT) * SH + PH;
      const int fw = p % SW - (Right::FIRST + j % Right::COUNT) * SW + PW;
      if (fh < 0 || fh >= FH || fw < 0 || fw >= FW) continue;
      const Pack<float, V> through = g[j].widened();
#pragma unroll
      for (int i = 0; i < V; i++)
        if (taps[j].v[i] == fh * FW + fw) found.g.v[i] += through.v[i];
    }
    return found;
  }
};

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, RESIDENT)
    pool_input_gradient(T* __restrict__ dX, unsigned* magnitude, unsigned* state, const T* __restrict__ dY,
                        const Tap* __restrict__ I, const T* __restrict__ X, const float* __restrict__ mean,
                        const float* __restrict__ var, const float* __restrict__ weight, const float* __restrict__ bias,
                        const float* __restrict__ dweight, const float* __restrict__ dbias, float eps, float slope,
                        float bound, float behind_slope, float behind_bound, int R, int cells, int IH, int IW, int C,
                        int OH, int OW, int rows, int batch) {
  const int c = (blockIdx.y * blockDim.x + threadIdx.x) * V;
  unsigned largest = 0;
  if (c < C) {
    const Normalization<V> normalized(mean, var, weight, RECTIFIED == FROM_X ? bias : nullptr, eps, c);
    const InputGradient<V> gradient(normalized, var, dweight, dbias, eps, R, c, batch, false);
    const Rectifier<float> behind = {behind_slope, behind_bound};
    const Shape s = {IH, IW, C, OH, OW};
    const Segment segment = segment_rows(blockIdx.x, rows, cells);
    const T* read = batch || RECTIFIED == FROM_X || BEHIND ? X : nullptr;
    const int down = (IH + SH - 1) / SH, across = (IW + SW - 1) / SW;
    visit_places(segment.start + threadIdx.y, segment.stop, blockDim.y, down, across, [&](int, const Place& place) {
      const Cell cell(place, s, dY, I, read, c);
#pragma unroll
      for (int p = 0; p < PIXELS; p++) {
        if (!cell.has(p, s)) continue;
        const GradientRow row = cell.row(p);
        Pack<float, V> g = rectified_gradient(row, normalized, Rectifier<float>{slope, bound});
#pragma unroll
        for (int i = 0; i < V; i++) {
          g.v[i] = gradient(normalized, g.v[i], row.x.v[i] - normalized.mean.v[i], i);
          if (BEHIND) g.v[i] = behind.gradient(g.v[i], row.x.v[i]);
          if (MAGNITUDE) largest = max(largest, finite_magnitude(g.v[i]));
        }
        store_pack(dX + (cell.at(p, s) + c), g);
      }
    });
  }
  if (MAGNITUDE) write_largest(magnitude, state, largest, gridDim.x * gridDim.y);
}
