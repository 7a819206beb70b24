// Softmax of each row of X (A, K), or its logarithm, and the gradient of either: softmax.cu for rows of neighbours.
//
// softmax_rows: Y = exp(x - m) / s, or with `logarithm` x - m - log(s); m is the largest x of a row, s the sum of
//   exp(x - m).
// softmax_rows_gradient: dX = Y (dY - sum of dY Y), or with `logarithm` dX = dY - exp(Y) sum of dY; sums are over a
// row. A row is read once and stays in the registers of its lanes (common/rows.cuh). Sums have a fixed order.
// Grid: ceil(A / (256 / LANES * ROWS)). Block: 256. Shared memory: a number per warp and sum if LANES > 32.
// Needs and macros: those of common/rows.cuh, and TYPE float | double | bfloat16. The arithmetic of bfloat16 is float.
#include "common/rows.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;
using Numbers = Pack<Real, ROWS>;  // one for each row of a thread

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    softmax_rows(T* __restrict__ Y, const T* __restrict__ X, long long A, int K, int logarithm) {
  __shared__ Numbers shared[2][ROW_WARPS];
  const Real minus_infinity = Real(-__int_as_float(0x7f800000));
  const RowPlaces at = RowPlaces::of_block(A, K);
  LaneBits<T> bits[ROWS];
  load_rows(bits, X, at, minus_infinity);

  Numbers top = splat<ROWS>(minus_infinity), sum = {};
  each_number(bits, [&](int r, int, Real x) { top.v[r] = fmax(top.v[r], x); });
  top = join_lanes<Larger>(top, shared[0]);

  LaneNumbers<Real> y[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      y[r].pack[p] = bits[r].pack[p].widened();
#pragma unroll
      for (int i = 0; i < VECTOR; i++) {
        const Real x = y[r].pack[p].v[i] - top.v[r], power = exp(x);  // NaN if the largest x is infinite
        sum.v[r] += power;
        y[r].pack[p].v[i] = logarithm ? x : power;
      }
    }
  sum = join_lanes<Add>(sum, shared[1]);

#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    const Real share = 1 / sum.v[r], log_sum = logarithm ? log(sum.v[r]) : 0;
#pragma unroll
    for (int p = 0; p < PACKS; p++)
#pragma unroll
      for (int i = 0; i < VECTOR; i++) {
        Real& value = y[r].pack[p].v[i];
        value = logarithm ? value - log_sum : value * share;
      }
    if (at.exists(r)) store_lane(Y + at.offset(r), y[r], at);
  }
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    softmax_rows_gradient(T* __restrict__ dX, const T* __restrict__ dY, const T* __restrict__ Y, long long A, int K,
                          int logarithm) {
  __shared__ Numbers shared[ROW_WARPS];
  const RowPlaces at = RowPlaces::of_block(A, K);
  LaneBits<T> dy_bits[ROWS], y_bits[ROWS];
  load_rows(dy_bits, dY, at);
  load_rows(y_bits, Y, at);

  Numbers sum = {};
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      const Pack<Real, VECTOR> dy = dy_bits[r].pack[p].widened(), y = y_bits[r].pack[p].widened();
#pragma unroll
      for (int i = 0; i < VECTOR; i++) sum.v[r] += logarithm ? dy.v[i] : dy.v[i] * y.v[i];
    }
  sum = join_lanes<Add>(sum, shared);

#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    LaneNumbers<Real> dx;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      const Pack<Real, VECTOR> dy = dy_bits[r].pack[p].widened(), y = y_bits[r].pack[p].widened();
#pragma unroll
      for (int i = 0; i < VECTOR; i++)
        dx.pack[p].v[i] = logarithm ? dy.v[i] - exp(y.v[i]) * sum.v[r] : y.v[i] * (dy.v[i] - sum.v[r]);
    }
    if (at.exists(r)) store_lane(dX + at.offset(r), dx, at);
  }
}
