// mma.sync: the last lane to arrive multiplies the whole tile out of all lanes' registers.
#pragma once
#include "common/emulation/half.h"
#include "common/emulation/warp.h"

namespace alpha_emulation {

typedef float Row __attribute__((vector_size(32)));                   // 8 columns of the 16 x 8 tile
typedef float Fragment __attribute__((vector_size(16), aligned(4)));  // what one lane has of the tile

// Of one lane: `columns` products of one a fragment with b fragments side by side.
struct MmaOperands {
  float (*d)[4];
  const uint32_t* a;
  const uint32_t (*b)[2];
  int columns;
};

inline float tf32_value(uint32_t bits) { return bits_as<float>(bits & 0xffffe000u); }
inline float bf16_value(uint32_t bits) { return bits_as<float>(bits << 16); }
inline float f16_value(uint32_t bits) { return half_value(uint16_t(bits)); }

template <int depth>
void add_product(Warp& warp, const float (&a)[16][depth], const Row (&b)[depth], int column) {
  for (int g = 0; g < 8; g++) {
    Row upper = {}, lower = {};
    for (int k = 0; k < depth; k++) upper += a[g][k] * b[k], lower += a[g + 8][k] * b[k];
    for (int t = 0; t < 4; t++)
      *reinterpret_cast<Fragment*>(operands_of<MmaOperands>(warp, 4 * g + t).d[column]) +=
          Fragment{upper[2 * t], upper[2 * t + 1], lower[2 * t], lower[2 * t + 1]};
  }
}

inline const WarpOperation mma_tf32_operation = {
    "mma_m16n8k8_tf32", [](Warp& warp, unsigned lanes) {
      need_whole_warp(warp, lanes, "mma_m16n8k8_tf32");
      float a[16][8];
      for (int g = 0; g < 8; g++)
        for (int t = 0; t < 4; t++) {
          const uint32_t* from = operands_of<MmaOperands>(warp, 4 * g + t).a;
          a[g][t] = tf32_value(from[0]), a[g + 8][t] = tf32_value(from[1]);
          a[g][t + 4] = tf32_value(from[2]), a[g + 8][t + 4] = tf32_value(from[3]);
        }
      for (int column = 0; column < operands_of<MmaOperands>(warp, 0).columns; column++) {
        Row b[8];
        for (int g = 0; g < 8; g++)
          for (int t = 0; t < 4; t++) {
            const uint32_t* from = operands_of<MmaOperands>(warp, 4 * g + t).b[column];
            b[t][g] = tf32_value(from[0]), b[t + 4][g] = tf32_value(from[1]);
          }
        add_product(warp, a, b, column);
      }
    }};

// A register holds two neighbours of K, the first in its lower half.
template <float (*value)(uint32_t)>
void multiply_16_bit(Warp& warp) {
  float a[16][16];
  for (int g = 0; g < 8; g++)
    for (int k = 0; k < 8; k++) {
      const uint32_t* from = operands_of<MmaOperands>(warp, 4 * g + k / 2).a;
      const int shift = k % 2 * 16;
      a[g][k] = value(from[0] >> shift), a[g + 8][k] = value(from[1] >> shift);
      a[g][k + 8] = value(from[2] >> shift), a[g + 8][k + 8] = value(from[3] >> shift);
    }
  for (int column = 0; column < operands_of<MmaOperands>(warp, 0).columns; column++) {
    Row b[16];
    for (int g = 0; g < 8; g++)
      for (int k = 0; k < 8; k++) {
        const uint32_t* from = operands_of<MmaOperands>(warp, 4 * g + k / 2).b[column];
        const int shift = k % 2 * 16;
        b[k][g] = value(from[0] >> shift), b[k + 8][g] = value(from[1] >> shift);
      }
    add_product(warp, a, b, column);
  }
}

inline const WarpOperation mma_bf16_operation = {"mma_m16n8k16_bf16", [](Warp& warp, unsigned lanes) {
                                                   need_whole_warp(warp, lanes, "mma_m16n8k16_bf16");
                                                   multiply_16_bit<bf16_value>(warp);
                                                 }};

inline const WarpOperation mma_f16_operation = {"mma_m16n8k16_f16", [](Warp& warp, unsigned lanes) {
                                                  need_whole_warp(warp, lanes, "mma_m16n8k16_f16");
                                                  multiply_16_bit<f16_value>(warp);
                                                }};

inline void multiply(const WarpOperation& operation, float (*d)[4], const uint32_t* a, const uint32_t (*b)[2],
                     int columns, Location location) {
  MmaOperands operands{d, a, b, columns};
  meet_warp(operation, ~0u, &operands, location);
}

}  // namespace alpha_emulation
