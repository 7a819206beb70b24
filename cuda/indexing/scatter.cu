// X[a, F[i], c] += sum of Y[a, i, c] over all i of one place, or = the last of them, or is combined with their product,
// the largest or the smallest. Places may come several times. NaN is the largest and the smallest number.
//
// X (A, R, C), Y (A, I, C). `order` (I,) sorts the places F (I,), and keeps the order of equal ones, so each run of one
// place is combined by one thread per (a, c), in the order of i. A place -1 is left out.
// fold: 0 the last, 1 sum, 2 product, 3 the largest, 4 the smallest.
// Grid: ceil(A I C / 256). Block: 256. No shared memory.
// Macros: TYPE float | double | bfloat16 | int | long long | unsigned char | bool. A sum of bfloat16 is rounded once.
#include "common/bfloat16.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;
constexpr int THREADS = 256;

__device__ __forceinline__ Real combined(Real a, Real b, int fold) {
  if (fold == 0) return b;
  if (fold == 1) return Real(a + b);
  if (fold == 2) return Real(a * b);
  if (a != a || b != b) return a != a ? a : b;
  return (fold == 3) == (a > b) ? a : b;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    scatter(T* __restrict__ X, const T* __restrict__ Y, const long long* __restrict__ F,
            const long long* __restrict__ order, long long R, long long I, long long C, long long elements, int fold) {
  const long long e = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (e >= elements) return;
  const long long c = e % C, i = e / C % I, a = e / C / I;
  const long long place = F[order[i]];
  if (place < 0 || (i > 0 && F[order[i - 1]] == place)) return;
  auto value = [&](long long n) { return load_pack<1>(Y + (a * I + order[n]) * C + c).v[0]; };
  T* const target = X + (a * R + place) * C + c;
  long long stop = i + 1;
  Pack<Real, 1> result = {value(i)};
  if (fold) result.v[0] = combined(load_pack<1>(target).v[0], result.v[0], fold);
  for (; stop < I && F[order[stop]] == place; stop++) result.v[0] = combined(result.v[0], value(stop), fold);
  store_pack(target, result);
}
