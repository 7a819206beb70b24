// Y[a, b] = sum of X[a, r, b] over r: columns, rows (B = 1) or everything in between. X (A, R, B), Y (A, B). The sums
// of bfloat16 are floats.
//
// A block adds up the rows [z rows, (z + 1) rows) of segment z. If there are several segments, it writes its sum to
// `parts` (segments, A, B), and the last block that comes to a tile of columns adds up the parts in their order,
// whatever the order of the blocks was. `state` has a word per tile that is zero before, counts blocks, and is zero
// again at the end.
//
// sum_columns: B > 1. sum_long_rows: B = 1; a "row" r is a pack of VECTOR neighbours, and R counts packs. The last
// `tail`
//   elements, of a single row only, are no pack.
// Grid: (tiles, segments), tiles = ceil(B / (VECTOR tx)) ceil(A / tz). Block: (tx packs of columns, ty rows, tz slabs),
// at most 512 threads, ty a power of two, tx = 1 for sum_long_rows. Shared memory: a pack per thread.
// Needs: B, or the length of a row if A > 1, is a multiple of VECTOR, and X and Y are aligned to packs.
// Macros: TYPE float | double | bfloat16 | long long, of X; OUTPUT, of Y: the type of the sums, or bfloat16, to which
// they are rounded; VECTOR 1 | 4 | 8; WIDE 0 | 1: the sums are doubles, in which no square of a float is too large or
// too small; SQUARED 0 | 1: Y is the sum of the squares.
#include "common/columns.cuh"
#include "common/last_block.cuh"

using T = ALPHA_TYPE;
constexpr bool WIDE = ALPHA_WIDE, SQUARED = ALPHA_SQUARED;
template <bool>
struct SumOf {
  using Type = Number<T>;
};
template <>
struct SumOf<true> {
  using Type = double;
};
using Sum = SumOf<WIDE>::Type;
using Output = ALPHA_OUTPUT;
constexpr int V = ALPHA_VECTOR;

// The elements of a pack, or their squares, as terms of a sum.
template <bool SQUARES, int N, typename Real>
__device__ __forceinline__ Pack<Sum, N> terms(const Pack<Real, N>& x) {
  Pack<Sum, N> y;
#pragma unroll
  for (int i = 0; i < N; i++) y.v[i] = SQUARES ? Sum(x.v[i]) * Sum(x.v[i]) : Sum(x.v[i]);
  return y;
}

// This thread's sum of the packs at x + r stride for r, r + step, .. below `stop`. All loads of a turn are in flight at
// the same time; what lies behind the end counts as 0.
template <int N, bool SQUARES = false, typename From>
__device__ __forceinline__ Pack<Sum, N> sum_packs(const From* x, size_t stride, int r, int stop, int step) {
  constexpr int AHEAD = sizeof(From) * N > 16 ? 4 : 8;
  Pack<Sum, N> sum = {};
  for (; r<stop; r = stop - r> AHEAD * step ? r + AHEAD * step : stop) {
    Bits<From, N> bits[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
      bits[k] = k * step < stop - r ? load_bits<N>(x + size_t(r + k * step) * stride) : Bits<From, N>::of(Sum(0));
#pragma unroll
    for (int k = 0; k < AHEAD; k++) sum += terms<SQUARES>(bits[k].widened());
  }
  return sum;
}

// Adds the lanes' numbers: the sum is in lane 0. Every thread of the block must call it.
__device__ __forceinline__ void add_lanes(Pack<Sum, 1>& sum, Pack<Sum, 1>* shared) {
  const int lanes = blockDim.y;
  if (blockDim.x > 1 || lanes < 32) {  // a warp has lanes of several sums
    reduce_lanes(sum, shared);
    return;
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum.v[0] += __shfl_xor_sync(~0u, sum.v[0], distance);
  const int warps = lanes / 32, first = threadIdx.z * warps;
  if (threadIdx.y % 32 == 0) shared[first + threadIdx.y / 32] = sum;
  __syncthreads();  // the sums of all warps are written
  if (threadIdx.y > 0) return;
  for (int warp = 1; warp < warps; warp++) sum += shared[first + warp];
}
template <int N>
__device__ __forceinline__ void add_lanes(Pack<Sum, N>& sum, Pack<Sum, N>* shared) {
  reduce_lanes(sum, shared);
}

// The sum `own` of this block's segment becomes that of all segments at Y + i; `parts` of the segments are `distance`
// apart. Only threads that are `valid` have a place i.
template <int N>
__device__ __forceinline__ void finish(Output* Y, Sum* parts, unsigned* state, Pack<Sum, N> own, bool valid, size_t i,
                                       size_t distance, Pack<Sum, N>* shared) {
  const bool writes = valid && threadIdx.y == 0;
  if (gridDim.y == 1) {
    if (writes) store_pack(Y + i, own);
    return;
  }
  if (writes) store_pack(parts + blockIdx.y * distance + i, own);
  if (!comes_last(state + blockIdx.x, gridDim.y)) return;
  Pack<Sum, N> sum = {};
  if (valid) sum = sum_packs<N>(parts + i, distance, threadIdx.y, gridDim.y, blockDim.y);
  add_lanes(sum, shared);
  if (writes) store_pack(Y + i, sum);
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    sum_columns(Output* Y, Sum* parts, unsigned* state, const T* __restrict__ X, int A, int R, int B, int rows) {
  __shared__ Pack<Sum, V> shared[COLUMN_THREADS];
  const int tiles = (B + blockDim.x * V - 1) / (blockDim.x * V);
  const int b = (blockIdx.x % tiles * blockDim.x + threadIdx.x) * V;
  const int a = blockIdx.x / tiles * blockDim.z + threadIdx.z;
  const Segment segment = segment_rows(blockIdx.y, rows, R);
  const bool valid = a < A && b < B;
  Pack<Sum, V> sum = {};
  if (valid)
    sum = sum_packs<V, SQUARED>(X + size_t(a) * R * B + b, B, segment.start + threadIdx.y, segment.stop, blockDim.y);
  reduce_lanes(sum, shared);
  finish(Y, parts, state, sum, valid, size_t(a) * B + b, size_t(A) * B, shared);
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    sum_long_rows(Output* Y, Sum* parts, unsigned* state, const T* __restrict__ X, int A, int R, int tail, int rows) {
  __shared__ Pack<Sum, 1> shared[COLUMN_THREADS];
  const int a = blockIdx.x * blockDim.z + threadIdx.z;
  const Segment segment = segment_rows(blockIdx.y, rows, R);
  Pack<Sum, 1> sum = {};
  if (a < A) {
    const T* x = X + size_t(a) * R * V;
    const Pack<Sum, V> packs = sum_packs<V, SQUARED>(x, V, segment.start + threadIdx.y, segment.stop, blockDim.y);
#pragma unroll
    for (int i = 0; i < V; i++) sum.v[0] += packs.v[i];
    if (blockIdx.y == gridDim.y - 1)
#pragma unroll 1
      for (int i = threadIdx.y; i < tail; i += blockDim.y) sum += terms<SQUARED>(load_pack<1>(x + size_t(R) * V + i));
  }
  add_lanes(sum, shared);
  finish(Y, parts, state, sum, a < A, a, A, shared);
}
