// Y[i0, .., i(k-1)] = X[i0 s0 + .. + i(k-1) s(k-1)]: repeats X along the axes whose stride is 0.
//
// Grid: ceil(size / (256 VECTOR)). Block: 256. No shared memory.
// Needs: the last axis is a multiple of VECTOR long and the packs of Y (and of X, if
// its last stride is 1) are aligned.
// Macros: AXES 1..6; TYPE element type, or an integer of its size; VECTOR 1 | 4 | 8; INDEX an unsigned type that holds
// the size.
#include "common/cuda.h"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Index = ALPHA_INDEX;
constexpr int THREADS = 256, AXES = ALPHA_AXES, V = ALPHA_VECTOR;

struct Axes {
  long long length[6], stride[6];
};

extern "C" __global__ void __launch_bounds__(THREADS)
    broadcast(T* __restrict__ Y, const T* __restrict__ X, long long elements, const Axes axes) {
  const Index i = (Index(blockIdx.x) * THREADS + threadIdx.x) * V;
  if (i >= Index(elements)) return;
  Index rest = i, source = 0;
#pragma unroll
  for (int axis = AXES - 1; axis > 0; axis--) {
    const Index length = axes.length[axis];
    source += rest % length * Index(axes.stride[axis]);
    rest /= length;
  }
  source += rest * Index(axes.stride[0]);
  const bool repeats = axes.stride[AXES - 1] == 0;
  store_pack(Y + i, repeats ? splat<V>(X[source]) : load_pack<V>(X + source));
}
