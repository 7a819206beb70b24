// wgmma (sm_90a): a warpgroup of 128 threads multiplies on tensor cores while its threads go on:
// d = a b + (scale ? d : 0) with a of 64 rows and b of N columns, N = 2 x the length of d. In lane 4 g + t of warp w of
// the group
//   d[4 j + 2 h + e] is (16 w + g + 8 h, 8 j + 2 t + e);
//   tf32 a registers: (g, t) (g + 8, t) (g, t + 4) (g + 8, t + 4);
//   bf16 and f16 a registers: as mma_m16n8k16_bf16.
// Operands in shared memory are given by descriptors. tf32 takes 8 of K and needs K-major operands, 16 bits take 16 of
// K and read an operand MN-major if its transpose is 1. Use: wgmma_fence, products, wgmma_commit, wgmma_wait; no thread
// may touch d, the a registers or the operands in shared memory before the wait.
#pragma once
#include "common/cuda.h"

// K-major tile: rows of 128 bytes of K, 128-byte swizzle, 8 rows every 1024 bytes. 32 bytes further is the next step of
// K.
__device__ __forceinline__ uint64_t wgmma_k_major(uint32_t address) {
  return uint64_t((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
// MN-major tile of 16 bits: rows of 64 channels, 128-byte swizzle, 8 of K every 1024 bytes (16 of K are 2048 bytes);
// `block_bytes` from each 64 channels to the next.
__device__ __forceinline__ uint64_t wgmma_mn_major(uint32_t address, uint32_t block_bytes) {
  return uint64_t((address & 0x3ffff) >> 4) | uint64_t(block_bytes >> 4) << 16 | 64ull << 32 | 1ull << 62;
}
// The descriptor of the same kind of tile `bytes` further, a multiple of 16.
__device__ __forceinline__ uint64_t wgmma_further(uint64_t descriptor, int bytes) { return descriptor + (bytes >> 4); }

#ifdef ALPHA_EMULATED
#include "common/emulation/wgmma.h"

inline void wgmma_fence() { alpha_emulation::fence_wgmma(); }
inline void wgmma_commit() { alpha_emulation::commit_wgmma(); }
template <int pending>
inline void wgmma_wait(ALPHA_CALLER) {
  alpha_emulation::wait_wgmma(pending, {file, line});
}
template <int count>
inline void setmaxnreg_increase() {}
template <int count>
inline void setmaxnreg_decrease() {}

template <int R>
void wgmma_tf32(float (&d)[R], uint64_t a, uint64_t b, int scale) {
  alpha_emulation::start_wgmma<alpha_emulation::Tf32, R>(d, nullptr, a, b, scale, false, false);
}
template <int R>
void wgmma_tf32(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int scale) {
  alpha_emulation::start_wgmma<alpha_emulation::Tf32, R>(d, a, 0, b, scale, false, false);
}
template <int a_transposed, int b_transposed, int R>
void wgmma_bf16(float (&d)[R], uint64_t a, uint64_t b, int scale) {
  alpha_emulation::start_wgmma<alpha_emulation::Bf16, R>(d, nullptr, a, b, scale, a_transposed, b_transposed);
}
template <int b_transposed, int R>
void wgmma_bf16(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int scale) {
  alpha_emulation::start_wgmma<alpha_emulation::Bf16, R>(d, a, 0, b, scale, false, b_transposed);
}
template <int a_transposed, int b_transposed, int R>
void wgmma_f16(float (&d)[R], uint64_t a, uint64_t b, int scale) {
  alpha_emulation::start_wgmma<alpha_emulation::F16, R>(d, nullptr, a, b, scale, a_transposed, b_transposed);
}
template <int b_transposed, int R>
void wgmma_f16(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int scale) {
  alpha_emulation::start_wgmma<alpha_emulation::F16, R>(d, a, 0, b, scale, false, b_transposed);
}
#else
// Needed before the first product, and after any other access to its registers.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most the `pending` newest groups are under way.
template <int pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
// Moves registers between the warpgroups of a block: `count` per thread, a multiple of 8 from 24 to 256.
template <int count>
__device__ __forceinline__ void setmaxnreg_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ __forceinline__ void setmaxnreg_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

// clang-format off: a table
// The register lists of N / 2 accumulators, in the instruction's text and as operands.
#define ALPHA_D16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define ALPHA_D32 ALPHA_D16 ", " "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ALPHA_D48 ALPHA_D32 ", " "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define ALPHA_D64 ALPHA_D48 ", " "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ALPHA_D80 ALPHA_D64 ", " "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define ALPHA_D96 ALPHA_D80 ", " "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define ALPHA_D112 ALPHA_D96 ", " "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define ALPHA_D128 ALPHA_D112 ", " "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define ALPHA_FROM4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ALPHA_FROM16(i) ALPHA_FROM4(i), ALPHA_FROM4(i + 4), ALPHA_FROM4(i + 8), ALPHA_FROM4(i + 12)
#define ALPHA_O16 ALPHA_FROM16(0)
#define ALPHA_O32 ALPHA_O16, ALPHA_FROM16(16)
#define ALPHA_O48 ALPHA_O32, ALPHA_FROM16(32)
#define ALPHA_O64 ALPHA_O48, ALPHA_FROM16(48)
#define ALPHA_O80 ALPHA_O64, ALPHA_FROM16(64)
#define ALPHA_O96 ALPHA_O80, ALPHA_FROM16(80)
#define ALPHA_O112 ALPHA_O96, ALPHA_FROM16(96)
#define ALPHA_O128 ALPHA_O112, ALPHA_FROM16(112)

#define ALPHA_WGMMA_TEXT(shape, types, R, operands, scale, suffix)                                                     \
  "{ .reg .pred p; setp.ne.b32 p, %" #scale ", 0; wgmma.mma_async.sync.aligned." shape "." types " {" ALPHA_D##R "}, " \
  operands ", p, 1, 1" suffix "; }"
// clang-format on

// All products of one width. R = N / 2 accumulators are operands 0 to R - 1; the numbers R to R + 6 follow them.
#define ALPHA_WGMMA(N, R, p0, p1, p2, p3, p4, p5, p6)                                                              \
  __device__ __forceinline__ void wgmma_tf32(float (&d)[R], uint64_t a, uint64_t b, int scale) {                   \
    asm volatile(ALPHA_WGMMA_TEXT("m64n" #N "k8", "f32.tf32.tf32", R, "%" #p0 ", %" #p1, p2, "")                   \
                 : ALPHA_O##R                                                                                      \
                 : "l"(a), "l"(b), "r"(scale));                                                                    \
  }                                                                                                                \
  __device__ __forceinline__ void wgmma_tf32(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int scale) {       \
    asm volatile(ALPHA_WGMMA_TEXT("m64n" #N "k8", "f32.tf32.tf32", R,                                              \
                                  "{%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4, p5, "")                       \
                 : ALPHA_O##R                                                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale));                                \
  }                                                                                                                \
  template <int a_transposed, int b_transposed>                                                                    \
  __device__ __forceinline__ void wgmma_bf16(float (&d)[R], uint64_t a, uint64_t b, int scale) {                   \
    asm volatile(ALPHA_WGMMA_TEXT("m64n" #N "k16", "f32.bf16.bf16", R, "%" #p0 ", %" #p1, p2, ", %" #p3 ", %" #p4) \
                 : ALPHA_O##R                                                                                      \
                 : "l"(a), "l"(b), "r"(scale), "n"(a_transposed), "n"(b_transposed));                              \
  }                                                                                                                \
  template <int b_transposed>                                                                                      \
  __device__ __forceinline__ void wgmma_bf16(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int scale) {       \
    asm volatile(ALPHA_WGMMA_TEXT("m64n" #N "k16", "f32.bf16.bf16", R,                                             \
                                  "{%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4, p5, ", %" #p6)                \
                 : ALPHA_O##R                                                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale), "n"(b_transposed));             \
  }                                                                                                                \
  template <int a_transposed, int b_transposed>                                                                    \
  __device__ __forceinline__ void wgmma_f16(float (&d)[R], uint64_t a, uint64_t b, int scale) {                    \
    asm volatile(ALPHA_WGMMA_TEXT("m64n" #N "k16", "f32.f16.f16", R, "%" #p0 ", %" #p1, p2, ", %" #p3 ", %" #p4)   \
                 : ALPHA_O##R                                                                                      \
                 : "l"(a), "l"(b), "r"(scale), "n"(a_transposed), "n"(b_transposed));                              \
  }                                                                                                                \
  template <int b_transposed>                                                                                      \
  __device__ __forceinline__ void wgmma_f16(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int scale) {        \
    asm volatile(ALPHA_WGMMA_TEXT("m64n" #N "k16", "f32.f16.f16", R,                                               \
                                  "{%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4, p5, ", %" #p6)                \
                 : ALPHA_O##R                                                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale), "n"(b_transposed));             \
  }

ALPHA_WGMMA(32, 16, 16, 17, 18, 19, 20, 21, 22)
ALPHA_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, 38)
ALPHA_WGMMA(96, 48, 48, 49, 50, 51, 52, 53, 54)
ALPHA_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, 70)
ALPHA_WGMMA(160, 80, 80, 81, 82, 83, 84, 85, 86)
ALPHA_WGMMA(192, 96, 96, 97, 98, 99, 100, 101, 102)
ALPHA_WGMMA(224, 112, 112, 113, 114, 115, 116, 117, 118)
ALPHA_WGMMA(256, 128, 128, 129, 130, 131, 132, 133, 134)

#undef ALPHA_WGMMA
#undef ALPHA_WGMMA_TEXT
#endif
