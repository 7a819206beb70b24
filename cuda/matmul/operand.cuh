// The block's tile of a batch of matrix products, and an operand's tile on its way from global memory to registers
// (ffma.cu, sm80.cu).
//
// A tile is BK deep along K and EXTENT wide along M or N. The loads of the next step are in flight while this one is
// multiplied. Whatever lies outside of the matrix is loaded as zero.
#pragma once
#include "common/cuda.h"
#include "common/vector.cuh"

// Which outputs a block computes, and over which depths. Blocks: tiles of N x tiles of M x D x splits, the first
// fastest.
struct OutputTile {
  int m0, n0, k_start, k_stop;
  unsigned d, split;

  __device__ __forceinline__ OutputTile(int BM, int BN, int M, int N, int K, int D, int depth) {
    const unsigned tiles_n = (N + BN - 1) / BN, tiles_m = (M + BM - 1) / BM;
    unsigned block = blockIdx.x;
    n0 = block % tiles_n * BN;
    block /= tiles_n;
    m0 = block % tiles_m * BM;
    block /= tiles_m;
    d = block % D, split = block / D;
    k_start = min((long long)split * depth, (long long)K), k_stop = min((long long)k_start + depth, (long long)K);
  }
};

// T float or bfloat16, in registers as the bits of memory, so that no thread waits for its loads before it must.
// K_INNER: K is the contiguous axis in memory, the inner one; V elements per load. Threads next to each other load
// packs of a row next to each other, so that each thread has the same columns of several rows.
template <typename T, int EXTENT, int BK, bool K_INNER, int V, int THREADS>
struct Operand {
  static constexpr int INNER = K_INNER ? BK : EXTENT, OUTER = K_INNER ? EXTENT : BK, PACKS = INNER / V;
  static constexpr int LANES = PACKS < 32 ? PACKS : 32, GROUPS = THREADS / LANES;  // threads of a row, rows at a time
  static constexpr int ACROSS = (PACKS + LANES - 1) / LANES, DOWN = (OUTER + GROUPS - 1) / GROUPS;  // packs of a thread
  static_assert(INNER % V == 0, "whole packs");
  Bits<T, V> held[DOWN][ACROSS];

  // Calls function(row, column, outer, inner) for each of the thread's packs, held[row][column] at (outer, inner) of
  // the tile.
  template <class Function>
  static __device__ __forceinline__ void each(Function function) {
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
#pragma unroll
    for (int row = 0; row < DOWN; row++)
#pragma unroll
      for (int column = 0; column < ACROSS; column++) {
        const int outer = group + row * GROUPS, inner = (lane + column * LANES) * V;
        const bool spare = THREADS % LANES > 0 && group >= GROUPS;
        if (!spare && (OUTER % GROUPS == 0 || outer < OUTER) && (PACKS % LANES == 0 || inner < INNER))
          function(row, column, outer, inner);
      }
  }

  // From row or column e0 (of `extent`) and depth k0 on, below depth k_stop; `stride` is that of the outer axis.
  __device__ __forceinline__ void fetch(const T* X, int stride, int e0, int extent, int k0, int k_stop) {
    const int outer0 = K_INNER ? e0 : k0, inner0 = K_INNER ? k0 : e0;
    const int outer_room = (K_INNER ? extent : k_stop) - outer0, inner_room = (K_INNER ? k_stop : extent) - inner0;
    const T* corner = X + size_t(outer0) * stride + inner0;
    each([&](int row, int column, int outer, int inner) {
      held[row][column] = {};
      if (outer < outer_room && inner < inner_room)
        held[row][column] = load_bits<V>(corner + size_t(outer) * stride + inner);
    });
  }
};
