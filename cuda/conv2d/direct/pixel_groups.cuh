// The tiles of the direct filter gradient: groups of eight neighbouring pixels of dY, and the rows of X that they read.
// Macros: MATH TF32X3 | TF32 | BF16 (the arrays are bfloat16), WN groups of warps with NF fragments of 8 filter
// elements each; TOGETHER, the pixel groups that are summed apart (an even number for BF16); HELD, the elements of the
// next rows of X that a thread fetches ahead.
#pragma once
#include "common/ldmatrix.cuh"
#include "common/math_mode.cuh"
#include "common/tf32x3.cuh"
#include "conv2d/direct/input_rows.cuh"

constexpr MathMode MATH = ALPHA_MATH;
constexpr bool IS_BF16 = MATH == BF16;
constexpr int NF = ALPHA_NF, WN = ALPHA_WN;
static_assert(IS_BF16 || MATH == TF32X3 || MATH == TF32, "TF32X3, TF32 or BF16");
constexpr int CHANNELS = 64, WARPS = 8, THREADS = 32 * WARPS, MF = 2, WM = CHANNELS / (16 * MF), WK = WARPS / (WM * WN);
constexpr int PIXELS = IS_BF16 && WN == 1 ? 128 : 64, PIXEL_GROUPS = PIXELS / 8, SHARE = PIXEL_GROUPS / WK;
constexpr int TOGETHER = ALPHA_TOGETHER, HELD = ALPHA_HELD;
constexpr int STAGES = 3, ROW = CHANNELS + 8;  // elements per pixel: no bank conflicts of fragments
static_assert(WM * WN * WK == WARPS && SHARE % 2 == 0 && SHARE % TOGETHER == 0, "warps share the pixels evenly");
using Element = ElementOf<IS_BF16>::Type;
constexpr int VECTOR = 16 / sizeof(Element), VECTORS = CHANNELS / VECTOR;

// Eight neighbouring pixels, of which `count` are within the row of dY.
struct PixelGroup {
  int base;             // bytes from the first of the rows of X
  int pixel_and_count;  // 16 times the pixels of dY from the first output row, + count
};

struct Task {
  InputRows rows;
  int image;

  __device__ __forceinline__ Task(const ConvShape& s, int task, int most_rows)
      : rows(s, task % ((s.OH + most_rows - 1) / most_rows) * most_rows, most_rows, (s.OW + 7) / 8 * 8),
        image(task / ((s.OH + most_rows - 1) / most_rows)) {}
};

// Writes the word of an element of X. A bfloat16 is also the upper half of the word of the pixel before, `step`
// elements back.
__device__ __forceinline__ void put(uint32_t* x_rows, int word, int, float x) {
  x_rows[word] = MATH != TF32X3 ? round_tf32(x) : __float_as_uint(x);
}
__device__ __forceinline__ void put(uint32_t* x_rows, int word, int step, uint16_t x) {
  uint16_t* elements = reinterpret_cast<uint16_t*>(x_rows);  // two in each word, the lower one first
  elements[2 * word] = x;
  if (word >= step) elements[2 * (word - step) + 1] = x;
}

// sum += the products of pixels [pixel, pixel + 8) with X. The words at x + offset are those of the first four pixels,
// the words at x_next + offset those of the other four. For bfloat16 they are those of 8 and of the next 8 pixels. d:
// dY at the chunk's first pixel and the warp's first channel.
__device__ __forceinline__ void multiply(float (&sum)[MF][NF][4], const float* d, int pixel, const char* x,
                                         const char* x_next, const int (&offset)[NF]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  uint32_t b[NF][2], a[MF][4];
#pragma unroll
  for (int j = 0; j < NF; j++) b[j][0] = word_at(x + offset[j]), b[j][1] = word_at(x_next + offset[j]);
#pragma unroll
  for (int m = 0; m < MF; m++) {
    uint32_t a_small[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const float y = d[(pixel + t + (e >> 1) * 4) * ROW + m * 16 + (e & 1) * 8 + g];
      a[m][e] = MATH != TF32X3 ? round_tf32(y) : __float_as_uint(y);
      a_small[e] = small_part(a[m][e]);
    }
    if (MATH == TF32X3) mma_m16n8k8_tf32(sum[m], a_small, b);
    mma_m16n8k8_tf32(sum[m], a[m], b);
  }
  if (MATH == TF32X3) {
#pragma unroll
    for (int j = 0; j < NF; j++) b[j][0] = small_part(b[j][0]), b[j][1] = small_part(b[j][1]);
#pragma unroll
    for (int m = 0; m < MF; m++) mma_m16n8k8_tf32(sum[m], a[m], b);
  }
}
__device__ __forceinline__ void multiply(float (&sum)[MF][NF][4], const uint16_t* d, int pixel, const char* x,
                                         const char* x_next, const int (&offset)[NF]) {
  const int lane = threadIdx.x % 32, matrix = lane / 8, i = lane % 8;
  uint32_t b[NF][2];
#pragma unroll
  for (int j = 0; j < NF; j++) b[j][0] = word_at(x + offset[j]), b[j][1] = word_at(x_next + offset[j]);
#pragma unroll
  for (int m = 0; m < MF; m++) {
    uint32_t a[4];
    ldmatrix_x4_trans(a, shared_address(d + (pixel + matrix / 2 * 8 + i) * ROW + m * 16 + matrix % 2 * 8));
    mma_m16n8k16_bf16(sum[m], a, b);
  }
}
