// mma.sync (sm_80 and newer): a warp's d += a b on tensor cores. In lane 4 g + t the registers hold
//   d: (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1) of 16 x 8
//   tf32  a: (g, t) (g + 8, t) (g, t + 4) (g + 8, t + 4) of 16 x 8;  b: (t, g) (t + 4, g) of 8 x 8
//   bf16, f16
//         a: (g, 2t) (g + 8, 2t) (g, 2t + 8) (g + 8, 2t + 8) of 16 x 16,
//            each with its right neighbour in the upper half;
//         b: (2t, g) (2t + 8, g) of 16 x 8, each with its lower neighbour in the upper half
// m16n8k8_bf16 multiplies the first half of K: a[0], a[1] and b[0] alone.
// A tf32 operand is a float whose 13 low bits the hardware ignores. The variants with N fragments multiply one a with N
// b's side by side; the emulator runs them several times faster than N single products.
#pragma once
#include "common/cuda.h"

#ifdef ALPHA_EMULATED
#include "common/emulation/mma.h"

template <int N>
void mma_m16n8k8_tf32(float (&d)[N][4], const uint32_t (&a)[4], const uint32_t (&b)[N][2], ALPHA_CALLER) {
  alpha_emulation::multiply(alpha_emulation::mma_tf32_operation, d, a, b, N, {file, line});
}
template <int N>
void mma_m16n8k16_bf16(float (&d)[N][4], const uint32_t (&a)[4], const uint32_t (&b)[N][2], ALPHA_CALLER) {
  alpha_emulation::multiply(alpha_emulation::mma_bf16_operation, d, a, b, N, {file, line});
}
template <int N>
void mma_m16n8k16_f16(float (&d)[N][4], const uint32_t (&a)[4], const uint32_t (&b)[N][2], ALPHA_CALLER) {
  alpha_emulation::multiply(alpha_emulation::mma_f16_operation, d, a, b, N, {file, line});
}
inline void mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], ALPHA_CALLER) {
  alpha_emulation::multiply(alpha_emulation::mma_tf32_operation, &d, a, &b, 1, {file, line});
}
inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], ALPHA_CALLER) {
  alpha_emulation::multiply(alpha_emulation::mma_bf16_operation, &d, a, &b, 1, {file, line});
}
inline void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], ALPHA_CALLER) {
  alpha_emulation::multiply(alpha_emulation::mma_f16_operation, &d, a, &b, 1, {file, line});
}
inline void mma_m16n8k8_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], ALPHA_CALLER) {
  const uint32_t a_half[4] = {a[0], a[1], 0, 0}, b_half[2] = {b[0], 0};
  alpha_emulation::multiply(alpha_emulation::mma_bf16_operation, &d, a_half, &b_half, 1, {file, line});
}
#else
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_m16n8k8_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}
template <int N>
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[N][4], const uint32_t (&a)[4], const uint32_t (&b)[N][2]) {
#pragma unroll
  for (int n = 0; n < N; n++) mma_m16n8k8_tf32(d[n], a, b[n]);
}
template <int N>
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[N][4], const uint32_t (&a)[4], const uint32_t (&b)[N][2]) {
#pragma unroll
  for (int n = 0; n < N; n++) mma_m16n8k16_bf16(d[n], a, b[n]);
}
template <int N>
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[N][4], const uint32_t (&a)[4], const uint32_t (&b)[N][2]) {
#pragma unroll
  for (int n = 0; n < N; n++) mma_m16n8k16_f16(d[n], a, b[n]);
}
#endif

// The nearest tf32 of a float, ties away from zero.
__device__ __forceinline__ uint32_t round_tf32(float x) {
#ifdef ALPHA_EMULATED
  const uint32_t bits = __float_as_uint(x);
  return (bits & 0x7fffffffu) >= 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
#else
  uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return rounded;
#endif
}
