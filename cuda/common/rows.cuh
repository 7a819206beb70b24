// Rows of K neighbouring elements: each is read once into the registers of the LANES neighbouring threads that share
// it, and its result is written from them.
//
// Pack p of lane l are the VECTOR elements of the row from (p LANES + l) VECTOR on, so the lanes of a row read
// neighbours. A thread is a lane of ROWS rows: the loads of all of them are in flight at the same time. A block of
// ROW_THREADS threads takes ROW_THREADS / LANES * ROWS rows.
// Shared memory: none if a row is within a warp, otherwise a few numbers per warp.
// Needs: (PACKS - 1) LANES VECTOR < K <= PACKS LANES VECTOR; K a multiple of VECTOR and the rows aligned to packs.
// Macros: VECTOR 1 | 4 | 8; LANES, a power of two up to 256; PACKS; ROWS, which is 1 if LANES > 32.
#pragma once
#include "common/vector.cuh"

constexpr int ROW_THREADS = 256, ROW_WARPS = ROW_THREADS / 32;
constexpr int VECTOR = ALPHA_VECTOR, LANES = ALPHA_LANES, PACKS = ALPHA_PACKS, ROWS = ALPHA_ROWS;
constexpr int BLOCK_GROUPS = ROW_THREADS / LANES;  // groups of LANES threads
static_assert((LANES & (LANES - 1)) == 0 && LANES <= ROW_THREADS, "the lanes of a row meet in a butterfly");
static_assert(LANES <= 32 || ROWS == 1, "a row of several warps is large enough to keep loads in flight");

// The part of a row that a lane holds: as it lies in memory, and as numbers.
template <typename T>
struct LaneBits {
  Bits<T, VECTOR> pack[PACKS];
};
template <typename Real>
struct LaneNumbers {
  Pack<Real, VECTOR> pack[PACKS];
};

// Where this thread's rows are: ROWS of `count` rows of `length` elements, the first of a block being `start`.
struct RowPlaces {
  long long first, count;
  int length, lane;
  bool last;  // whether the row has elements in this lane's last pack

  __device__ __forceinline__ RowPlaces(long long start, long long count, int length)
      : first(start + threadIdx.x / LANES),
        count(count),
        length(length),
        lane(threadIdx.x % LANES),
        last(((PACKS - 1) * LANES + lane) * VECTOR < length) {}

  // Those of a block of a grid in which each thread takes its rows once.
  __device__ __forceinline__ static RowPlaces of_block(long long count, int length) {
    return RowPlaces((long long)blockIdx.x * BLOCK_GROUPS * ROWS, count, length);
  }

  __device__ __forceinline__ long long row(int r) const { return first + r * BLOCK_GROUPS; }
  __device__ __forceinline__ bool exists(int r) const { return row(r) < count; }
  // The first element of this lane in row r; of the last row if there is no row r, so that it can be read.
  __device__ __forceinline__ size_t offset(int r) const {
    return size_t(exists(r) ? row(r) : count - 1) * length + lane * VECTOR;
  }
  __device__ __forceinline__ bool has(int p) const { return p + 1 < PACKS || last; }
};

// A lane's part of the row at `source`, its own first element; what lies behind the end of the row is `fill`.
template <typename T>
__device__ __forceinline__ LaneBits<T> load_lane(const T* source, const RowPlaces& at, Number<T> fill = 0) {
  LaneBits<T> bits;
#pragma unroll
  for (int p = 0; p < PACKS; p++)
    bits.pack[p] = at.has(p) ? load_bits<VECTOR>(source + p * LANES * VECTOR) : Bits<T, VECTOR>::of(fill);
  return bits;
}

// This thread's part of all its rows of X, of which the loads are in flight at the same time.
template <typename T>
__device__ __forceinline__ void load_rows(LaneBits<T> (&bits)[ROWS], const T* X, const RowPlaces& at,
                                          Number<T> fill = 0) {
#pragma unroll
  for (int r = 0; r < ROWS; r++) bits[r] = load_lane(X + at.offset(r), at, fill);
}

// use(r, p, x) for element x of each pack p of row r, in their order.
template <typename T, class Use>
__device__ __forceinline__ void each_number(const LaneBits<T> (&bits)[ROWS], Use use) {
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      const Pack<Number<T>, VECTOR> x = bits[r].pack[p].widened();
#pragma unroll
      for (int i = 0; i < VECTOR; i++) use(r, p, x.v[i]);
    }
}

template <typename T>
__device__ __forceinline__ void store_lane(T* target, const LaneNumbers<Number<T>>& numbers, const RowPlaces& at) {
#pragma unroll
  for (int p = 0; p < PACKS; p++)
    if (at.has(p)) store_pack(target + p * LANES * VECTOR, numbers.pack[p]);
}

struct Add {
  template <typename Real>
  static __device__ __forceinline__ Real join(Real a, Real b) {
    return a + b;
  }
};
struct Larger {
  template <typename Real>
  static __device__ __forceinline__ Real join(Real a, Real b) {
    return fmax(a, b);
  }
};

template <typename Operation, typename Real, int N>
__device__ __forceinline__ void join_packs(Pack<Real, N>& values, const Pack<Real, N>& others) {
#pragma unroll
  for (int n = 0; n < N; n++) values.v[n] = Operation::join(values.v[n], others.v[n]);
}

// Each of N numbers joined over the lanes of a row, in an order that depends on nothing; all lanes get the same bits.
// Every thread of the block must call it. `shared`: ROW_WARPS packs if LANES > 32, which no other call uses before
// another barrier.
template <typename Operation, typename Real, int N>
__device__ __forceinline__ Pack<Real, N> join_lanes(Pack<Real, N> values, Pack<Real, N>* shared) {
#pragma unroll
  for (int distance = (LANES < 32 ? LANES : 32) / 2; distance > 0; distance /= 2) {
    Pack<Real, N> others;
#pragma unroll
    for (int n = 0; n < N; n++) others.v[n] = __shfl_xor_sync(~0u, values.v[n], distance);
    join_packs<Operation>(values, others);
  }
  if constexpr (LANES > 32) {
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = values;
    __syncthreads();  // the values of all warps are written
    const Pack<Real, N>* warps = shared + threadIdx.x / LANES * (LANES / 32);
    values = warps[0];
#pragma unroll
    for (int warp = 1; warp < LANES / 32; warp++) join_packs<Operation>(values, warps[warp]);
  }
  return values;
}
