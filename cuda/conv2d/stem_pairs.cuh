// What the first layer's forward kernel multiplies: neighbouring numbers as a word of 16-bit parts in one or two planes.
// Macros: BF16 0 | 1 (the arrays are bfloat16), PLANES 1 | 2 (of scaled halves, see common/half_pair.cuh). Block: 128.
#pragma once
#include "common/bfloat16.cuh"
#include "common/half_pair.cuh"
#include "common/mma.cuh"
#include "common/quad.cuh"
#include "common/vector.cuh"
#include "conv2d/stem_band.cuh"

constexpr bool BF16 = ALPHA_BF16;
constexpr int PLANES = ALPHA_PLANES, WARPS = 4, THREADS = 32 * WARPS;
static_assert(!BF16 || PLANES == 1, "a bfloat16 is one plane");
using Element = StemElement<BF16>::Type;
using Pair = Pack<uint32_t, PLANES>;             // planes of a number and its right neighbour
using FilterPairs = Pack<uint32_t, 2 * PLANES>;  // of a lane's two registers of a b fragment
constexpr int PIECE = 16 / sizeof(Element);      // channels of 16 bytes

// Of the 64, the channel of column g of fragment j: columns 2t and 2t + 1 of PIECE / 2 fragments are a piece.
__device__ __forceinline__ int channel(int j, int g) {
  constexpr int together = PIECE / 2;
  return j / together * 4 * PIECE + g / 2 * PIECE + j % together * 2 + g % 2;
}

__device__ __forceinline__ Pair make_pair(float lower, float upper, float scale) {
  Pair pair;
  to_planes<PLANES>(lower * scale, upper * scale, pair.v[0], pair.v[PLANES - 1]);
  return pair;
}
__device__ __forceinline__ Pair make_pair(uint16_t lower, uint16_t upper, float) {
  return {{uint32_t(lower) | uint32_t(upper) << 16}};
}

// Meets at a barrier; the caller meets at another before it calls again.
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
__device__ __forceinline__ unsigned magnitude(uint16_t) { return 0; }  // needs no scale

__device__ __forceinline__ float of_right_lane(float x) { return __shfl_down_sync(0xffffffffu, x, 1); }
__device__ __forceinline__ uint16_t of_right_lane(uint16_t x) {
  return uint16_t(__shfl_down_sync(0xffffffffu, int(x), 1));
}

// The i-th element of a piece, in the word that holds it.
__device__ __forceinline__ Element element_of(uint32_t word, int i) {
  if constexpr (BF16)
    return uint16_t(word >> i % 2 * 16);
  else
    return __uint_as_float(word);
}

template <int N>
__device__ __forceinline__ void multiply(float (&d)[N][4], const uint32_t (&a)[4], const uint32_t (&b)[N][2]) {
  if constexpr (BF16)
    mma_m16n8k16_bf16(d, a, b);
  else
    mma_m16n8k16_f16(d, a, b);
}

// Channels of a pixel: all of the piece in one store where they are there and the rows aligned.
__device__ __forceinline__ void store_piece(Element* place, const Pack<float, PIECE>& v, int channels, bool aligned) {
  Pack<uint32_t, 4> words;
#pragma unroll
  for (int i = 0; i < 4; i++)
    words.v[i] = BF16 ? narrow_pair(v.v[i * 2 % PIECE], v.v[(i * 2 + 1) % PIECE]) : __float_as_uint(v.v[i]);
  if (aligned && channels >= PIECE) {
    store_pack(reinterpret_cast<uint32_t*>(place), words);
    return;
  }
#pragma unroll
  for (int i = 0; i < PIECE; i++)
    if (i < channels) place[i] = element_of(words.v[i * 4 / PIECE], i);
}
