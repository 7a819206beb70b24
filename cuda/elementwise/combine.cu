// Y[i] = A[i] sign B[i % period], elementwise. `sign` counts + - * / // % ** & | ^ << >> fmod gcd from 0, / being the
// quotient without its decimals and fmod the remainder beside it, which has the sign of A.
//
// Integers: what C++ leaves open is defined. Sums, products and shifts wrap around; a quotient or a remainder by 0 is
// 0; a power below 0 is 0, but 1 and -1 stay 1 and -1; a shift by all bits or more, or by less than 0, moves all bits
// out.
// bool: + is |, and * is &. Floating numbers have /, //, % and fmod only.
// Grid: ceil(size / 256). Block: 256. No shared memory.
// Macros: TYPE element type of A and B: float | double | bfloat16 | int | long long | unsigned char | bool.
#include "common/cuda.h"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
constexpr int THREADS = 256;
enum Sign {
  ADD,
  SUBTRACT,
  MULTIPLY,
  TRUNCATE,
  FLOOR_DIVIDE,
  REMAINDER,
  POWER,
  AND,
  OR,
  XOR,
  SHIFT_LEFT,
  SHIFT_RIGHT,
  FMOD,
  GCD
};

// U wraps around where T, which has as many bits, must not overflow.
template <typename U, typename Integer>
__device__ Integer integers(Integer a, Integer b, int sign) {
  const int bits = 8 * sizeof(Integer);
  const bool none = b == 0, minus_one = b == -1;
  const bool outside = b < 0 || b >= bits;
  switch (sign) {
    case ADD:
      return Integer(U(a) + U(b));
    case SUBTRACT:
      return Integer(U(a) - U(b));
    case MULTIPLY:
      return Integer(U(a) * U(b));
    case TRUNCATE:
    case FLOOR_DIVIDE:
      if (none || minus_one) return none ? Integer(0) : Integer(U(0) - U(a));
      return a / b - (sign == FLOOR_DIVIDE && a % b != 0 && (a < 0) != (b < 0));
    case REMAINDER:
      if (none || minus_one) return 0;
      return a % b != 0 && (a < 0) != (b < 0) ? a % b + b : a % b;
    case POWER: {
      if (b < 0) return a == 1 ? Integer(1) : a == -1 ? (b % 2 == 0 ? Integer(1) : Integer(-1)) : Integer(0);
      U result = 1, square = U(a);
      for (Integer left = b; left > 0; left /= 2) {
        if (left % 2 == 1) result *= square;
        square *= square;
      }
      return Integer(result);
    }
    case FMOD:
      return none || minus_one ? Integer(0) : Integer(a % b);
    case GCD: {
      U divisor = a < 0 ? U(0) - U(a) : U(a), rest = b < 0 ? U(0) - U(b) : U(b);
      while (rest != 0) {
        const U next = divisor % rest;
        divisor = rest;
        rest = next;
      }
      return Integer(divisor);
    }
    case AND:
      return a & b;
    case OR:
      return a | b;
    case XOR:
      return a ^ b;
    case SHIFT_LEFT:
      return outside ? Integer(0) : Integer(U(a) << b);
    default:
      return outside ? (a < 0 ? Integer(-1) : Integer(0)) : Integer(a >> b);
  }
}

template <typename Real>
__device__ Real floating(Real a, Real b, int sign) {
  if (sign == TRUNCATE) return trunc(a / b);
  const Real rest = fmod(a, b);  // has the sign of a
  if (sign == FMOD) return rest;
  const bool below = rest != 0 && (b < 0) != (rest < 0);
  if (sign == REMAINDER) return rest == 0 ? copysign(Real(0), b) : below ? rest + b : rest;
  if (b == 0) return a / b;
  const Real quotient = (a - rest) / b - (below ? 1 : 0);  // an integer, but for rounding
  if (quotient == 0) return copysign(Real(0), a / b);
  const Real lower = floor(quotient);
  return quotient - lower > Real(0.5) ? lower + 1 : lower;
}

__device__ int combined(int a, int b, int sign) { return integers<unsigned>(a, b, sign); }
__device__ long long combined(long long a, long long b, int sign) { return integers<unsigned long long>(a, b, sign); }
__device__ unsigned char combined(unsigned char a, unsigned char b, int sign) {
  return integers<unsigned>(int(a), int(b), sign);  // its low byte
}
__device__ float combined(float a, float b, int sign) { return floating(a, b, sign); }
__device__ double combined(double a, double b, int sign) { return floating(a, b, sign); }
__device__ bool combined(bool a, bool b, int sign) {
  return sign == ADD || sign == OR ? a || b : sign == XOR ? a != b : a && b;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    combine(T* __restrict__ Y, const T* __restrict__ A, const T* __restrict__ B, int sign, long long period,
            long long elements) {
  const long long i = (long long)(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= elements) return;
  const auto a = load_pack<1>(A + i);
  const auto b = load_pack<1>(B + (period == elements ? i : period == 1 ? 0 : i % period));
  decltype(load_pack<1>(A)) y;
  y.v[0] = combined(a.v[0], b.v[0], sign);
  store_pack(Y + i, y);
}
