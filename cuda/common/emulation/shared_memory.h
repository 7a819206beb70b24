// Shared memory of the block: its static objects, its dynamic part, poison at block start, 32-bit addresses.
#pragma once
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/emulation/fault.h"

namespace alpha_emulation {

// Every place in shared memory has a 32-bit address, congruent to its host address modulo 1024 so that swizzled
// layouts mean the same in both. The first kilobyte is the hardware's own; the dynamic part comes next, 128-byte but not
// 1024-byte aligned as on a GPU with static objects before it; then the static objects of all kernels of the library.
constexpr unsigned kSharedWindow = 256 * 1024, kDynamicBase = 1024 + 128, kSharedGuard = 1024;
constexpr unsigned char kPoison = 0xff;  // NaN as a float, -1 as an integer

inline char* static_shared = nullptr;  // the library's thread-local storage
inline unsigned static_shared_bytes = 0, static_shared_base = 0;
inline char* dynamic_shared = nullptr;
inline unsigned dynamic_shared_bytes = 0;

// The thread-local storage of the object that holds `inside`, of the calling thread.
struct StaticShared {
  uintptr_t inside;
  size_t bytes, module;
};
inline int find_static_shared(dl_phdr_info* object, size_t, void* data) {
  StaticShared& found = *static_cast<StaticShared*>(data);
  bool ours = false;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const auto& header = object->dlpi_phdr[i];
    ours |= header.p_type == PT_LOAD && found.inside - (object->dlpi_addr + header.p_vaddr) < header.p_memsz;
  }
  if (!ours) return 0;
  for (int i = 0; i < object->dlpi_phnum; i++)
    if (object->dlpi_phdr[i].p_type == PT_TLS) {
      found.bytes = object->dlpi_phdr[i].p_memsz;
      found.module = object->dlpi_tls_modid;
    }
  return 1;
}

extern "C" void* __tls_get_addr(size_t* module_and_offset);

inline void locate_static_shared() {
  StaticShared found = {reinterpret_cast<uintptr_t>(&find_static_shared), 0, 0};
  dl_iterate_phdr(find_static_shared, &found);
  if (!found.bytes) return;
  size_t module_and_offset[2] = {found.module, 0};
  static_shared = static_cast<char*>(__tls_get_addr(module_and_offset));
  static_shared_bytes = found.bytes;
  static_shared_base =
      (kDynamicBase + dynamic_shared_bytes + 1023) / 1024 * 1024 + reinterpret_cast<uintptr_t>(static_shared) % 1024;
}

// Lays out the shared memory of a launch's blocks.
inline void set_shared_memory(unsigned dynamic_bytes) {
  static char* window = nullptr;
  if (!window) window = static_cast<char*>(aligned_alloc(1024, kSharedWindow + 2 * kSharedGuard)) + kSharedGuard;
  dynamic_shared = window + kDynamicBase % 1024;
  dynamic_shared_bytes = dynamic_bytes;
  locate_static_shared();
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(window - kSharedGuard, kSharedWindow + 2 * kSharedGuard);
  __asan_unpoison_memory_region(dynamic_shared, dynamic_bytes);
#endif
}

inline void poison_shared_memory() {
  if (static_shared_bytes) memset(static_shared, kPoison, static_shared_bytes);
  const unsigned guard = kAddressSanitizer ? 0 : kSharedGuard;
  memset(dynamic_shared - guard, kPoison, dynamic_shared_bytes + 2 * guard);
}

// Whether the poison before and after the dynamic shared memory is as it was.
inline bool shared_guards_intact() {
  if (kAddressSanitizer) return true;  // it has stopped the write
  for (unsigned i = 0; i < kSharedGuard; i++)
    if (static_cast<unsigned char>(dynamic_shared[-1 - int(i)]) != kPoison ||
        static_cast<unsigned char>(dynamic_shared[dynamic_shared_bytes + i]) != kPoison)
      return false;
  return true;
}

#ifdef __SANITIZE_ADDRESS__
// Static objects lie anywhere in the library then: their shared address is bit 31 and the distance from this.
inline char* library_anchor() {
  return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(&find_static_shared) / 1024 * 1024);
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
