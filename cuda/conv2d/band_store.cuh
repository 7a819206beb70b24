// How a tile leaves the registers: scaled back, with bias and activation, as floats or bfloat16 (band_gemm.cuh).
#pragma once
#include "common/bfloat16.cuh"
#include "common/half_pair.cuh"
#include "common/quad.cuh"
#include "conv2d/band_tile.cuh"

// A sum scaled back, with bias and activation: what is stored, before it is rounded to bfloat16.
struct Finish {
  const BandProblem& p;
  int j0, columns;
  float inverse_0 = 1.f, inverse_1 = 1.f;

  __device__ __forceinline__ Finish(const BandProblem& p, int j0) : p(p), j0(j0), columns(p.GN - j0) {
    if (OPERANDS == HALVES) inverse_0 = inverse_scale(half_scale(p.absmax[0])), inverse_1 = inverse_scale(half_scale(p.absmax[1]));
  }
  __device__ __forceinline__ float operator()(float v, int column) const {
    if (OPERANDS == HALVES) v = v * inverse_0 * inverse_1;
    if (!ALPHA_FUSED) return v;
    // of 96 registers none holds it ahead of its use
    if (p.bias != nullptr && column < columns) v += p.bias[MOVE_REGISTERS ? j0 + column : opaque(j0 + column)];
    return v > 0 ? v : p.slope * v;
  }
};

// Adds bias, activates and stores 64 rows of a warpgroup: row_of(row) is where row begins, or null; `columns` of it are inside.
template <class RowOf>
__device__ __forceinline__ void store_rows(const float (&sum)[R], const BandProblem& p, int j0, RowOf row_of) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, columns = p.GN - j0;
  const Finish finish(p, j0);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    Output* c = row_of(int(threadIdx.x % 128 / 32 * 16 + g + 8 * h));
    if constexpr (OPERANDS == BF16) {
#pragma unroll
      for (int j = 0; j < BN / 8; j += 4) {  // four neighbours' pairs of one 8 columns become one thread's
        uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int column = (j + i) * 8 + t * 2, e = (j + i) * 4 + h * 2;
          v[i] = narrow_pair(finish(sum[e], column), finish(sum[e + 1], column + 1));
        }
        transpose_quad(v, t);
        const int column = (j + t) * 8;
        if (c != nullptr && column < columns) *reinterpret_cast<uint4*>(c + column) = make_uint4(v[0], v[1], v[2], v[3]);
      }
    } else if constexpr (MOVE_REGISTERS || MI * R <= 32) {
#pragma unroll
      for (int j = 0; j < BN / 8; j += 2) {  // and of floats, four contiguous ones
        const int column = j * 8 + t * 2, e = j * 4 + h * 2;
        const float2 first = make_float2(finish(sum[e], column), finish(sum[e + 1], column + 1));
        const float2 second = make_float2(finish(sum[e + 4], column + 8), finish(sum[e + 5], column + 9));
        const float4 v = gather_quad(first, second, t);
        const int place = j * 8 + t * 4;
        if (c != nullptr && place < columns) *reinterpret_cast<float4*>(c + place) = v;
      }
    } else {  // 96 registers do not do for that
#pragma unroll
      for (int j = 0; j < BN / 8; j++) {
        const int column = j * 8 + t * 2, e = j * 4 + h * 2;
        const float2 v = make_float2(finish(sum[e], column), finish(sum[e + 1], column + 1));
        if (c != nullptr && column < columns) *reinterpret_cast<float2*>(c + column) = v;
      }
    }
  }
}
