// Tensor maps of the emulated driver, and the copy of a box through one.
#pragma once
#include "common/emulation/mbarrier.h"

namespace alpha_emulation {

constexpr uint64_t kTensorMapMark = 0x70616d2d6168706c;

// The 128 bytes that alpha/runtime/cuda/emulated/emulated_tensor_map.py packs; index 0 is the innermost dimension.
struct TensorMapFields {
  uint64_t mark, address;
  uint64_t size[5];
  uint64_t stride[4];  // bytes, of dimensions 1 to 4
  uint32_t box[5];
  uint8_t rank, element_bytes, swizzle, unused;  // swizzle: 0, 32, 64 or 128 bytes
};
static_assert(sizeof(TensorMapFields) == 112, "leaves 16 of the 128 bytes");

// Where the byte at an unswizzled shared address lies: vectors of 16 bytes change places within 128, 64 or 32 bytes.
inline uint32_t swizzled(uint32_t address, unsigned swizzle) {
  const uint32_t pieces = swizzle ? swizzle / 16 - 1 : 0;
  return address ^ (address >> 7 & pieces) << 4;
}

// Copies one innermost row of a box, zeros where it is outside the tensor.
inline void load_row(const TensorMapFields& map, uint32_t target, const char* source, int first, bool inside) {
  const uint32_t bytes = map.box[0] * map.element_bytes;
  char row[16 * 256];
  memset(row, 0, bytes);
  const int64_t begin = first < 0 ? -int64_t(first) : 0;
  const int64_t end = int64_t(map.size[0]) - first < map.box[0] ? int64_t(map.size[0]) - first : map.box[0];
  if (inside && begin < end)
    memcpy(row + begin * map.element_bytes, source + (first + begin) * map.element_bytes,
           (end - begin) * map.element_bytes);
  for (uint32_t i = 0; i < bytes; i += 16)
    memcpy(shared_pointer(swizzled(target + i, map.swizzle), 16, "tma_load"), row + i, 16);
}

inline void perform_box(const BulkCopy& copy) {
  activity = "tma_load";
  const TensorMapFields& map = *static_cast<const TensorMapFields*>(copy.map);
  uint32_t target = copy.target, rows = 1;
  for (int d = 1; d < map.rank; d++) rows *= map.box[d];
  for (uint32_t r = 0; r < rows; r++, target += map.box[0] * map.element_bytes) {
    uint32_t rest = r;
    bool inside = true;
    const char* source = reinterpret_cast<const char*>(map.address);
    for (int d = 1; d < map.rank; d++) {
      const int64_t place = copy.coordinates[d] + int64_t(rest % map.box[d]);
      rest /= map.box[d];
      inside &= place >= 0 && uint64_t(place) < map.size[d];
      source += place * int64_t(map.stride[d - 1]);
    }
    load_row(map, target, source, copy.coordinates[0], inside);
  }
  activity = nullptr;
}

inline void load_box(uint32_t target, const void* map_address, uint32_t barrier, const int (&coordinates)[5],
                     unsigned rank) {
  const auto& map = *static_cast<const TensorMapFields*>(map_address);
  if (reinterpret_cast<uintptr_t>(map_address) % 64) fault("tma_load: the tensor map is not 64-byte aligned");
  if (map.mark != kTensorMapMark) fault("tma_load: no tensor map at %p", map_address);
  if (map.rank != rank) fault("tma_load: %u coordinates for a tensor of %u dimensions", rank, map.rank);
  if (coordinates[0] * int(map.element_bytes) % 16)  // an illegal instruction on a GPU
    fault("tma_load at x = %d: %d bytes are not a multiple of 16", coordinates[0],
          coordinates[0] * int(map.element_bytes));
  if (target % 128) fault("tma_load to shared address %u: not 128-byte aligned", target);
  unsigned bytes = map.element_bytes;
  for (unsigned d = 0; d < rank; d++) bytes *= map.box[d];
  shared_pointer(target, bytes, "tma_load");
  BulkCopy copy = {nullptr, perform_box, target, {}, map_address};
  memcpy(copy.coordinates, coordinates, sizeof coordinates);
  start_bulk_copy(copy, barrier, bytes);
}

}  // namespace alpha_emulation
