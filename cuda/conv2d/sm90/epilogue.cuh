// The epilogue: the scales of the sums are undone, bias and activation are applied, and the results are stored as
// floats or bfloat16 (sm90/mainloop.cuh).
#pragma once
#include "common/bfloat16.cuh"
#include "common/fp16_terms.cuh"
#include "common/quad.cuh"
#include "common/rectifier.cuh"
#include "conv2d/sm90/tile.cuh"

// Undoes the scales of sums, adds the bias and applies the activation, unless the results are there already, because
// SUMS is false. The rounding to bfloat16 comes later.
template <bool SUMS>
struct Epilogue {
  const GemmProblem& p;
  int j0, columns;
  Unscale unscale;
  SlopeRectifier rectified;

  __device__ __forceinline__ Epilogue(const GemmProblem& p, int j0)
      : p(p), j0(j0), columns(p.GN - j0), rectified(p.slope) {
    if (IS_FP16 && SUMS) unscale = Unscale(half_scale(*p.absmax_a), half_scale(*p.absmax_b));
  }
  // The results of `column` of the tile and of the next column, also in place.
  __device__ __forceinline__ float2 operator()(float* sum, int column) const {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      if (IS_FP16 && SUMS) sum[i] = unscale(sum[i]);
      if (!ALPHA_EPILOGUE || !SUMS) continue;
      if (p.bias != nullptr && (RAGGED ? column + i : column) < columns)
        sum[i] += p.bias[hide_from_optimizer(j0 + column + i)];
      sum[i] = rectified(sum[i]);
    }
    return make_float2(sum[0], sum[1]);
  }
};

// A result as it is stored.
__device__ __forceinline__ Output narrowed(float y) {
  if constexpr (MATH == BF16)
    return uint16_t(narrow_pair(y, 0.f));
  else
    return y;
}

// Applies the epilogue to 64 rows of a warpgroup and stores them at row_of(row), unless that is null. SUMS: see
// Epilogue. Returns the largest magnitude that this thread has stored, with SUMS and MAGNITUDE, else 0.
template <bool SUMS, class RowOf>
__device__ __forceinline__ unsigned store_epilogue(float (&sum)[R], const GemmProblem& p, int j0, RowOf row_of) {
  const int thread = hide_from_optimizer(threadIdx.x), g = thread % 32 / 4, t = thread % 4, columns = p.GN - j0;
  const Epilogue<SUMS> epilogue(p, j0);
  unsigned largest = 0;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    Output* c = row_of(thread % GROUP_THREADS / 32 * 16 + g + 8 * h);
    auto pair = [&](int j) {  // of the j-th 8 columns
      const float2 y = epilogue(&sum[j * 4 + h * 2], j * 8 + t * 2);
      if (SUMS && MAGNITUDE && c != nullptr) largest = max(largest, max(finite_magnitude(y.x), finite_magnitude(y.y)));
      return y;
    };
    if constexpr (RAGGED && MATH == BF16) {
      // a row may begin in the middle of a word; its words then are the second of a pair and the first of the pair
      // behind it
      const bool shifted = reinterpret_cast<size_t>(c) & 2;
      const int last = min(columns, BN), quad = thread % 32 - t;
      float2 y = pair(0);
      if (shifted && t == 0) c[0] = narrowed(y.x);
#pragma unroll
      for (int j = 0; j < BN / 8; j++) {
        const float2 next = j + 1 < BN / 8 ? pair(j + 1) : make_float2(0, 0);
        const float behind = __shfl_sync(~0u, t == 0 ? next.x : y.x, quad + (t + 1) % 4);
        const float2 word = shifted ? make_float2(y.y, behind) : y;
        const int column = j * 8 + t * 2 + shifted;
        if (c != nullptr && column + 1 < last)
          *reinterpret_cast<uint32_t*>(c + column) = narrow_pair(word.x, word.y);
        else if (c != nullptr && column < last)
          c[column] = narrowed(word.x);
        y = next;
      }
    } else if constexpr (RAGGED) {
      const bool paired = p.GN % 2 == 0;  // each pair is aligned, and its second is within the row
#pragma unroll
      for (int j = 0; j < BN / 8; j++) {
        const float2 y = pair(j);
        const int column = j * 8 + t * 2;
        if (c == nullptr || column >= columns) continue;
        if (paired) {
          *reinterpret_cast<float2*>(c + column) = y;
        } else {
          c[column] = y.x;
          if (column + 1 < columns) c[column + 1] = y.y;
        }
      }
    } else {
      store_row<BN>(c, columns, t, pair);
    }
  }
  return largest;
}
