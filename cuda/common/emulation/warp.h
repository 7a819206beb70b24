// What the lanes of a warp do together: the last lane to arrive does the whole operation for all of them.
#pragma once
#include <string.h>

#include <type_traits>

#include "common/emulation/fault.h"
#include "common/emulation/scheduler.h"

namespace alpha_emulation {

// The current lane brings its operands; on return the operation has been done for all lanes of `mask`.
void meet_warp(const WarpOperation& operation, unsigned mask, void* operands, Location location);

// A lane that exits may be the one that the others of its warp were waiting for.
void lane_exited(Warp& warp, unsigned lane);

template <class T>
T& operands_of(Warp& warp, unsigned lane) {
  return *static_cast<T*>(warp.lanes[lane].operands);
}

// Tensor core instructions need every lane of the warp.
inline void need_whole_warp(const Warp& warp, unsigned lanes, const char* name) {
  if (lanes != ~0u) fault("%s: only lanes %#x of warp %u are there", name, lanes, warp.index);
}

inline const WarpOperation sync_warp_operation = {"__syncwarp", [](Warp&, unsigned) {}};

struct Vote {
  unsigned predicate, result;
};
inline const WarpOperation vote_operation = {"a vote", [](Warp& warp, unsigned lanes) {
                                               unsigned ballot = 0;
                                               for (unsigned i = 0; i < kWarpSize; i++)
                                                 if (lanes >> i & 1)
                                                   ballot |= (operands_of<Vote>(warp, i).predicate != 0) << i;
                                               for (unsigned i = 0; i < kWarpSize; i++)
                                                 if (lanes >> i & 1) operands_of<Vote>(warp, i).result = ballot;
                                             }};

template <class T>
struct Shuffle {
  T value, result;
  unsigned source;
};
// A lane that does not take part gives no defined value: the reader gets poison.
template <class T>
inline const WarpOperation shuffle_operation = {"a shuffle", [](Warp& warp, unsigned lanes) {
                                                  for (unsigned i = 0; i < kWarpSize; i++) {
                                                    if (!(lanes >> i & 1)) continue;
                                                    Shuffle<T>& reader = operands_of<Shuffle<T>>(warp, i);
                                                    if (lanes >> reader.source & 1)
                                                      reader.result =
                                                          operands_of<Shuffle<T>>(warp, reader.source).value;
                                                    else
                                                      memset(&reader.result, 0xff, sizeof(T));
                                                  }
                                                }};

template <class T>
T shuffle(unsigned mask, T value, unsigned source, Location location) {
  static_assert(std::is_arithmetic_v<T> ? sizeof(T) >= 4 : sizeof(T) <= 4,
                "CUDA shuffles numbers of 4 and 8 bytes, and bfloat16");
  Shuffle<T> operands{value, value, source};
  meet_warp(shuffle_operation<T>, mask, &operands, location);
  return operands.result;
}

inline unsigned ballot(unsigned mask, unsigned predicate, Location location) {
  Vote operands{predicate, 0};
  meet_warp(vote_operation, mask, &operands, location);
  return operands.result;
}

}  // namespace alpha_emulation

// Default arguments that tell a function its caller's file and line, for reports.
#define ALPHA_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncwarp(unsigned mask = ~0u, ALPHA_CALLER) {
  alpha_emulation::meet_warp(alpha_emulation::sync_warp_operation, mask, nullptr, {file, line});
}
inline unsigned __activemask() { return alpha_emulation::current_warp().live; }

inline unsigned __ballot_sync(unsigned mask, int predicate, ALPHA_CALLER) {
  return alpha_emulation::ballot(mask, predicate != 0, {file, line});
}
inline int __any_sync(unsigned mask, int predicate, ALPHA_CALLER) {
  return alpha_emulation::ballot(mask, predicate != 0, {file, line}) != 0;
}
inline int __all_sync(unsigned mask, int predicate, ALPHA_CALLER) {
  return alpha_emulation::ballot(mask, predicate == 0, {file, line}) == 0;
}

// `width` splits the warp into segments; a source outside the segment gives the lane its own value.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, ALPHA_CALLER) {
  const unsigned lane = alpha_emulation::current_lane();
  return alpha_emulation::shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)), {file, line});
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, ALPHA_CALLER) {
  const unsigned lane = alpha_emulation::current_lane(), inside = lane & (width - 1);
  return alpha_emulation::shuffle(mask, value, inside >= delta ? lane - delta : lane, {file, line});
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, ALPHA_CALLER) {
  const unsigned lane = alpha_emulation::current_lane(), inside = lane & (width - 1);
  return alpha_emulation::shuffle(mask, value, inside + delta < unsigned(width) ? lane + delta : lane, {file, line});
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, ALPHA_CALLER) {
  const unsigned lane = alpha_emulation::current_lane(), other = (lane ^ bits) % 32;
  return alpha_emulation::shuffle(mask, value, other / width <= lane / width ? other : lane, {file, line});
}
