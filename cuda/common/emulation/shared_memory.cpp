#include "common/emulation/shared_memory.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>

extern "C" void* __tls_get_addr(size_t* module_and_offset);

namespace alpha_emulation {

// The thread-local storage of the object that holds `inside`, of the calling thread.
struct StaticShared {
  uintptr_t inside;
  size_t bytes, module;
};

static int find_static_shared(dl_phdr_info* object, size_t, void* data) {
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

static void locate_static_shared() {
  StaticShared found = {reinterpret_cast<uintptr_t>(&find_static_shared), 0, 0};
  dl_iterate_phdr(find_static_shared, &found);
  if (!found.bytes) return;
  size_t module_and_offset[2] = {found.module, 0};
  static_shared = static_cast<char*>(__tls_get_addr(module_and_offset));
  static_shared_bytes = found.bytes;
  static_shared_base =
      (kDynamicBase + dynamic_shared_bytes + 1023) / 1024 * 1024 + reinterpret_cast<uintptr_t>(static_shared) % 1024;
}

void set_shared_memory(unsigned dynamic_bytes) {
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

void poison_shared_memory() {
  if (static_shared_bytes) memset(static_shared, kPoison, static_shared_bytes);
  const unsigned guard = kAddressSanitizer ? 0 : kSharedGuard;
  memset(dynamic_shared - guard, kPoison, dynamic_shared_bytes + 2 * guard);
}

bool shared_guards_intact() {
  if (kAddressSanitizer) return true;  // it has stopped the write
  for (unsigned i = 0; i < kSharedGuard; i++)
    if (static_cast<unsigned char>(dynamic_shared[-1 - int(i)]) != kPoison ||
        static_cast<unsigned char>(dynamic_shared[dynamic_shared_bytes + i]) != kPoison)
      return false;
  return true;
}

}  // namespace alpha_emulation
