// Muon's work on all of its matrices before and after the iterations, which are products of a stack X (D, M, N).
//
// `norms` writes the sum of squares of one row of the table (a chunk of one matrix): of its direction p v + q g, or of
// W with `of_weights`. `stack` writes each direction, over the larger of its norm and `least`, to its place in the
// stack. `muon` updates matrices and velocities: W = shrink W - rate ratio X; v = momentum v + gain g. If there are
// `parts`, which are sums of squares of W, a W that is not zero first gets the norm sqrt(rows).
// Sums are doubles, joined in a fixed order.
// Grid: one block per row. Block: 256. Shared memory: a double per thread. Macros: TYPE of the stack.
#include "common/step_value.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
constexpr int THREADS = 256;

struct Row {
  float* W;
  float* v;
  const float* g;
  T* place;                        // of the matrix in the stack
  long long rows, columns, pitch;  // of the matrix, and elements of a row of the stack
  long long first, chunks;         // the rows of the table that belong to the matrix
  double ratio;
  long long start, length;
};

struct Rule {
  float rate, shrink;
};

__device__ __forceinline__ double sum_of_block(double value) {
  __shared__ double values[THREADS];
  values[threadIdx.x] = value;
  for (int half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
  }
  __syncthreads();
  return values[0];
}

// The norm of the matrix to which the chunk belongs.
__device__ __forceinline__ double norm_of(const Row& row, const double* __restrict__ parts) {
  double value = 0;
  for (int i = threadIdx.x; i < row.chunks; i += THREADS) value += parts[row.first + i];
  return sqrt(sum_of_block(value));
}

// Calls work.step<N>(i, place) for packs of N neighbours, the first of which is element i of the matrix.
template <class Work>
__device__ __forceinline__ void for_each_pack(const Row& row, Work& work) {
  const int columns = row.columns, start = row.start, length = row.length;
  const uintptr_t addresses = uintptr_t(row.W) | uintptr_t(row.v) | uintptr_t(row.g) | uintptr_t(row.place);
  if ((addresses & 15) == 0 && ((columns | length | int(row.pitch)) & 3) == 0) {
#pragma unroll 2
    for (int i = start + 4 * threadIdx.x; i < start + length; i += 4 * THREADS)
      work.template step<4>(i, row.place + i / columns * row.pitch + i % columns);
  } else {
    for (int i = start + threadIdx.x; i < start + length; i += THREADS)
      work.template step<1>(i, row.place + i / columns * row.pitch + i % columns);
  }
}

template <int N>
__device__ __forceinline__ Pack<float, N> direction(const Row& row, int i, float p, float q) {
  Pack<float, N> d = load_pack<N>(row.v + i);
  const Pack<float, N> g = load_pack<N>(row.g + i);
#pragma unroll
  for (int j = 0; j < N; j++) d.v[j] = p * d.v[j] + q * g.v[j];
  return d;
}

struct Squares {
  const Row& row;
  float p, q;
  bool of_weights;
  double sum;

  template <int N>
  __device__ __forceinline__ void step(int i, const T*) {
    const Pack<float, N> x = of_weights ? load_pack<N>(row.W + i) : direction<N>(row, i, p, q);
#pragma unroll
    for (int j = 0; j < N; j++) sum += double(x.v[j]) * x.v[j];
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    norms(double* __restrict__ parts, const Row* __restrict__ table, float p, float q, int of_weights) {
  const Row row = table[blockIdx.x];
  Squares squares{row, p, q, of_weights != 0, 0.};
  for_each_pack(row, squares);
  const double sum = sum_of_block(squares.sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

struct Stack {
  const Row& row;
  float p, q;
  double norm;

  template <int N>
  __device__ __forceinline__ void step(int i, T* place) {
    Pack<float, N> d = direction<N>(row, i, p, q);
#pragma unroll
    for (int j = 0; j < N; j++) d.v[j] = float(d.v[j] / norm);
    store_pack(place, d);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    stack(const Row* __restrict__ table, const double* __restrict__ parts, float p, float q, double least) {
  const Row row = table[blockIdx.x];
  const double norm = norm_of(row, parts);
  Stack work{row, p, q, norm < least ? least : norm};
  for_each_pack(row, work);
}

struct Update {
  const Row& row;
  float factor, shrink, rate, momentum, gain;

  template <int N>
  __device__ __forceinline__ void step(int i, const T* place) {
    Pack<float, N> w = load_pack<N>(row.W + i), v = load_pack<N>(row.v + i);
    const Pack<float, N> g = load_pack<N>(row.g + i), x = load_pack<N>(place);
#pragma unroll
    for (int j = 0; j < N; j++) {
      w.v[j] = shrink * (factor * w.v[j]) - rate * x.v[j];
      v.v[j] = momentum * v.v[j] + gain * g.v[j];
    }
    store_pack(row.W + i, w);
    store_pack(row.v + i, v);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    muon(const Row* __restrict__ table, const double* __restrict__ parts, float momentum, float gain, const Rule given,
         const Rule* __restrict__ replayed) {
  const Row row = table[blockIdx.x];
  const Rule rule = step_value(given, replayed);
  float factor = 1;
  if (parts) {
    const double norm = norm_of(row, parts);
    if (norm > 0) factor = float(sqrt(double(row.rows)) / norm);
  }
  Update update{row, factor, rule.shrink, float(rule.rate * row.ratio), momentum, gain};
  for_each_pack(row, update);
}
