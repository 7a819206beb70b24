// stmatrix (sm_90 and newer): a warp writes 4 matrices of 8 rows x 16 bytes to shared memory, which ldmatrix would read
// (common/ldmatrix.cuh). Lane 8 m + i gives the shared address of row i of matrix m (16-byte aligned). Register m of
// lane 4 g + t is word t of row g, that is columns 2t and 2t + 1 of 16 bits; with `_trans` it is rows 2t and 2t + 1 of
// column g.
#pragma once
#include "common/cuda.h"

#ifdef ALPHA_EMULATED
#include "common/emulation/ldmatrix.h"

inline void stmatrix_x4_trans(uint32_t row, const uint32_t (&v)[4], ALPHA_CALLER) {
  alpha_emulation::store_matrices<4, true>(v, row, {file, line});
}
#else
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t row, const uint32_t (&v)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(v[0]),
               "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
}
#endif
