// Y[z, a, b] = sum of X[a, r, b] over the rows r of segment z: columns, rows (B = 1) or everything in between.
//
// X (A, R, B), Y (splits, A, B), of floats if X is bfloat16. Segment z is rows [z rows, (z + 1) rows).
// Grid: (ceil(B / (VECTOR tx)) ceil(A / tz), splits). Block: (tx packs of columns, ty rows, tz slabs), at
// most 512 threads, ty a power of two. Shared memory: a pack per thread.
// Needs: B is a multiple of VECTOR and X and Y are aligned to packs.
// Macros: TYPE float | double | bfloat16, of X; VECTOR 1 | 4 | 8.
#include "common/columns.cuh"

using T = ALPHA_TYPE;
using Sum = Number<T>;
constexpr int V = ALPHA_VECTOR;

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    sum_columns(Sum* __restrict__ Y, const T* __restrict__ X, int A, int R, int B, int rows) {
  __shared__ Pack<Sum, V> shared[COLUMN_THREADS];
  const int tiles = (B + blockDim.x * V - 1) / (blockDim.x * V);
  const int b = (blockIdx.x % tiles * blockDim.x + threadIdx.x) * V;
  const int a = blockIdx.x / tiles * blockDim.z + threadIdx.z;
  const Segment segment = segment_rows(blockIdx.y, rows, R);
  Pack<Sum, V> sum = {};
  if (a < A && b < B) {
    const T* x = X + size_t(a) * R * B + b;
    visit_rows(
        segment.start + threadIdx.y, segment.stop, blockDim.y, [&](int r) { return load_pack<V>(x + size_t(r) * B); },
        [&](int, const Pack<Sum, V>& value) { sum += value; });
  }
  reduce_lanes(sum, shared);
  if (a < A && b < B && threadIdx.y == 0) store_pack(Y + (size_t(blockIdx.y) * A + a) * B + b, sum);
}
