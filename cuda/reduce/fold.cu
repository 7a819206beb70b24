// Y[z, a, b] = X[a, r, b] over the rows r of segment z: their product, the largest or smallest, or whether any is true.
//
// X (A, R, B), Y (splits, A, B); segment z is rows [z rows, (z + 1) rows). For FOLD Extreme, `at` (splits, A, B) holds
// the row of the first extreme, NaN being one; `given`, if not null, holds such rows of an earlier launch. `flag`:
// Extreme finds the largest, Truth whether all are true, otherwise whether one is.
// Grid: (ceil(B / tx) ceil(A / tz), splits). Block: (tx columns, ty rows, tz slabs), at most 512 threads, ty a power of
// two. Shared memory: a state per thread.
// Macros: TYPE float | double | bfloat16 | int | long long | unsigned char | bool of X; FOLD Product | Extreme | Truth;
// ROW int | long long: the type of row numbers.
#include "common/columns.cuh"
#include "reduce/extreme.cuh"

using T = ALPHA_TYPE;
using Row = ALPHA_ROW;

struct Product {
  using Result = Number<T>;
  Result value;
  __device__ explicit Product(int) : value(Result(1)) {}
  __device__ void meet(Number<T> x, long long) { value = Result(value * x); }
  __device__ void operator+=(const Product& other) { value = Result(value * other.value); }
  __device__ Result result() const { return value; }
};

using Extreme = ExtremeOf<T, long long>;

struct Truth {
  using Result = bool;
  int all, found;
  __device__ explicit Truth(int flag) : all(flag), found(flag) {}
  __device__ void meet(Number<T> x, long long) {
    found = all ? found && x != Number<T>(0) : found || x != Number<T>(0);
  }
  __device__ void operator+=(const Truth& other) { found = all ? found && other.found : found || other.found; }
  __device__ bool result() const { return found; }
};

using State = ALPHA_FOLD;

__device__ __forceinline__ void write_row(const Extreme& state, long long* at, size_t i) { at[i] = state.at; }
template <typename Other>
__device__ __forceinline__ void write_row(const Other&, long long*, size_t) {}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
    fold(State::Result* __restrict__ Y, long long* __restrict__ at, const T* __restrict__ X,
         const long long* __restrict__ given, int A, Row R, int B, Row rows, int flag) {
  __shared__ __align__(16) unsigned char memory[COLUMN_THREADS * sizeof(State)];
  const int tiles = (B + blockDim.x - 1) / blockDim.x;
  const int b = blockIdx.x % tiles * blockDim.x + threadIdx.x;
  const int a = blockIdx.x / tiles * blockDim.z + threadIdx.z;
  const SegmentOf<Row> segment = segment_rows(blockIdx.y, rows, R);
  State state(flag);
  if (a < A && b < B) {
    const size_t base = size_t(a) * R * B + b;
    visit_rows<4, Row>(
        segment.start + threadIdx.y, segment.stop, blockDim.y,
        [&](Row r) { return load_pack<1>(X + base + size_t(r) * B).v[0]; },
        [&](Row r, Number<T> value) { state.meet(value, given ? given[base + size_t(r) * B] : r); });
  }
  reduce_lanes(state, reinterpret_cast<State*>(memory));
  if (a >= A || b >= B || threadIdx.y > 0) return;
  const size_t i = (size_t(blockIdx.y) * A + a) * B + b;
  store_pack(Y + i, Pack<Number<State::Result>, 1>{{state.result()}});
  write_row(state, at, i);
}
