// A fault ends the launch: its text is kept, every fiber is abandoned, and the launch returns the text.
#pragma once
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/emulation/stack_switch.h"
#include "common/emulation/thread.h"

namespace alpha_emulation {

inline char fault_text[2048];
// Of the memory access that the processor refused: its address, and its instruction's place in the library.
inline uint64_t fault_address = 0, fault_instruction = 0;
inline bool faulted = false;
inline const char* activity = nullptr;  // what the emulator does on a thread's behalf just now, e.g. "cp.async"
inline void* launch_stack_pointer = nullptr;

inline void append_fault(const char* format, ...) __attribute__((format(printf, 1, 2)));
inline void append_fault(const char* format, ...) {
  size_t used = strlen(fault_text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(fault_text + used, sizeof fault_text - used, format, arguments);
  va_end(arguments);
}

[[noreturn]] inline void abandon_launch() {
  faulted = true;
  void* abandoned;
  alpha_switch_stack(&abandoned, launch_stack_pointer);
  __builtin_unreachable();
}

// Ends the launch with a fault of the current thread.
[[noreturn]] inline void fault(const char* format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] inline void fault(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(fault_text, sizeof fault_text, format, arguments);
  va_end(arguments);
  append_fault(", in block (%u, %u, %u) thread (%u, %u, %u)", block_index.x, block_index.y, block_index.z,
               current->index.x, current->index.y, current->index.z);
  if (activity) append_fault(", at %s", activity);
  abandon_launch();
}

}  // namespace alpha_emulation
