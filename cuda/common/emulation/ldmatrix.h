// ldmatrix and stmatrix: the last lane to arrive moves the matrices for all lanes.
#pragma once
#include "common/emulation/shared_memory.h"
#include "common/emulation/warp.h"

namespace alpha_emulation {

struct LdmatrixOperands {
  uint32_t* d;
  const uint16_t* row;
};

template <int count, bool transposed>
void load_for_warp(Warp& warp, unsigned lanes) {
  need_whole_warp(warp, lanes, "ldmatrix");
  for (int m = 0; m < count; m++) {
    const uint16_t* rows[8];
    for (int i = 0; i < 8; i++) rows[i] = operands_of<LdmatrixOperands>(warp, 8 * m + i).row;
    for (int g = 0; g < 8; g++)
      for (int t = 0; t < 4; t++) {
        const uint32_t low = transposed ? rows[2 * t][g] : rows[g][2 * t];
        const uint32_t high = transposed ? rows[2 * t + 1][g] : rows[g][2 * t + 1];
        operands_of<LdmatrixOperands>(warp, 4 * g + t).d[m] = high << 16 | low;
      }
  }
}

template <int count, bool transposed>
inline const WarpOperation ldmatrix_operation = {transposed ? "ldmatrix_trans" : "ldmatrix",
                                                 load_for_warp<count, transposed>};

template <int count, bool transposed>
void load_matrices(uint32_t* d, uint32_t row, Location location) {
  LdmatrixOperands operands{d, nullptr};
  if (current_lane() < 8 * count) {  // the addresses of the other lanes are ignored
    if (row % 16) fault("ldmatrix of a row at shared address %u: not 16-byte aligned", row);
    operands.row = reinterpret_cast<const uint16_t*>(shared_pointer(row, 16, "ldmatrix"));
  }
  meet_warp(ldmatrix_operation<count, transposed>, ~0u, &operands, location);
}

struct StmatrixOperands {
  const uint32_t* v;
  uint16_t* row;
};

template <int count, bool transposed>
void store_for_warp(Warp& warp, unsigned lanes) {
  need_whole_warp(warp, lanes, "stmatrix");
  for (int m = 0; m < count; m++)
    for (int lane = 0; lane < int(kWarpSize); lane++)
      for (int e = 0; e < 2; e++) {
        const int word = lane % 4 * 2 + e, row = transposed ? word : lane / 4, column = transposed ? lane / 4 : word;
        const uint32_t pair = operands_of<StmatrixOperands>(warp, lane).v[m];
        operands_of<StmatrixOperands>(warp, 8 * m + row).row[column] = uint16_t(pair >> 16 * e);
      }
}

template <int count, bool transposed>
inline const WarpOperation stmatrix_operation = {transposed ? "stmatrix_trans" : "stmatrix",
                                                 store_for_warp<count, transposed>};

template <int count, bool transposed>
void store_matrices(const uint32_t* v, uint32_t row, Location location) {
  StmatrixOperands operands{v, nullptr};
  if (current_lane() < 8 * count) {
    if (row % 16) fault("stmatrix of a row at shared address %u: not 16-byte aligned", row);
    operands.row = reinterpret_cast<uint16_t*>(shared_pointer(row, 16, "stmatrix"));
  }
  meet_warp(stmatrix_operation<count, transposed>, ~0u, &operands, location);
}

}  // namespace alpha_emulation
