// Shared memory of the block: its static objects, its dynamic part, poison at block start, 32-bit addresses.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "common/emulation/fault.h"

namespace alpha_emulation {

// Every place in shared memory has a 32-bit address, congruent to its host address modulo 1024 so that swizzled
// layouts mean the same in both. The first kilobyte is the hardware's own; the dynamic part comes next, 128-byte but
// not 1024-byte aligned as on a GPU with static objects before it; then the static objects of all kernels of the
// library.
constexpr unsigned kSharedWindow = 256 * 1024, kDynamicBase = 1024 + 128, kSharedGuard = 1024;
constexpr unsigned char kPoison = 0xff;  // NaN as a float, -1 as an integer

inline char* static_shared = nullptr;  // the library's thread-local storage
inline unsigned static_shared_bytes = 0, static_shared_base = 0;
inline char* dynamic_shared = nullptr;
inline unsigned dynamic_shared_bytes = 0;

// Lays out the shared memory of a launch's blocks.
void set_shared_memory(unsigned dynamic_bytes);

void poison_shared_memory();

// Whether the poison before and after the dynamic shared memory is as it was.
bool shared_guards_intact();

#ifdef __SANITIZE_ADDRESS__
// Static objects lie anywhere in the library then: their shared address is bit 31 and the distance from this.
inline char* library_anchor() {
  return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(&set_shared_memory) / 1024 * 1024);
}
#endif

// The host address of `bytes` bytes at a shared address; a fault when they are not all shared memory of the block.
inline char* shared_pointer(uint32_t address, unsigned bytes, const char* what) {
  if (address - kDynamicBase <= dynamic_shared_bytes && bytes <= dynamic_shared_bytes - (address - kDynamicBase))
    return dynamic_shared + (address - kDynamicBase);
  if (address - static_shared_base <= static_shared_bytes &&
      bytes <= static_shared_bytes - (address - static_shared_base))
    return static_shared + (address - static_shared_base);
#ifdef __SANITIZE_ADDRESS__
  if (address >> 31) return library_anchor() + static_cast<int32_t>(address << 1) / 2;
#endif
  fault("%s: %u bytes at shared address %u are outside the block's shared memory (%u static at %u, %u dynamic at %u)",
        what, bytes, address, static_shared_bytes, static_shared_base, dynamic_shared_bytes, kDynamicBase);
}

}  // namespace alpha_emulation

#define ALPHA_DYNAMIC_SHARED(type, name) type* const name = reinterpret_cast<type*>(alpha_emulation::dynamic_shared)

inline uint32_t shared_address(const void* place) {
  using namespace alpha_emulation;
  const char* p = static_cast<const char*>(place);
  if (size_t(p - dynamic_shared) <= dynamic_shared_bytes) return kDynamicBase + uint32_t(p - dynamic_shared);
  if (size_t(p - static_shared) < static_shared_bytes) return static_shared_base + uint32_t(p - static_shared);
#ifdef __SANITIZE_ADDRESS__
  return 1u << 31 | uint32_t(p - library_anchor());
#endif
  fault("%p is not in shared memory", place);
}
inline size_t __cvta_generic_to_shared(const void* place) { return shared_address(place); }
