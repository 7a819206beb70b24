// Launching a kernel from Python: the entry points of a kernel library. Included behind the kernel's own source.
#pragma once
#include <stdint.h>

#include <utility>

namespace alpha_emulation {

// Bytes around an allocation that only a write out of bounds changes from the poison.
struct GuardZone {
  uint64_t address, bytes;
};

// One launch, filled in by driver_emulated.py (same fields, same order).
struct LaunchRequest {
  uint32_t grid[3], block[3];
  uint32_t shared_bytes, seed;
  uint32_t block_order;  // 0: ascending, 1: descending, else the seed of a permutation; independent of `seed`
  uint32_t argument_count, argument_bytes, zone_count;
  const char* arguments;
  const uint32_t* offsets;
  const GuardZone* zones;
  char* stacks;
  uint64_t stack_bytes;
  // Out: where the processor refused an access, or the first guard byte that was written; and the instruction.
  uint64_t fault_address, fault_instruction;
};

inline const LaunchRequest* request = nullptr;

// What the emulator knows of a kernel: one thread of it, with the arguments of `request`; the sizes of its parameters.
struct KernelEntry {
  void (*run_thread)();
  unsigned most_threads;
  uint32_t parameter_count;
  const uint32_t *sizes, *alignments;
};

// Reads the parameters of `kernel` from the packed arguments and calls it.
template <class Kernel>
struct Entry;
template <class... Parameters>
struct Entry<void (*)(Parameters...)> {
  static constexpr uint32_t sizes[] = {uint32_t(sizeof(Parameters))..., 0};
  static constexpr uint32_t alignments[] = {uint32_t(alignof(Parameters))..., 1};

  template <void (*kernel)(Parameters...)>
  static void call() {
    call_with<kernel>(std::index_sequence_for<Parameters...>());
  }
  template <void (*kernel)(Parameters...), size_t... i>
  static void call_with(std::index_sequence<i...>) {
    const char* data = request->arguments;
    const uint32_t* offsets = request->offsets;
    (void)data, (void)offsets;
    kernel(*reinterpret_cast<const Parameters*>(data + offsets[i])...);
  }
  template <void (*kernel)(Parameters...)>
  static KernelEntry of(unsigned most_threads) {
    return {call<kernel>, most_threads, sizeof...(Parameters), sizes, alignments};
  }
};

// Runs one launch; the text of its fault, or null.
const char* launch(LaunchRequest& asked, const KernelEntry& kernel);

}  // namespace alpha_emulation

// Exports `alpha_launch_<name>` for the kernel `name`, whose blocks have at most `most_threads`.
#define ALPHA_EMULATED_ENTRY(name, most_threads)                                       \
  extern "C" __attribute__((visibility("default"))) const char* alpha_launch_##name(   \
      alpha_emulation::LaunchRequest* request) {                                       \
    using Entry = alpha_emulation::Entry<decltype(&name)>;                             \
    return alpha_emulation::launch(*request, Entry::template of<&name>(most_threads)); \
  }
