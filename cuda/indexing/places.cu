// F[i] = before[i] + stride * index[i] + the place that i itself has, or -1 if an index is out of range.
//
// An index that is negative counts from `end`: the length, or 0 if none may be negative. `before`, if not null, holds
// the places of the axes before. With `inner` and `outer` each i has a place of its own: i % inner + i / outer *
// outer_stride; inner is 1 without one.
// Grid: ceil(size / 256). Block: 256. No shared memory, no macros.
#include "common/cuda.h"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    places(long long* __restrict__ F, const long long* __restrict__ index, const long long* __restrict__ before,
           long long size, long long length, long long end, long long stride, long long inner, long long outer,
           long long outer_stride) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= size) return;
  const long long given = index[i], at = given < 0 ? given + end : given, base = before ? before[i] : 0;
  const bool inside = at >= 0 && at < length && base >= 0;
  F[i] = inside ? base + at * stride + i % inner + i / outer * outer_stride : -1;
}
