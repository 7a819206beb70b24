// The operands of direct/forward_sm80.cu: a word holds two neighbouring elements of 16 bits each, in one or two terms.
// Macros: MATH FP16X3 | FP16 (scaled fp16 terms, see common/fp16_terms.cuh) | BF16 (the arrays are bfloat16). Block:
// 128.
#pragma once
#include "common/bfloat16.cuh"
#include "common/fp16_terms.cuh"
#include "common/math_mode.cuh"
#include "common/mma.cuh"
#include "common/quad.cuh"
#include "common/vector.cuh"
#include "conv2d/direct/input_rows.cuh"

constexpr MathMode MATH = ALPHA_MATH;
constexpr bool IS_BF16 = MATH == BF16;
constexpr int TERMS = terms_of(MATH), WARPS = 4, THREADS = 32 * WARPS;
static_assert(IS_BF16 || in_fp16_terms(MATH), "FP16X3, FP16 or BF16");
using Element = ElementOf<IS_BF16>::Type;
using Pair = Pack<uint32_t, TERMS>;             // terms of an element and its right neighbour
using FilterPairs = Pack<uint32_t, 2 * TERMS>;  // terms of a lane's two registers of a b fragment
constexpr int VECTOR = 16 / sizeof(Element);    // channels in 16 bytes

// The channel, of 64, in column g of fragment j. Columns 2t and 2t + 1 of VECTOR / 2 fragments are 16 contiguous bytes.
__device__ __forceinline__ int channel(int j, int g) {
  constexpr int together = VECTOR / 2;
  return j / together * 4 * VECTOR + g / 2 * VECTOR + j % together * 2 + g % 2;
}

__device__ __forceinline__ Pair make_pair(float lower, float upper, float scale) {
  Pair pair;
  to_terms<TERMS>(lower * scale, upper * scale, pair.v[0], pair.v[TERMS - 1]);
  return pair;
}
__device__ __forceinline__ Pair make_pair(uint16_t lower, uint16_t upper, float) {
  return {{uint32_t(lower) | uint32_t(upper) << 16}};
}

// The scale for the largest of all threads' `largest`. It contains a barrier, and the caller needs another one before
// it calls this again.
__device__ __forceinline__ float block_scale(unsigned largest) {
  __shared__ unsigned warps[WARPS];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < WARPS; w++) largest = max(largest, warps[w]);
  return half_scale(largest);
}
__device__ __forceinline__ unsigned magnitude(float x) { return finite_magnitude(x); }
__device__ __forceinline__ unsigned magnitude(uint16_t) { return 0; }  // bfloat16 needs no scale

__device__ __forceinline__ float of_right_lane(float x) { return __shfl_down_sync(0xffffffffu, x, 1); }
__device__ __forceinline__ uint16_t of_right_lane(uint16_t x) {
  return uint16_t(__shfl_down_sync(0xffffffffu, int(x), 1));
}

// The i-th element of 16 bytes, from the word that holds it.
__device__ __forceinline__ Element element_of(uint32_t word, int i) {
  if constexpr (IS_BF16)
    return uint16_t(word >> i % 2 * 16);
  else
    return __uint_as_float(word);
}

template <int N>
__device__ __forceinline__ void multiply(float (&d)[N][4], const uint32_t (&a)[4], const uint32_t (&b)[N][2]) {
  if constexpr (IS_BF16)
    mma_m16n8k16_bf16(d, a, b);
  else
    mma_m16n8k16_f16(d, a, b);
}

// Stores channels of a pixel: all 16 bytes in one store if they are inside and the rows are aligned.
__device__ __forceinline__ void store_vector(Element* offset, const Pack<float, VECTOR>& v, int channels,
                                             bool aligned) {
  Pack<uint32_t, 4> words;
#pragma unroll
  for (int i = 0; i < 4; i++)
    words.v[i] = IS_BF16 ? narrow_pair(v.v[i * 2 % VECTOR], v.v[(i * 2 + 1) % VECTOR]) : __float_as_uint(v.v[i]);
  if (aligned && channels >= VECTOR) {
    store_pack(reinterpret_cast<uint32_t*>(offset), words);
    return;
  }
#pragma unroll
  for (int i = 0; i < VECTOR; i++)
    if (i < channels) offset[i] = element_of(words.v[i * 4 / VECTOR], i);
}
