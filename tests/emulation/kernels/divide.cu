// The divisions of common/divide.cuh, and the steps of each split (conv2d/shape.cuh).
#include "conv2d/shape.cuh"

// out (n, 5): floor_divide(a, b), divide(|a|, b), ceil_divide(|a|, b).
extern "C" __global__ void divisions(int* out, const int* a, const int* b, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int magnitude = a[i] < 0 ? -a[i] : a[i];
  const Division down = floor_divide(a[i], b[i]), plain = divide(magnitude, b[i]);
  out[i * 5] = down.quotient, out[i * 5 + 1] = down.remainder;
  out[i * 5 + 2] = plain.quotient, out[i * 5 + 3] = plain.remainder;
  out[i * 5 + 4] = ceil_divide(magnitude, b[i]);
}

// out (GZ, 2): the first step of a split and the step after its last. One thread per split.
extern "C" __global__ void splits(int* out, int total, int GZ) {
  const Range steps = split_steps(total, threadIdx.x, GZ);
  out[threadIdx.x * 2] = steps.begin, out[threadIdx.x * 2 + 1] = steps.end;
}
