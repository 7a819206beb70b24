// Division of integers. A GPU has no instruction for it: it takes some 20 instructions, each of which waits for the one
// before. The work before the first load of a kernel has many divisions, and often the divisor is 1: a stride, a map of
// one pixel, a filter of one tap. Those are left out.
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
