// Normalisation of groups of neighbouring elements, and its gradients: norm.cu for R = 1.
//
// X (A, G, K); a row is the K elements of one (a, g); weight and bias have a number per channel (g, k), or are null.
// mean, rstd (A, G): of each row, rstd = 1 / sqrt(variance + eps). Without `centered` the mean counts as 0.
//
// normalize_rows: Y = weight (X - mean) rstd + bias. The mean is known before the squared deviations are added. It is
// found
//   from differences to the first element, and deviations are squared times `unit`, both as in norm.cu.
//   Grid: ceil(A G / (256 / LANES * ROWS)). Shared memory: a number per warp and sum if LANES > 32.
// normalize_rows_gradient: with D = weight dY and H = (X - mean) rstd, dX = rstd (D - mean of D - H mean of D H);
// without
//   `centered` dX = rstd (D - H mean of D H). Means are over a row. With SUMS, for G = 1, also parts_of_blocks
//   (2, blocks, K) = sum of dY H and of dY over the rows of each block. Rows are read once for all of it.
//   Grid: any number of blocks, which take rows in turns; with SUMS about BLOCKS per SM. Shared memory: numbers per
//   warp if LANES > 32; with SUMS also one per channel and warp.
// A row stays in the registers of its lanes (common/rows.cuh). Block: 256. Sums have a fixed order.
// Needs and macros: those of common/rows.cuh, with K; weight and bias aligned to packs; TYPE float | double | bfloat16;
// GROUPED 0 | 1: whether G may be above 1; SUMS 0 | 1; BLOCKS per SM at least, of the gradient. The arithmetic of
// bfloat16, and all that is no X or Y, is float.
#include "common/rows.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;
using Numbers = Pack<Real, ROWS>;  // one for each row of a thread
constexpr int BLOCK_ROWS = BLOCK_GROUPS * ROWS;
constexpr bool SUMS = ALPHA_SUMS, GROUPED = ALPHA_GROUPED;
static_assert(!SUMS || !GROUPED, "a thread adds up the channels of its own");

// The channel of this thread's first element in a row.
__device__ __forceinline__ int first_channel(long long row, int lane, int G, int K) {
  return (GROUPED ? int(row % G) * K : 0) + lane * VECTOR;
}

// Without a number of blocks the compiler saves registers until it spills.
constexpr int FORWARD_BLOCKS = PACKS * sizeof(Bits<T, VECTOR>) > 64 ? 2 : 4;

extern "C" __global__ void __launch_bounds__(ROW_THREADS, FORWARD_BLOCKS)
    normalize_rows(T* __restrict__ Y, Real* __restrict__ mean, Real* __restrict__ rstd, const T* __restrict__ X,
                   const Real* __restrict__ weight, const Real* __restrict__ bias, Real eps, Real unit, long long A,
                   int G, int K, int centered) {
  __shared__ Numbers shared[2][ROW_WARPS];
  const RowPlaces at = RowPlaces::of_block(A * G, K);
  LaneBits<T> bits[ROWS];
  load_rows(bits, X, at);

  Numbers center = {}, squares = {};
  if (centered) {
    Numbers origin;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      origin.v[r] = load_pack<1>(X + at.offset(r) - at.lane * VECTOR).v[0];
      if (!isfinite(origin.v[r])) origin.v[r] = 0;
    }
    each_number(bits, [&](int r, int p, Real x) { center.v[r] += at.has(p) ? x - origin.v[r] : 0; });
    center = join_lanes<Add>(center, shared[0]);
#pragma unroll
    for (int r = 0; r < ROWS; r++) center.v[r] = origin.v[r] + center.v[r] / K;
  }
  each_number(bits, [&](int r, int p, Real x) {
    const Real deviation = at.has(p) ? (x - center.v[r]) * unit : 0;
    squares.v[r] += deviation * deviation;
  });
  squares = join_lanes<Add>(squares, shared[1]);
  Numbers scale;
#pragma unroll
  for (int r = 0; r < ROWS; r++) scale.v[r] = 1 / sqrt(squares.v[r] / (K * (unit * unit)) + eps);

  int channel[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    channel[r] = first_channel(at.row(r), at.lane, G, K);
    if (at.lane == 0 && at.exists(r)) mean[at.row(r)] = center.v[r], rstd[at.row(r)] = scale.v[r];
  }
#pragma unroll
  for (int p = 0; p < PACKS; p++) {
    if (!at.has(p)) continue;
    Pack<Real, VECTOR> w = splat<VECTOR>(Real(1)), b = {};
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      if (!at.exists(r)) continue;
      if (GROUPED || r == 0) {
        const int c = channel[r] + p * LANES * VECTOR;
        if (weight) w = load_pack<VECTOR>(weight + c);
        if (bias) b = load_pack<VECTOR>(bias + c);
      }
      Pack<Real, VECTOR> y = bits[r].pack[p].widened();
#pragma unroll
      for (int i = 0; i < VECTOR; i++) y.v[i] = (y.v[i] - center.v[r]) * scale.v[r] * w.v[i] + b.v[i];
      store_pack(Y + at.offset(r) + p * LANES * VECTOR, y);
    }
  }
}

// The sums of a block's rows: of the warps, which are written side by side; if a row is several warps, of its groups.
constexpr int PARTS = LANES < 32 ? ROW_WARPS : BLOCK_GROUPS;
struct ChannelParts {
  alignas(16) Real part[PARTS][LANES * PACKS * VECTOR];
};

// target[k] = sum of `sums` over the rows of the block. Every thread of the block must call it.
__device__ __forceinline__ void write_channels(Real* target, LaneNumbers<Real> sums, ChannelParts& parts, int K) {
  const int lane = threadIdx.x % LANES;
  __syncthreads();  // earlier sums are read
#pragma unroll
  for (int p = 0; p < PACKS; p++) {
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
#pragma unroll
      for (int distance = LANES; distance < 32; distance *= 2)
        sums.pack[p].v[i] += __shfl_xor_sync(~0u, sums.pack[p].v[i], distance);
    if (int(threadIdx.x) % 32 < LANES)
      store_pack(parts.part[threadIdx.x / (LANES < 32 ? 32 : LANES)] + (p * LANES + lane) * VECTOR, sums.pack[p]);
  }
  __syncthreads();  // the sums of all parts are written
  for (int k = threadIdx.x; k < K; k += ROW_THREADS) {
    Real sum = parts.part[0][k];
#pragma unroll
    for (int z = 1; z < PARTS; z++) sum += parts.part[z][k];
    target[k] = sum;
  }
}

// What a thread holds of its rows of dY and X in one turn.
struct Turn {
  LaneBits<T> dy[ROWS], x[ROWS];  // whose loads are in flight at the same time
  Numbers center = {}, scale = {};

  __device__ __forceinline__ Turn(const RowPlaces& at, const T* dY, const T* X, const Real* mean, const Real* rstd) {
    load_rows(dy, dY, at);
    load_rows(x, X, at);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      if (at.exists(r)) center.v[r] = mean[at.row(r)], scale.v[r] = rstd[at.row(r)];
  }

  // Pack p of D of row r, which is 0 behind the end of the row; `channel` is that of its first element.
  __device__ __forceinline__ Pack<Real, VECTOR> d_of(int r, int p, const Real* weight, int channel, bool has) const {
    auto d = dy[r].pack[p].widened();
    if (weight && has) {
      const auto w = load_pack<VECTOR>(weight + channel);
#pragma unroll
      for (int i = 0; i < VECTOR; i++) d.v[i] *= w.v[i];
    }
    return d;
  }
  // Pack p of X - mean of row r.
  __device__ __forceinline__ Pack<Real, VECTOR> deviation(int r, int p) const {
    auto u = x[r].pack[p].widened();
#pragma unroll
    for (int i = 0; i < VECTOR; i++) u.v[i] -= center.v[r];
    return u;
  }
};

extern "C" __global__ void __launch_bounds__(ROW_THREADS, ALPHA_BLOCKS)
    normalize_rows_gradient(T* __restrict__ dX, Real* __restrict__ parts_of_blocks, const T* __restrict__ dY,
                            const T* __restrict__ X, const Real* __restrict__ mean, const Real* __restrict__ rstd,
                            const Real* __restrict__ weight, long long A, int G, int K, int centered) {
  __shared__ Pack<Real, 2 * ROWS> shared[2][ROW_WARPS];  // of this turn and of the one before
  LaneNumbers<Real> weight_sums = {}, bias_sums = {};
  const Real share = Real(1) / K;
  const long long rows = A * G, step = (long long)gridDim.x * BLOCK_ROWS;
  int side = 0;
  for (long long start = (long long)blockIdx.x * BLOCK_ROWS; start < rows; start += step, side ^= 1) {
    const RowPlaces at(start, rows, K);
    const Turn now(at, dY, X, mean, rstd);
    int channel[ROWS];
    Pack<Real, 2 * ROWS> sums = {};
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      channel[r] = first_channel(at.row(r), at.lane, G, K);
#pragma unroll
      for (int p = 0; p < PACKS; p++) {
        const auto d = now.d_of(r, p, weight, channel[r] + p * LANES * VECTOR, at.has(p));
        const auto u = now.deviation(r, p);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) sums.v[2 * r] += d.v[i], sums.v[2 * r + 1] += d.v[i] * u.v[i];
      }
    }
    sums = join_lanes<Add>(sums, shared[side]);

#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      if (!at.exists(r)) continue;
      // rstd times the mean of D, and times that of D H
      const Real scale = now.scale.v[r], shift = centered ? sums.v[2 * r] * share * scale : 0;
      const Real slope = sums.v[2 * r + 1] * scale * share * scale;
#pragma unroll
      for (int p = 0; p < PACKS; p++) {
        if (!at.has(p)) continue;
        const auto d = now.d_of(r, p, weight, channel[r] + p * LANES * VECTOR, true);
        const auto u = now.deviation(r, p), dy = now.dy[r].pack[p].widened();
        Pack<Real, VECTOR> dx;
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
          const Real h = u.v[i] * scale;
          dx.v[i] = (d.v[i] * scale - shift) - h * slope;
          if (SUMS) weight_sums.pack[p].v[i] += dy.v[i] * h, bias_sums.pack[p].v[i] += dy.v[i];
        }
        store_pack(dX + at.offset(r) + p * LANES * VECTOR, dx);
      }
    }
  }
  if constexpr (SUMS) {
    __shared__ ChannelParts parts;
    write_channels(parts_of_blocks + size_t(blockIdx.x) * K, weight_sums, parts, K);
    write_channels(parts_of_blocks + size_t(gridDim.x + blockIdx.x) * K, bias_sums, parts, K);
  }
}
