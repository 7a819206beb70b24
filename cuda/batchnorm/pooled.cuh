// Batch normalisation of X (N, IH, IW, C) whose result only a maximum pool of (OH, OW) windows reads.
#pragma once
#include "common/columns.cuh"
#include "common/divide.cuh"

using Tap = uint8_t;
constexpr int FH = ALPHA_FH, FW = ALPHA_FW, SH = ALPHA_SH, SW = ALPHA_SW, PH = ALPHA_PH, PW = ALPHA_PW;
constexpr int TAPS = FH * FW;
constexpr bool WHOLE = ALPHA_WHOLE;  // the windows lie side by side and cover the map: no border is to be looked at

struct Shape {
  int IH, IW, C, OH, OW;
};

// A place of a grid (N, down, across).
struct Place {
  int n, h, w;

  __device__ __forceinline__ Place(int number, int down, int across) {
    const Division row = divide(number, across), image = divide(row.quotient, down);
    n = image.quotient, h = image.remainder, w = row.remainder;
  }

  // The place `step` further. A division takes longer than all the rest, so there is none if a row is long enough.
  __device__ __forceinline__ Place after(int step, int number, int down, int across) const {
    if (step > across) return Place(number + step, down, across);
    Place next = *this;
    next.w += step;
    if (next.w >= across) {
      next.w -= across;
      if (++next.h == down) next.h = 0, next.n++;
    }
    return next;
  }
};

// use(number, place) for the places with the numbers from `first` on, `step` further each, below `stop`.
template <typename Use>
__device__ __forceinline__ void visit_places(int first, int stop, int step, int down, int across, Use use) {
  if (first >= stop) return;
  Place place(first, down, across);
  for (int number = first; number < stop; number += step) {
    use(number, place);
    place = place.after(step, number, down, across);
  }
}

// A window: the place of its first pixel, which may lie outside of the map.
struct Window {
  int top, left, first;

  __device__ __forceinline__ Window(const Place& place, const Shape& s)
      : top(place.h * SH - PH), left(place.w * SW - PW), first((place.n * s.IH + top) * s.IW + left) {}

  // True if the map has the pixel of a tap.
  __device__ __forceinline__ bool has(int tap, const Shape& s) const {
    return WHOLE || (unsigned(top + tap / FW) < unsigned(s.IH) && unsigned(left + tap % FW) < unsigned(s.IW));
  }
  // The first tap whose pixel the map has.
  __device__ __forceinline__ int first_tap() const { return max(-top, 0) * FW + max(-left, 0); }
  __device__ __forceinline__ size_t at(int tap, const Shape& s) const {
    return size_t(first + tap / FW * s.IW + tap % FW) * s.C;
  }
};

// use(tap, x) for the taps of a window whose pixels the map has, in order; x: V channels of the pixel, from c on.
template <int V, typename T, typename Use>
__device__ __forceinline__ void visit_taps(const Window& window, const Shape& s, const T* X, int c, Use use) {
  constexpr int BATCH = TAPS * V * sizeof(T) <= 64 ? TAPS : FW;  // loads under way, as the registers allow
#pragma unroll
  for (int first = 0; first < TAPS; first += BATCH) {
    Bits<T, V> x[BATCH];
#pragma unroll
    for (int j = 0; j < BATCH; j++) {
      x[j] = Bits<T, V>::of(0);
      if (window.has(first + j, s)) x[j] = load_bits<V>(X + (window.at(first + j, s) + c));
    }
#pragma unroll
    for (int j = 0; j < BATCH; j++)
      if (window.has(first + j, s)) use(first + j, x[j].widened());
  }
}
