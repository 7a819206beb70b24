// L = -sum_c T_c log softmax(X)_c and dX = softmax(X) sum_c T_c - T; without normalize X are logarithms and dX = -T.
//
// T_c = w_c ((1 - smoothing) t_c + smoothing / C), where t is a row of probabilities, or 1 at the label. w is 1 if
// `weight` (C,) is null. X, dX (N, C) of TYPE, target (N,) or (N, C) of TARGET, P (2, N): L, and the weight of the
// label, or 1. A row whose label is `ignore` has 0 in P and dX. Another label outside
// [0, C) makes its row's L and dX NaN.
// Grid: ceil(N / ROWS). Block: (LANES, ROWS), a row of threads per row of X; ROWS = 1 if LANES > 32.
// Shared memory: a number per warp.
// Macros: LANES 32 | 256; ROWS; TYPE float | bfloat16; PROBABLE 0 | 1; TARGET int | long long | unsigned char, with
// PROBABLE float | bfloat16.
#include "common/vector.cuh"

using T = ALPHA_TYPE;

constexpr bool PROBABLE = ALPHA_PROBABLE;
constexpr int LANES = ALPHA_LANES, ROWS = ALPHA_ROWS, WARPS = LANES / 32;
__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

static_assert(LANES == 32 || ROWS == 1, "warps of one row meet at a barrier of the block");

struct Max {
  static __device__ __forceinline__ float join(float a, float b) { return fmaxf(a, b); }
};
struct Sum {
  static __device__ __forceinline__ float join(float a, float b) { return a + b; }
};

// The result is in every lane of the row.
template <typename Operation>
__device__ __forceinline__ float reduce_row(float value) {
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) value = Operation::join(value, __shfl_xor_sync(~0u, value, bits));
  if (WARPS == 1) return value;
  __shared__ float shared[WARPS];
  __syncthreads();  // an earlier reduction's numbers are read
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
#pragma unroll
  for (int warp = 1; warp < WARPS; warp++) value = Operation::join(value, shared[warp]);
  return value;
}

extern "C" __global__ void __launch_bounds__(LANES* ROWS, 1024 / (LANES * ROWS))
    softmax_cross_entropy(float* __restrict__ P, T* __restrict__ dX, const T* __restrict__ X,
                          const ALPHA_TARGET* __restrict__ target, const float* __restrict__ weight, int N, int C,
                          float smoothing, long long ignore, int normalize) {
  const int n = blockIdx.x * ROWS + threadIdx.y;
  if (n >= N) return;  // with its whole warp, and with ROWS 1 never
  const T* row = X + size_t(n) * C;
  T* dx = dX + size_t(n) * C;
  auto x = [&](int c) { return load_pack<1>(row + c).v[0]; };
  auto w = [&](int c) { return weight ? weight[c] : 1.f; };
  int label = -1;
  bool valid = true;
  if constexpr (!PROBABLE) {
    const long long given = target[n];  // in 64 bits, of which none is lost
    if (given == ignore) {              // all threads of the row
      for (int c = threadIdx.x; c < C; c += LANES) store_pack(dx + c, Pack<float, 1>{0});
      if (threadIdx.x == 0) P[n] = P[size_t(N) + n] = 0;
      return;
    }
    valid = given >= 0 && given < C;
    if (valid) label = int(given);
  }
  float top = 0, total = 1;  // of exp(x - top)
  if (normalize) {
    top = -infinity(), total = 0;
    for (int c = threadIdx.x; c < C; c += LANES) top = fmaxf(top, x(c));
    top = reduce_row<Max>(top);
    for (int c = threadIdx.x; c < C; c += LANES) total += expf(x(c) - top);
    total = reduce_row<Sum>(total);
  }
  const float share = smoothing / C, logarithm = logf(total), own = label >= 0 ? w(label) : 1.f;
  const float hit = valid ? (1 - smoothing) * own : infinity() - infinity();
  // T but for the label's term, which every thread knows
  auto spread = [&](int c) {
    if constexpr (PROBABLE)
      return w(c) * (share + (1 - smoothing) * float(load_pack<1>(target + size_t(n) * C + c).v[0]));
    else
      return w(c) * share;
  };
  float linear = 0, sum = 0;        // of T (x - top), and of T
  if (PROBABLE || smoothing > 0) {  // else a masked logit of -inf has no share
    for (int c = threadIdx.x; c < C; c += LANES) {
      const float t = spread(c);
      if (t != 0) linear += t * (x(c) - top), sum += t;
    }
    linear = reduce_row<Sum>(linear), sum = reduce_row<Sum>(sum);
  }
  const float targets = PROBABLE ? sum : weight || !valid ? sum + hit : 1;
  for (int c = threadIdx.x; c < C; c += LANES) {
    const float t = spread(c) + (!PROBABLE && (c == label || !valid) ? hit : 0);
    store_pack(dx + c, Pack<float, 1>{(normalize ? expf(x(c) - top) / total * targets : 0) - t});
  }
  if (threadIdx.x == 0) {
    const float found = PROBABLE ? 0 : hit * (x(valid ? label : 0) - top - logarithm);
    P[n] = -found - (linear - sum * logarithm);
    P[size_t(N) + n] = own;
  }
}
