// Softmax along the middle axis of X (A, R, B), or its logarithm, and the gradient of either.
//
// softmax: Y = exp(x - m) / s, or with `logarithm` x - m - log(s); m is the largest x of a line, s the sum of
// exp(x - m).
// softmax_gradient: dX = Y (dY - sum of dY Y), or with `logarithm` dX = dY - exp(Y) sum of dY; sums are over a line.
// A line is the R elements of one (a, b). Each block takes `lines` lines, and LANES = 256 / lines threads take turns in
// a line. Neighbouring threads are lanes of a line if B is 1, otherwise lines, so that they read neighbouring elements.
// Grid: ceil(A B / lines). Block: 256. `lines`: a power of two. Shared memory: two numbers per thread.
// Sums have a fixed order.
// Macro: TYPE float | double | bfloat16. The arithmetic of bfloat16 is that of float.
#include "common/bfloat16.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;
constexpr int THREADS = 256;

__device__ __forceinline__ Real minus_infinity() { return Real(-__int_as_float(0x7f800000)); }
__device__ __forceinline__ Real read(const T* x) { return load_pack<1>(x).v[0]; }
__device__ __forceinline__ void write(T* y, Real value) { store_pack(y, Pack<Real, 1>{{value}}); }

// The largest x so far and the sum of exp(x - top).
struct Exponentials {
  Real top, sum;
  __device__ __forceinline__ void operator+=(const Exponentials& other) {
    if (other.sum == 0) return;  // nothing but -inf
    if (other.top > top) {
      sum = sum == 0 ? other.sum : sum * exp(top - other.top) + other.sum;
      top = other.top;
    } else {
      sum += other.sum * exp(other.top - top);
    }
  }
  __device__ __forceinline__ void meet(Real x) {
    if (x != minus_infinity()) *this += Exponentials{x, 1};
  }
};

struct Sum {
  Real value;
  __device__ __forceinline__ void operator+=(const Sum& other) { value += other.value; }
};

// Where the elements of this thread's line are.
struct Line {
  long long base, step;
  int lane, lanes, self, distance;  // `distance`: threads from one lane to the next
  bool valid;
};

__device__ __forceinline__ Line line_of(long long A, long long R, long long B, int lines) {
  const int lanes = THREADS / lines, t = threadIdx.x;
  const bool rows = B == 1;
  const long long number = (long long)blockIdx.x * lines + (rows ? t / lanes : t % lines);
  const int lane = rows ? t % lanes : t / lines;
  Line line;
  line.base = number / B * R * B + number % B;
  line.step = B;
  line.lane = lane;
  line.lanes = lanes;
  line.self = t;
  line.distance = rows ? 1 : lines;
  line.valid = number < A * B;
  return line;
}

// The value of all lanes of a line, for each of them. Every thread of the block must call it.
template <typename Value>
__device__ __forceinline__ Value join_lanes(Value value, const Line& line, Value* shared) {
  shared[line.self] = value;
  for (int half = line.lanes / 2; half > 0; half /= 2) {
    __syncthreads();  // the other half's values are written
    if (line.lane < half) {
      value += shared[line.self + half * line.distance];
      shared[line.self] = value;
    }
  }
  __syncthreads();  // the first lane's value is written
  return shared[line.self - line.lane * line.distance];
}

extern "C" __global__ void __launch_bounds__(THREADS) softmax(T* __restrict__ Y, const T* __restrict__ X, long long A,
                                                              long long R, long long B, int lines, int logarithm) {
  __shared__ Exponentials shared[THREADS];
  const Line line = line_of(A, R, B, lines);
  Exponentials found = {minus_infinity(), 0};
  if (line.valid)
    for (long long r = line.lane; r < R; r += line.lanes) found.meet(read(X + line.base + r * line.step));
  found = join_lanes(found, line, shared);
  if (!line.valid) return;
  const Real top = found.top, sum = found.sum + (top - top);  // NaN if the largest x is infinite
  const Real log_sum = log(sum);
  for (long long r = line.lane; r < R; r += line.lanes) {
    const long long i = line.base + r * line.step;
    const Real x = read(X + i) - top;
    write(Y + i, logarithm ? x - log_sum : exp(x) / sum);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_gradient(T* __restrict__ dX, const T* __restrict__ dY, const T* __restrict__ Y, long long A, long long R,
                     long long B, int lines, int logarithm) {
  __shared__ Sum shared[THREADS];
  const Line line = line_of(A, R, B, lines);
  Sum sum = {0};
  if (line.valid)
    for (long long r = line.lane; r < R; r += line.lanes) {
      const long long i = line.base + r * line.step;
      const Real dy = read(dY + i);
      sum.value += logarithm ? dy : dy * read(Y + i);
    }
  sum = join_lanes(sum, line, shared);
  if (!line.valid) return;
  for (long long r = line.lane; r < R; r += line.lanes) {
    const long long i = line.base + r * line.step;
    const Real dy = read(dY + i), y = read(Y + i);
    write(dX + i, logarithm ? dy - exp(y) * sum.value : y * (dy - sum.value));
  }
}
