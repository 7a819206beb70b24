// Maximum over windows of X (N, IH, IW, C) to Y (N, OH, OW, C) with its tap I, and its gradient.
//
// A thread computes a pack of VECTOR channels of the result; the gradient gathers from the outputs whose windows
// hold its input, so that nothing is added atomically. If windows lie APART, so that an input has at most one, a
// thread makes the gradients of a *cell*: the SH x SW inputs of a window and of the gap behind it. The first of
// equal numbers wins, NaN is above every number, and the last NaN wins, as in PyTorch. If X is the result of a
// rectifier, the gradient may be that of what this was given: the maxima Y have its sign.
// Grid: ceil(packs of the result / (256 PACKS)), of the gradient with APART 1 those of the cells. Block: 256. Shared
// memory: a few words.
// Macros: TYPE float | double | bfloat16; VECTOR 1 | 4 | 8 divides C, arrays are aligned to packs; INDEX an unsigned
// type that holds the size; FH FW SH SW PH PW; DH DW, the distance between taps; ADAPTIVE
// (then those are not read, and IH OH and IW OW are below 2^31); APART 0 | 1 (then FH <= SH, FW <= SW, and there
// is no dilation); TAP uint8_t | int, which holds the number of a tap.
// PACKS of a thread; MAGNITUDE 1: `magnitude` gets the bits of the largest finite magnitude of the result, see
// fp16_terms.cuh, and the blocks meet in two words `state`, which are 0 before and again at the end; else 0. Of the
// gradient: RECTIFIED 0 (Y is null) | 1.
#include "common/fp16_terms.cuh"
#include "common/largest.cuh"
#include "common/rectifier.cuh"
#include "pool2d/pool2d.cuh"

using Tap = ALPHA_TAP;
constexpr int DH = ALPHA_DH, DW = ALPHA_DW, PACKS = ALPHA_PACKS;
constexpr bool APART = ALPHA_APART, RECTIFIED = ALPHA_RECTIFIED, MAGNITUDE = ALPHA_MAGNITUDE;
static_assert(!APART || (!ADAPTIVE && FH <= SH && FW <= SW && DH == 1 && DW == 1), "an input has at most one window");
constexpr int SPAN_H = (FH - 1) * DH + 1, SPAN_W = (FW - 1) * DW + 1;

// Takes x, tap number `tap` of a window, if it is the largest so far. NaN is above every number.
__device__ __forceinline__ void take(Pack<Real, V>& best, Pack<Tap, V>& taps, const Pack<Real, V>& x, int tap) {
#pragma unroll
  for (int i = 0; i < V; i++)
    if (x.v[i] > best.v[i] || x.v[i] != x.v[i]) best.v[i] = x.v[i], taps.v[i] = tap;
}

// The number of the tap of output (oh, ow) that is input (h, w), or -1 for an input in a gap of a dilated window.
__device__ __forceinline__ int tap_of(int h, int w, int oh, int ow, const Span& rows, const Span& columns) {
  if (ADAPTIVE) return (h - rows.start) * columns.length + w - columns.start;
  const int fh = h + PH - oh * SH, fw = w + PW - ow * SW;
  return fh % DH == 0 && fw % DW == 0 ? fh / DH * FW + fw / DW : -1;
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    max_pool2d_forward(T* __restrict__ Y, Tap* __restrict__ I, unsigned* magnitude, unsigned* state,
                       const T* __restrict__ X, int N, int IH, int IW, int C, int OH, int OW) {
  const Pack<Real, V> least = splat<V>(Real(-__int_as_float(0x7f800000)));
  unsigned largest = 0;
#pragma unroll 1
  for (int pack = 0; pack < PACKS; pack++) {
    const Place p = place((Index(blockIdx.x) * PACKS + pack) * THREADS + threadIdx.x, OH, OW, C);
    if (p.n >= N) break;
    Pack<Real, V> best = least;
    // a window without a number above -inf has its maximum at the first tap that meets the input
    Pack<Tap, V> taps = splat<V>(
        ADAPTIVE ? Tap(0) : Tap((max(PH - p.h * SH, 0) + DH - 1) / DH * FW + (max(PW - p.w * SW, 0) + DW - 1) / DW));
    if (ADAPTIVE) {
      const Span rows = window<FH, SH, PH>(p.h, IH, OH), columns = window<FW, SW, PW>(p.w, IW, OW);
      int tap = 0;
      for (int ih = rows.start; ih < rows.stop; ih++)
        for (int iw = columns.start; iw < columns.stop; iw++, tap++)
          take(best, taps, load_pack<V>(X + offset(p.n, ih, iw, p.c, IH, IW, C)), tap);
    } else {
      constexpr int BATCH = FW <= 4 ? FW : 1;  // loads of a row in flight before the first is looked at
      for (int tap = 0; tap < FH * FW; tap += BATCH) {
        const int ih = p.h * SH - PH + tap / FW * DH, iw = p.w * SW - PW + tap % FW * DW;
        if (ih < 0 || ih >= IH) continue;
        Pack<Real, V> x[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
          x[j] = least;
          if (iw + j * DW >= 0 && iw + j * DW < IW)
            x[j] = load_pack<V>(X + offset(p.n, ih, iw + j * DW, p.c, IH, IW, C));
        }
#pragma unroll
        for (int j = 0; j < BATCH; j++) take(best, taps, x[j], tap + j);
      }
    }
    const size_t at = offset(p.n, p.h, p.w, p.c, OH, OW, C);
    store_pack(Y + at, best);
    store_pack(I + at, taps);
#pragma unroll
    for (int i = 0; i < V && MAGNITUDE; i++) largest = max(largest, finite_magnitude(best.v[i]));
  }
  if (MAGNITUDE) write_largest(magnitude, state, largest, gridDim.x);
}

// The gradient of a pack, through the rectifier if there is one; y: the maxima.
__device__ __forceinline__ Pack<Real, V> rectify(Pack<Real, V> sum, const Pack<Real, V>& y,
                                                 const Rectifier<Real>& rectifier, unsigned& largest) {
#pragma unroll
  for (int i = 0; i < V; i++) {
    if (RECTIFIED) sum.v[i] = rectifier.gradient(sum.v[i], y.v[i]);
    if (MAGNITUDE) largest = max(largest, finite_magnitude(sum.v[i]));
  }
  return sum;
}

// What an output gives to the inputs of its window.
struct Given {
  Pack<Real, V> g, y;
  Pack<Tap, V> taps;

  __device__ __forceinline__ Given(const T* dY, const Tap* I, const T* Y, size_t at)
      : g(load_pack<V>(dY + at)), y(RECTIFIED ? load_pack<V>(Y + at) : Pack<Real, V>{}), taps(load_pack<V>(I + at)) {}
};

constexpr int RESIDENT = 4 - ADAPTIVE - (RECTIFIED && sizeof(T) == 8);  // blocks, as the registers allow

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    max_pool2d_backward(T* __restrict__ dX, unsigned* magnitude, unsigned* state, const T* __restrict__ dY,
                        const Tap* __restrict__ I, const T* __restrict__ Y, Real slope, Real bound, int N, int IH,
                        int IW, int C, int OH, int OW) {
  const Rectifier<Real> rectifier = {slope, bound};
  unsigned largest = 0;
#pragma unroll 1
  for (int pack = 0; pack < PACKS; pack++) {
    const Index thread = (Index(blockIdx.x) * PACKS + pack) * THREADS + threadIdx.x;
    if constexpr (APART) {
      const Place p = place(thread, (IH + PH + SH - 1) / SH, (IW + PW + SW - 1) / SW, C);
      if (p.n >= N) break;
      const bool has_window = p.h < OH && p.w < OW;
      Pack<Real, V> gradient = {};
      Pack<Tap, V> taps = {};
      if (has_window) {
        const Given given(dY, I, Y, offset(p.n, p.h, p.w, p.c, OH, OW, C));
        gradient = rectify(given.g, given.y, rectifier, largest), taps = given.taps;
      }
#pragma unroll
      for (int pixel = 0; pixel < SH * SW; pixel++) {
        const int fh = pixel / SW, fw = pixel % SW, ih = p.h * SH - PH + fh, iw = p.w * SW - PW + fw;
        if (unsigned(ih) >= unsigned(IH) || unsigned(iw) >= unsigned(IW)) continue;
        Pack<Real, V> own = {};
#pragma unroll
        for (int i = 0; i < V && fh < FH && fw < FW; i++)
          if (taps.v[i] == fh * FW + fw) own.v[i] = gradient.v[i];
        store_pack(dX + offset(p.n, ih, iw, p.c, IH, IW, C), own);
      }
      continue;
    }
    const Place p = place(thread, IH, IW, C);
    if (p.n >= N) break;
    const Span rows = outputs<SPAN_H, SH, PH>(p.h, IH, OH), columns = outputs<SPAN_W, SW, PW>(p.w, IW, OW);
    Pack<Real, V> sum = {}, maximum = {};
    for (int oh = rows.start; oh < rows.stop; oh++)
      for (int ow = columns.start; ow < columns.stop; ow++) {
        const int tap = tap_of(p.h, p.w, oh, ow, window<FH, SH, PH>(oh, IH, OH), window<FW, SW, PW>(ow, IW, OW));
        const Given given(dY, I, Y, offset(p.n, oh, ow, p.c, OH, OW, C));
#pragma unroll
        for (int i = 0; i < V; i++)
          if (given.taps.v[i] == tap) sum.v[i] += given.g.v[i], maximum.v[i] = given.y.v[i];
      }
    store_pack(dX + offset(p.n, p.h, p.w, p.c, IH, IW, C), rectify(sum, maximum, rectifier, largest));
  }
  if (MAGNITUDE) write_largest(magnitude, state, largest, gridDim.x);
}
