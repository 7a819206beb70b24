// Sums of the gradients of weight and bias over the rows, in a fixed order: dbias = sum of dZ, dweight = sum of
// dZ (X - mean) / sqrt(var + eps).
//
// With LIMIT 1 also the largest magnitude of dZ by column, and a limit of the magnitudes of the input gradient.
#pragma once
#include "common/columns.cuh"
#include "common/fp16_terms.cuh"
#include "common/largest.cuh"
#include "common/last_block.cuh"

constexpr bool LIMIT = ALPHA_LIMIT;

// The largest finite magnitudes of N columns, if they are asked for.
template <int N, bool>
struct MostOf {
  Pack<float, N> most;

  __device__ __forceinline__ void see(const Pack<float, N>& g) {
#pragma unroll
    for (int i = 0; i < N; i++) most.v[i] = fmaxf(most.v[i], __uint_as_float(finite_magnitude(g.v[i])));
  }
};
template <int N>
struct MostOf<N, false> {
  __device__ __forceinline__ void see(const Pack<float, N>&) {}
};

// Of dZ, and of dZ (X - mean), by column.
template <int N>
struct Sums : MostOf<N, LIMIT> {
  Pack<float, N> g, gx;
};

template <int N>
__device__ __forceinline__ void operator+=(Sums<N>& a, const Sums<N>& b) {
  a.g += b.g, a.gx += b.gx;
  if constexpr (LIMIT) {
#pragma unroll
    for (int i = 0; i < N; i++) a.most.v[i] = fmaxf(a.most.v[i], b.most.v[i]);
  }
}

// Where the limit of the magnitudes of the input gradient goes, and what it follows from.
//
// dX = a (dZ - dbias / R - xhat dweight / R) with a = weight / sqrt(var + eps) and |xhat| <= sqrt(R), so that
// |dX| <= |a| (most of dZ + |dbias| / R + |dweight| / sqrt(R)).
struct GradientLimit {
  unsigned *bits, *state;
  const float *var, *weight;
  float eps;
  int R;
  const unsigned* most;  // the bits of the largest magnitude of dZ; null: it was found by column

  // The bits of the limit for column c; 0 if what it follows from is not finite.
  __device__ __forceinline__ unsigned of(float most_of_dZ, float dbias, float dweight, int c) const {
    const float a = fabsf(weight[c]) / sqrtf(var[c] + eps);
    const float limit = a * (most_of_dZ + fabsf(dbias) / R + fabsf(dweight) / sqrtf(float(R)));
    return finite_limit(limit, isfinite(a) && isfinite(dbias) && isfinite(dweight));
  }
};

// The sums of columns c .. c + N - 1 over this lane's parts; only columns that are `valid` are read.
// FOUND_MOST: the parts have largest magnitudes, too.
template <int N, bool FOUND_MOST = LIMIT>
__device__ __forceinline__ Sums<N> lane_sums(const float* part, int parts, int C, int c, bool valid) {
  Sums<N> sums = {};
  auto load = [&](int z) {
    const float* source = part + size_t(z) * C + c;
    Sums<N> found;
    found.g = load_pack<N>(source), found.gx = load_pack<N>(source + size_t(parts) * C);
    if constexpr (FOUND_MOST) found.most = load_pack<N>(source + size_t(parts) * C * 2);
    if constexpr (LIMIT && !FOUND_MOST) found.most = {};
    return found;
  };
  if (valid) visit_rows(threadIdx.y, parts, blockDim.y, load, [&](int, const Sums<N>& s) { sums += s; });
  return sums;
}

// Stores the gradients of columns c .. c + N - 1; with LIMIT 1 returns the bits of their limit, else 0.
template <bool DIVIDE, int N>
__device__ __forceinline__ unsigned store_gradients(float* dweight, float* dbias, Sums<N> sums, const float* var,
                                                    float eps, int c, const GradientLimit& limit) {
  store_pack(dbias + c, sums.g);
  const Pack<float, N> s = load_pack<N>(var + c);
#pragma unroll
  for (int i = 0; i < N && DIVIDE; i++) sums.gx.v[i] /= sqrtf(s.v[i] + eps);
  store_pack(dweight + c, sums.gx);
  unsigned word = 0;
  if constexpr (LIMIT) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      const float most = limit.most != nullptr ? __uint_as_float(*limit.most) : sums.most.v[i];
      word = max(word, limit.of(most, sums.g.v[i], sums.gx.v[i], c + i));
    }
  }
  return word;
}

// Adds up the sums of the lanes and of all segments, gridDim.y, and stores the gradients of the columns from c on. If
// there are several segments, each block writes its sums to part (2, segments, C), with LIMIT 1 (3, ..), and the last
// block that comes to a tile of columns adds up the parts; `state` has a word per tile that is 0 before and again at
// the end. DIVIDE: the sums are to be divided by sqrt(var + eps). Every thread of the block must call it.
template <bool DIVIDE, int N>
__device__ __forceinline__ void finish_sums(Sums<N> sums, Sums<N>* shared, float* dweight, float* dbias, float* part,
                                            unsigned* state, const float* var, float eps, int c, int C,
                                            const GradientLimit& limit) {
  const bool valid = c < C, writes = valid && threadIdx.y == 0;
  reduce_lanes(sums, shared);
  if (gridDim.y > 1) {
    const size_t distance = size_t(gridDim.y) * C;
    if (writes) {
      float* target = part + size_t(blockIdx.y) * C + c;
      store_pack(target, sums.g);
      store_pack(target + distance, sums.gx);
      if constexpr (LIMIT) store_pack(target + 2 * distance, sums.most);
    }
    if (!comes_last(state + blockIdx.x, gridDim.y)) return;
    sums = lane_sums<N>(part, gridDim.y, C, c, valid);
    reduce_lanes(sums, shared);
  }
  unsigned word = 0;
  if (writes) word = store_gradients<DIVIDE>(dweight, dbias, sums, var, eps, c, limit);
  if (LIMIT) write_largest(limit.bits, limit.state, word, gridDim.x);
}
