// Windows of pooling and the outputs that an input lies in; fixed windows (FH, FW) or adaptive ones.
#pragma once
#include "common/cuda.h"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;  // the type of the arithmetic
using Index = ALPHA_INDEX;
constexpr int THREADS = 256, V = ALPHA_VECTOR;
constexpr bool ADAPTIVE = ALPHA_ADAPTIVE;
constexpr int FH = ALPHA_FH, FW = ALPHA_FW, SH = ALPHA_SH, SW = ALPHA_SW, PH = ALPHA_PH, PW = ALPHA_PW;

// A pack of channels at (n, h, w) of an array (N, H, W, C): what a thread computes.
struct Place {
  int n, h, w, c;
};
__device__ __forceinline__ Place place(Index thread, int H, int W, int C) {
  const Index packs = C / V;
  Place p;
  p.c = int(thread % packs) * V, thread /= packs;
  p.w = int(thread % W), thread /= W;
  p.h = int(thread % H), p.n = int(thread / H);
  return p;
}
__device__ __forceinline__ size_t offset(int n, int h, int w, int c, int H, int W, int C) {
  return ((size_t(n) * H + h) * W + w) * C + c;
}

// One axis of a window: inputs [start, stop), and their number.
struct Span {
  int start, stop, length;
};
template <int F, int S, int P>
__device__ __forceinline__ Span window(int o, int I, int O) {
  if (ADAPTIVE) {
    const int start = unsigned(o * I) / O, stop = unsigned((o + 1) * I + O - 1) / O;
    return {start, stop, stop - start};
  }
  const int first = o * S - P, start = max(first, 0), stop = min(first + F, I);
  return {start, stop, stop - start};
}

// The outputs [start, stop) whose windows hold input i of an axis.
template <int F, int S, int P>
__device__ __forceinline__ Span outputs(int i, int I, int O) {
  if (ADAPTIVE) return {int(unsigned(i * O) / I), int(unsigned((i + 1) * O - 1) / I) + 1, 0};
  const int start = i + P - F + 1 > 0 ? (i + P - F + S) / S : 0;
  return {start, min((i + P) / S + 1, O), 0};
}
