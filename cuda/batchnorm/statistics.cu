// Mean and biased variance of each column of X (R, C) of TYPE, in two steps, which also update the running statistics.
//
// statistics: part[0, z, c], part[1, z, c] = mean and sum of squared deviations of column c over segment z,
// the rows [z rows, (z + 1) rows). A lane sums deviations from its first value, so that nothing large cancels;
// lanes are merged by the pairwise update of Chan, Golub & LeVeque (1983).
//   Grid: (ceil(C / (VECTOR tx)), splits). Block: (tx, ty), at most 512 threads, ty a power of two.
//   Shared memory: two packs and a count per thread. Macros: TYPE float | bfloat16; VECTOR 1 | 4 | 8 divides C.
// merge_statistics: merges the segments' statistics to mean and var (C,), and if running_mean is not null
//   running = (1 - momentum) running + momentum new, the new variance unbiased.
//   Grid: ceil(C / 2). Block: (2, 256).
// merge_counted_statistics: the same for the hundreds or thousands of parts that a convolution wrote
//   (conv2d/sm90/statistics.cuh), of counts[z] rows each. Grid and block: as for merge_statistics.
// If the sum of the squared deviations of a column is too large for a float, both read X once more: the variance is the
// sum divided by R, which may be small enough.
// LIMIT 1: both also write the bits of a limit of the magnitudes of X normalised, the largest |weight| sqrt(R) + |bias|
// of a column of finite ones: no deviation is above sqrt(R) standard deviations. Blocks meet in two words `state`,
// which are 0 before and again at the end. Else 0.
#include "batchnorm/statistics.cuh"
#include "common/fp16_terms.cuh"
#include "common/largest.cuh"
#include "common/many_lanes.cuh"

using T = ALPHA_TYPE;
constexpr int V = ALPHA_VECTOR;
constexpr bool LIMIT = ALPHA_LIMIT;

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    statistics(float* __restrict__ part, const T* __restrict__ X, int R, int C, int rows) {
  __shared__ Statistics<V> shared[COLUMN_THREADS];
  const int c = (blockIdx.x * blockDim.x + threadIdx.x) * V;
  const Segment segment = segment_rows(blockIdx.y, rows, R);
  Statistics<V> found = {};
  if (c < C) found = column_moments<V>(X + c, C, segment.start + threadIdx.y, segment.stop, blockDim.y);
  reduce_lanes(found, shared);
  if (c < C && threadIdx.y == 0) {
    float* target = part + size_t(blockIdx.y) * C + c;
    store_pack(target, found.mean);
    store_pack(target + size_t(gridDim.y) * C, found.squares);
  }
}

// True if squared deviations were too large, and no element is infinite or NaN.
__device__ __forceinline__ bool overflowed(const Statistics<1>& found) {
  return isfinite(found.mean.v[0]) && !isfinite(found.squares.v[0]);
}

// A deviation times UNIT has a square that is no infinity, if the variance is none.
constexpr float UNIT = 0x1p-32f;

// The sum of the squared deviations of column c, times UNIT^2, in lane 0. Every thread of the block must call it; only
// columns that are `wanted` are read.
__device__ __forceinline__ float scaled_squares(const T* X, float mean, int R, int C, int c, bool wanted) {
  __shared__ Pack<float, 1> shared[COLUMN_THREADS];
  Pack<float, 1> squares = {};
  if (wanted)
    visit_rows(
        threadIdx.y, R, blockDim.y, [&](int r) { return load_pack<1>(X + size_t(r) * C + c).v[0]; },
        [&](int, float x) {
          const float d = (x - mean) * UNIT;
          squares.v[0] += d * d;
        });
  reduce_lanes(squares, shared);
  return squares.v[0];
}

// Where the limit of the magnitudes of the result goes, and what it follows from.
struct Limit {
  unsigned *bits, *state;
  const float *weight, *bias;

  // Writes it. All threads of the block call it; column c is counted if the thread `has_column`.
  __device__ __forceinline__ void write(int c, bool has_column, int R) const {
    if (!LIMIT || threadIdx.y * blockDim.x + threadIdx.x >= 32) return;
    const float w = has_column ? fabsf(weight[c]) : 0.f, b = has_column ? fabsf(bias[c]) : 0.f;
    const unsigned word = finite_limit(w * sqrtf(float(R)) + b, isfinite(w) && isfinite(b));
    write_largest_of_first_warps(bits, state, word, gridDim.x);
  }
};

// Merges the statistics of `splits` parts, of count(z) rows each, to those of all rows; a block takes blockDim.x
// columns.
template <class Count>
__device__ __forceinline__ void merge(float* mean, float* var, const float* part, const T* X, float* running_mean,
                                      float* running_var, float momentum, int R, int C, int splits, const Limit& limit,
                                      Count count) {
  __shared__ Statistics<1> shared[COLUMN_THREADS];
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  const bool writes = c < C && threadIdx.y == 0, updates = writes && running_mean != nullptr;
  limit.write(c, writes, R);
  const float old_mean = updates ? running_mean[c] : 0, old_var = updates ? running_var[c] : 0;
  Statistics<1> found = {};
  if (c < C)
    visit_rows(
        threadIdx.y, splits, blockDim.y,
        [&](int z) {
          const float* source = part + size_t(z) * C + c;
          return Statistics<1>{count(z), load_pack<1>(source), load_pack<1>(source + size_t(splits) * C)};
        },
        [&](int, const Statistics<1>& m) { found += m; });
  reduce_many_lanes(found, shared);
  if (threadIdx.y == 0) shared[threadIdx.x] = found;
  float squares = found.squares.v[0], unit = 1;
  if (__syncthreads_or(writes && overflowed(found))) {  // and lane 0 has written the statistics of its column
    const bool wanted = c < C && overflowed(shared[threadIdx.x]);
    const float scaled = scaled_squares(X, shared[threadIdx.x].mean.v[0], R, C, c, wanted);
    if (wanted) squares = scaled, unit = 1 / (UNIT * UNIT);
  }
  if (!writes) return;
  const float m = found.mean.v[0];
  mean[c] = m;
  var[c] = squares / R * unit;
  if (!updates) return;
  // not as old + momentum (new - old), which is NaN if both are inf
  running_mean[c] = (1 - momentum) * old_mean + momentum * m;
  running_var[c] = (1 - momentum) * old_var + momentum * (squares / (R > 1 ? R - 1 : 1) * unit);
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    merge_statistics(float* __restrict__ mean, float* __restrict__ var, const float* __restrict__ part,
                     const T* __restrict__ X, float* running_mean, float* running_var, float momentum, int R, int C,
                     int rows, int splits, unsigned* limit, unsigned* state, const float* __restrict__ weight,
                     const float* __restrict__ bias) {
  const Limit limits = {limit, state, weight, bias};
  merge(mean, var, part, X, running_mean, running_var, momentum, R, C, splits, limits, [=](int z) {
    const Segment segment = segment_rows(z, rows, R);
    return float(segment.stop - segment.start);
  });
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    merge_counted_statistics(float* __restrict__ mean, float* __restrict__ var, const float* __restrict__ part,
                             const float* __restrict__ counts, const T* __restrict__ X, float* running_mean,
                             float* running_var, float momentum, int R, int C, int splits, unsigned* limit,
                             unsigned* state, const float* __restrict__ weight, const float* __restrict__ bias) {
  const Limit limits = {limit, state, weight, bias};
  merge(mean, var, part, X, running_mean, running_var, momentum, R, C, splits, limits,
        [=](int z) { return counts[z]; });
}
