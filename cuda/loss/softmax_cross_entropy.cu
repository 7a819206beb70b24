// L = -sum_c T_c log softmax(X)_c and dX = softmax(X) - T, T = (1 - smoothing) onehot + smoothing / C.
//
// X, dX (N, C) of TYPE, labels (N,) of LABEL, P (2, N): L, and 1 for each row that counts. A row whose label is
// `ignore` has 0 in P and dX. Another label outside [0, C) makes its row's L and dX NaN.
// Grid: ceil(N / ROWS). Block: (LANES, ROWS), a row of threads per row of X; ROWS = 1 if LANES > 32.
// Shared memory: a number per warp.
// Macros: LANES 32 | 256; ROWS; TYPE float | bfloat16; LABEL int | long long | unsigned char.
#include "common/vector.cuh"

using T = ALPHA_TYPE;

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
                          const ALPHA_LABEL* __restrict__ labels, int N, int C, float smoothing, long long ignore) {
  const int n = blockIdx.x * ROWS + threadIdx.y;
  if (n >= N) return;  // with its whole warp, and with ROWS 1 never
  const T* row = X + size_t(n) * C;
  T* dx = dX + size_t(n) * C;
  const long long given = labels[n];  // in 64 bits, of which none is lost
  if (threadIdx.x == 0) P[size_t(N) + n] = given != ignore;
  if (given == ignore) {  // all threads of the row
    for (int c = threadIdx.x; c < C; c += LANES) store_pack(dx + c, Pack<float, 1>{0});
    if (threadIdx.x == 0) P[n] = 0;
    return;
  }
  const int label = given >= 0 && given < C ? int(given) : -1;
  auto x = [&](int c) { return load_pack<1>(row + c).v[0]; };
  float top = -infinity();
  for (int c = threadIdx.x; c < C; c += LANES) top = fmaxf(top, x(c));
  top = reduce_row<Max>(top);
  float total = 0, linear = 0;  // of exp(x - top) and of x - top
  for (int c = threadIdx.x; c < C; c += LANES) total += expf(x(c) - top), linear += x(c) - top;
  total = reduce_row<Sum>(total), linear = reduce_row<Sum>(linear);
  const bool valid = label >= 0;
  const float share = smoothing / C, hit = valid ? 1 - smoothing : infinity() - infinity(), logarithm = logf(total);
  for (int c = threadIdx.x; c < C; c += LANES) {
    const float target = share + (c == label || !valid ? hit : 0);
    store_pack(dx + c, Pack<float, 1>{expf(x(c) - top) / total - target});
  }
  if (threadIdx.x == 0) {
    const float found = hit * (x(valid ? label : 0) - top - logarithm);
    // a masked logit of -inf has no share without smoothing
    P[n] = -found - (smoothing > 0 ? share * (linear - C * logarithm) : 0);
  }
}
