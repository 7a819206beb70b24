#include "common/emulation/fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/emulation/stack_switch.h"

namespace alpha_emulation {

void append_fault(const char* format, ...) {
  size_t used = strlen(fault_text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(fault_text + used, sizeof fault_text - used, format, arguments);
  va_end(arguments);
}

void abandon_launch() {
  faulted = true;
  void* abandoned;
  alpha_switch_stack(&abandoned, launch_stack_pointer);
  __builtin_unreachable();
}

void fault(const char* format, ...) {
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
