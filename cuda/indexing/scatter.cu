// X[a, F[i], c] += sum of Y[a, i, c] over all i of one place, or = the last of them. Places may come several times.
//
// X (A, R, C), Y (A, I, C). `order` (I,) sorts the places F (I,), and keeps the order of equal ones, so each run of one
// place is added up by one thread per (a, c), in the order of i. A place -1 is left out.
// Grid: ceil(A I C / 256). Block: 256. No shared memory.
// Macros: TYPE float | double | bfloat16 | int | long long | unsigned char | bool. A sum of bfloat16 is rounded once.
#include "common/bfloat16.cuh"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;
constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    scatter(T* __restrict__ X, const T* __restrict__ Y, const long long* __restrict__ F,
            const long long* __restrict__ order, long long R, long long I, long long C, long long elements, int adds) {
  const long long e = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (e >= elements) return;
  const long long c = e % C, i = e / C % I, a = e / C / I;
  const long long place = F[order[i]];
  if (place < 0 || (i > 0 && F[order[i - 1]] == place)) return;
  auto value = [&](long long n) { return load_pack<1>(Y + (a * I + order[n]) * C + c).v[0]; };
  T* const target = X + (a * R + place) * C + c;
  long long stop = i + 1;
  Pack<Real, 1> result = {value(i)};
  if (adds) result.v[0] = Real(load_pack<1>(target).v[0] + result.v[0]);
  for (; stop < I && F[order[stop]] == place; stop++)
    result.v[0] = adds ? Real(result.v[0] + value(stop)) : Real(value(stop));
  store_pack(target, result);
}
