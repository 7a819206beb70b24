// The pixels around the places of samples, and their weights: what the kernels of sample.cu share.
//
// A sample is a sum over TAPS^RANK pixels. The weight of a pixel is a product of one weight per axis, so each axis has
// its own taps: one for nearest, two for linear, four for cubic.
// Macros: TYPE float | double | bfloat16, whose places and weights are of float; RANK 2 | 3;
//   MODE 0 nearest | 1 linear | 2 cubic; PADDING 0 zeros | 1 border | 2 reflection; ALIGN_CORNERS 0 | 1; INDEX an
//   unsigned type that holds all sizes.
#pragma once
#include "common/bfloat16.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;
using Index = ALPHA_INDEX;
constexpr Index OUTSIDE = ~Index(0);  // no pixel
constexpr int RANK = ALPHA_RANK, NEAREST = 0, CUBIC = 2, MODE = ALPHA_MODE, TAPS = 1 << MODE;
constexpr int ZEROS = 0, REFLECTION = 2, PADDING = ALPHA_PADDING;
constexpr bool ALIGN_CORNERS = ALPHA_ALIGN_CORNERS;
constexpr int ALL_TAPS = RANK == 2 ? TAPS * TAPS : TAPS * TAPS * TAPS;

// The taps of one axis: which pixels they are, -1 if there is none, their weights and the slopes of their weights.
struct AxisTaps {
  int place[TAPS];
  Real weight[TAPS], slope[TAPS];
};

// Where p is after padding; `sign` is how it moves with p. What is not finite is outside.
__device__ __forceinline__ Real padded(Real p, int I, Real& sign) {
  sign = 1;
  if constexpr (PADDING == REFLECTION) {
    const Real first = ALIGN_CORNERS ? Real(0) : Real(-0.5), length = ALIGN_CORNERS ? Real(I - 1) : Real(I);
    if (length == 0) {
      p = 0, sign = 0;
    } else {
      const Real distance = fabs(p - first), turns = floor(distance / length), rest = distance - turns * length;
      const bool back = floor(turns / 2) * 2 != turns;
      if (p < first) sign = -sign;
      if (back) sign = -sign;
      p = (back ? length - rest : rest) + first;
    }
  }
  if constexpr (PADDING != ZEROS) {
    if (!(p > 0 && p < I - 1)) sign = 0;
    if (p < 0) p = 0;
    if (p > I - 1) p = I - 1;
  }
  return fabs(p) < Real(2147483392.0) ? p : Real(-100);
}

__device__ __forceinline__ int inside(Real place, int I) { return place >= 0 && place < I ? int(place) : -1; }

// Keys' cubic, a = -0.75, of a signed distance below 2, and its slope.
__device__ __forceinline__ void cubic(Real distance, Real& weight, Real& slope) {
  const Real a = Real(-0.75), d = fabs(distance);
  if (d <= 1) {
    weight = ((a + 2) * d - (a + 3)) * d * d + 1;
    slope = (3 * (a + 2) * d - 2 * (a + 3)) * d;
  } else {
    weight = ((d - 5) * d + 8) * d * a - 4 * a;
    slope = ((3 * d - 10) * d + 8) * a;
  }
  if (distance < 0) slope = -slope;
}

__device__ __forceinline__ AxisTaps axis_taps(Real g, int I) {
  AxisTaps taps;
  Real p = ALIGN_CORNERS ? (g + 1) / 2 * (I - 1) : ((g + 1) * I - 1) / 2, sign;
  const Real scale = Real(ALIGN_CORNERS ? I - 1 : I) / 2;
  if constexpr (MODE == CUBIC) {
    const Real low = floor(p);
#pragma unroll
    for (int k = 0; k < TAPS; k++) {
      cubic(p - low - (k - 1), taps.weight[k], taps.slope[k]);
      taps.slope[k] *= scale;
      taps.place[k] = inside(padded(low + (k - 1), I, sign), I);
    }
  } else {
    p = padded(p, I, sign);
    const Real low = MODE == NEAREST ? rint(p) : floor(p);
#pragma unroll
    for (int k = 0; k < TAPS; k++) {
      taps.place[k] = inside(low + k, I);
      taps.weight[k] = MODE == NEAREST ? Real(1) : k ? p - low : 1 - (p - low);
      taps.slope[k] = MODE == NEAREST ? Real(0) : k ? sign * scale : -sign * scale;
    }
  }
  return taps;
}

// The taps of one sample: of each axis, the depth first; `image` is the first pixel of its image.
struct Sample {
  AxisTaps axis[RANK];
  int lengths[3];
  Index image;

  __device__ __forceinline__ Sample(const Real* G, Index m, Index per_image, int ID, int IH, int IW)
      : lengths{ID, IH, IW}, image(m / per_image * ID * IH * IW) {
#pragma unroll
    for (int a = 0; a < RANK; a++) axis[a] = axis_taps(G[m * RANK + RANK - 1 - a], lengths[3 - RANK + a]);
  }

  // The number of tap k along axis a.
  __device__ __forceinline__ static constexpr int digit(int k, int a) {
    return a == RANK - 1 ? k % TAPS : a == RANK - 2 ? k / TAPS % TAPS : k / (TAPS * TAPS);
  }

  // Which pixel of all images tap k is, or OUTSIDE.
  __device__ __forceinline__ Index pixel(int k) const {
    Index at = 0;
    bool outside = false;
#pragma unroll
    for (int a = 0; a < RANK; a++) {
      const int place = axis[a].place[digit(k, a)];
      outside |= place < 0;
      at = at * lengths[3 - RANK + a] + place;
    }
    return outside ? OUTSIDE : image + at;
  }

  // The product of the weights of tap k, with the slope in place of the weight along axis `sloped`.
  __device__ __forceinline__ Real weight(int k, int sloped = -1) const {
    Real product = 1;
#pragma unroll
    for (int a = 0; a < RANK; a++) product *= a == sloped ? axis[a].slope[digit(k, a)] : axis[a].weight[digit(k, a)];
    return product;
  }
};
