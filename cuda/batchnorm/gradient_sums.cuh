// Sums of the gradients of weight and bias over the rows, in a fixed order: dbias = sum of dZ, dweight = sum of
// dZ (X - mean) / sqrt(var + eps).
#pragma once
#include "common/columns.cuh"
#include "common/last_block.cuh"

// Of dZ, and of dZ (X - mean), by column.
template <int N>
struct Sums {
  Pack<float, N> g, gx;
};

template <int N>
__device__ __forceinline__ void operator+=(Sums<N>& a, const Sums<N>& b) {
  a.g += b.g, a.gx += b.gx;
}

// The sums of columns c .. c + N - 1 over this lane's parts; only columns that are `valid` are read.
template <int N>
__device__ __forceinline__ Sums<N> lane_sums(const float* part, int parts, int C, int c, bool valid) {
  Sums<N> sums = {};
  auto load = [&](int z) {
    const float* source = part + size_t(z) * C + c;
    return Sums<N>{load_pack<N>(source), load_pack<N>(source + size_t(parts) * C)};
  };
  if (valid) visit_rows(threadIdx.y, parts, blockDim.y, load, [&](int, const Sums<N>& s) { sums += s; });
  return sums;
}

template <bool DIVIDE, int N>
__device__ __forceinline__ void store_gradients(float* dweight, float* dbias, Sums<N> sums, const float* var, float eps,
                                                int c) {
  store_pack(dbias + c, sums.g);
  const Pack<float, N> s = load_pack<N>(var + c);
#pragma unroll
  for (int i = 0; i < N && DIVIDE; i++) sums.gx.v[i] /= sqrtf(s.v[i] + eps);
  store_pack(dweight + c, sums.gx);
}

// Adds up the sums of the lanes and of all segments, gridDim.y, and stores the gradients of the columns from c on. If
// there are several segments, each block writes its sums to part (2, segments, C), and the last block that comes to a
// tile of columns adds up the parts; `state` has a word per tile that is 0 before and again at the end. DIVIDE: the
// sums are to be divided by sqrt(var + eps). Every thread of the block must call it.
template <bool DIVIDE, int N>
__device__ __forceinline__ void finish_sums(Sums<N> sums, Sums<N>* shared, float* dweight, float* dbias, float* part,
                                            unsigned* state, const float* var, float eps, int c, int C) {
  const bool valid = c < C, writes = valid && threadIdx.y == 0;
  reduce_lanes(sums, shared);
  if (gridDim.y > 1) {
    const size_t distance = size_t(gridDim.y) * C;
    if (writes) {
      float* target = part + size_t(blockIdx.y) * C + c;
      store_pack(target, sums.g);
      store_pack(target + distance, sums.gx);
    }
    if (!comes_last(state + blockIdx.x, gridDim.y)) return;
    sums = lane_sums<N>(part, gridDim.y, C, c, valid);
    reduce_lanes(sums, shared);
  }
  if (writes) store_gradients<DIVIDE>(dweight, dbias, sums, var, eps, c);
}
