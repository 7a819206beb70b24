// ldmatrix (sm_75 and newer): a warp reads 2 or 4 matrices of 8 rows x 16 bytes from shared memory. Lane 8 m + i gives
// the shared address of row i of matrix m (16-byte aligned); in lane 4 g + t register m becomes word t of row g, that
// is columns 2t and 2t + 1 of 16 bits. `_trans` transposes each matrix of 8 x 8 16-bit elements on the way.
#pragma once
#include "common/cuda.h"

#ifdef ALPHA_EMULATED
#include "common/emulation/ldmatrix.h"

inline void ldmatrix_x2(uint32_t (&d)[2], uint32_t row, ALPHA_CALLER) {
  alpha_emulation::load_matrices<2, false>(d, row, {file, line});
}
inline void ldmatrix_x2_trans(uint32_t (&d)[2], uint32_t row, ALPHA_CALLER) {
  alpha_emulation::load_matrices<2, true>(d, row, {file, line});
}
inline void ldmatrix_x4(uint32_t (&d)[4], uint32_t row, ALPHA_CALLER) {
  alpha_emulation::load_matrices<4, false>(d, row, {file, line});
}
inline void ldmatrix_x4_trans(uint32_t (&d)[4], uint32_t row, ALPHA_CALLER) {
  alpha_emulation::load_matrices<4, true>(d, row, {file, line});
}
#else
__device__ __forceinline__ void ldmatrix_x2(uint32_t (&d)[2], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(d[0]), "=r"(d[1])
               : "r"(row)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&d)[2], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(d[0]), "=r"(d[1])
               : "r"(row)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&d)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(row)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&d)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(row)
               : "memory");
}
#endif
