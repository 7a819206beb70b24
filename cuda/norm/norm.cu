// Normalisation of the groups of an array by their own mean and variance, and its gradients.
//
// X (A, R, G, K); a group is the R K elements of one (a, g); weight and bias have a number per channel (g, k), or are
// null. mean, rstd (A, G): of each group, rstd = 1 / sqrt(variance + eps). Without `centered` the mean counts as 0.
//
// normalize: Y = weight (X - mean) rstd + bias. The mean is found from differences to the first element, so that it is
// exact
//   if all are equal. Deviations are squared times `unit`, a power of two near 1 / sqrt(R K), so that the sum of their
//   squares is not infinite if the variance is not.
// normalize_gradient: with D = weight dY and H = (X - mean) rstd, dX = rstd (D - mean of D - H mean of D H); without
//   `centered` dX = rstd (D - H mean of D H). Means are over a group.
//   Both: each block takes `lines` groups, and LANES = 256 / lines threads take turns in a group. Neighbouring threads
//   are lanes of a group if `rows`, otherwise groups. Grid: ceil(A G / lines). Block: 256. `lines`: a power of two.
// parameter_sums: parts (2, splits, G K) = sum of dY H and of dY over each segment of the A R rows.
//   Grid: (ceil(G K / tx), splits). Block: (tx, ty), at most 512 threads, ty a power of two.
// Shared memory: two numbers per thread. Sums have a fixed order.
// Macro: TYPE float | double | bfloat16. The arithmetic of bfloat16, and all that is no X or Y, is float.
#include "common/columns.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;
constexpr int THREADS = 256;

__device__ __forceinline__ Real read(const T* x) { return load_pack<1>(x).v[0]; }
__device__ __forceinline__ void write(T* y, Real value) { store_pack(y, Pack<Real, 1>{{value}}); }

struct Two {
  Real first, second;
  __device__ __forceinline__ void operator+=(const Two& other) { first += other.first, second += other.second; }
};

// This thread's group: element j of it is at `offset(j)`, of the channel `channel(j)`.
struct Group {
  long long index, base, size;
  int R, G, K, g, lane, lanes, distance;
  bool valid;
  __device__ __forceinline__ long long offset(int j) const { return base + (long long)(j / K) * G * K + j % K; }
  __device__ __forceinline__ int channel(int j) const { return g * K + j % K; }
};

__device__ __forceinline__ Group group_of(long long A, int R, int G, int K, int lines, int rows) {
  const int lanes = THREADS / lines, t = threadIdx.x;
  const long long index = (long long)blockIdx.x * lines + (rows ? t / lanes : t % lines);
  const int g = index % G, lane = rows ? t % lanes : t / lines;
  Group group;
  group.index = index;
  group.base = index / G * R * G * K + g * K;
  group.size = (long long)R * K;
  group.R = R;
  group.G = G;
  group.K = K;
  group.g = g;
  group.lane = lane;
  group.lanes = lanes;
  group.distance = rows ? 1 : lines;
  group.valid = index < A * G;
  return group;
}

// The sum over the lanes of a group, for each of them. Every thread of the block must call it.
__device__ __forceinline__ Two join_lanes(Two value, const Group& group, Two* shared) {
  const int self = threadIdx.x;
  __syncthreads();  // an earlier sum is read
  shared[self] = value;
  for (int half = group.lanes / 2; half > 0; half /= 2) {
    __syncthreads();  // the other half's values are written
    if (group.lane < half) {
      value += shared[self + half * group.distance];
      shared[self] = value;
    }
  }
  __syncthreads();  // the first lane's value is written
  return shared[self - group.lane * group.distance];
}

extern "C" __global__ void __launch_bounds__(THREADS)
    normalize(T* __restrict__ Y, Real* __restrict__ mean, Real* __restrict__ rstd, const T* __restrict__ X,
              const Real* __restrict__ weight, const Real* __restrict__ bias, Real eps, Real unit, long long A, int R,
              int G, int K, int lines, int rows, int centered) {
  __shared__ Two shared[THREADS];
  const Group group = group_of(A, R, G, K, lines, rows);
  Real center = 0;
  if (centered) {
    Two sum = {0, 0};
    Real origin = group.valid ? read(X + group.offset(0)) : 0;
    if (!isfinite(origin)) origin = 0;
    if (group.valid)
      for (int j = group.lane; j < group.size; j += group.lanes) sum.first += read(X + group.offset(j)) - origin;
    center = origin + join_lanes(sum, group, shared).first / group.size;
  }
  Two squares = {0, 0};
  if (group.valid)
    for (int j = group.lane; j < group.size; j += group.lanes) {
      const Real x = (read(X + group.offset(j)) - center) * unit;
      squares.first += x * x;
    }
  const Real scale = 1 / sqrt(join_lanes(squares, group, shared).first / (group.size * (unit * unit)) + eps);
  if (!group.valid) return;
  for (int j = group.lane; j < group.size; j += group.lanes) {
    const long long i = group.offset(j);
    const int c = group.channel(j);
    write(Y + i, (read(X + i) - center) * scale * (weight ? weight[c] : 1) + (bias ? bias[c] : 0));
  }
  if (group.lane == 0) mean[group.index] = center, rstd[group.index] = scale;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    normalize_gradient(T* __restrict__ dX, const T* __restrict__ dY, const T* __restrict__ X,
                       const Real* __restrict__ mean, const Real* __restrict__ rstd, const Real* __restrict__ weight,
                       long long A, int R, int G, int K, int lines, int rows, int centered) {
  __shared__ Two shared[THREADS];
  const Group group = group_of(A, R, G, K, lines, rows);
  const Real center = group.valid ? mean[group.index] : 0, scale = group.valid ? rstd[group.index] : 0;
  // (D, H) of an element
  auto pair = [&](int j) {
    const long long i = group.offset(j);
    return Two{read(dY + i) * (weight ? weight[group.channel(j)] : 1), (read(X + i) - center) * scale};
  };
  Two sums = {0, 0};
  if (group.valid)
    for (int j = group.lane; j < group.size; j += group.lanes) {
      const Two p = pair(j);
      sums += Two{p.first, p.first * p.second};
    }
  sums = join_lanes(sums, group, shared);
  if (!group.valid) return;
  const Real shift = centered ? sums.first / group.size : 0, slope = sums.second / group.size;
  for (int j = group.lane; j < group.size; j += group.lanes) {
    const Two p = pair(j);
    write(dX + group.offset(j), scale * (p.first - shift - p.second * slope));
  }
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    parameter_sums(Real* __restrict__ parts, const T* __restrict__ dY, const T* __restrict__ X,
                   const Real* __restrict__ mean, const Real* __restrict__ rstd, int all_rows, int R, int G, int K,
                   int rows) {
  __shared__ Two shared[COLUMN_THREADS];
  const int C = G * K, c = blockIdx.x * blockDim.x + threadIdx.x;
  const Segment segment = segment_rows(blockIdx.y, rows, all_rows);
  Two sums = {0, 0};
  if (c < C)
    visit_rows(
        segment.start + threadIdx.y, segment.stop, blockDim.y,
        [&](int r) {
          const size_t i = size_t(r) * C + c;
          return Two{read(dY + i), read(X + i)};
        },
        [&](int r, const Two& p) {
          const size_t group = size_t(r / R) * G + c / K;
          sums += Two{p.first * (p.second - mean[group]) * rstd[group], p.first};
        });
  reduce_lanes(sums, shared);
  if (c >= C || threadIdx.y > 0) return;
  parts[size_t(blockIdx.y) * C + c] = sums.first;
  parts[size_t(gridDim.y + blockIdx.y) * C + c] = sums.second;
}
