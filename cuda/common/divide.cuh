// Division of integers. A GPU computes one in about 130 cycles, and the work before the first load of a kernel needs many of
// them, often by 1: a stride, a map of one pixel, a filter of one tap. All of these must be cheap.
#pragma once
#include "common/cuda.h"

struct Division {
  int quotient, remainder;
};

// a / b and a % b of a >= 0 and b > 0.
__device__ __forceinline__ Division divide(int a, int b) {
  if (b == 1) return {a, 0};
  const int quotient = unsigned(a) / unsigned(b);
  return {quotient, a - quotient * b};
}

// The same for any a, rounded down: the remainder is never negative.
__device__ __forceinline__ Division floor_divide(int a, int b) {
  if (b == 1) return {a, 0};
  const int quotient = a / b - (a % b < 0);
  return {quotient, a - quotient * b};
}

// a / b of a >= 0 and b > 0, rounded up.
__device__ __forceinline__ int ceil_divide(int a, int b) { return divide(a + b - 1, b).quotient; }
