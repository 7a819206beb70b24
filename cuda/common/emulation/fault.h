// A fault ends the launch: its text is kept, every fiber is abandoned, and the launch returns the text.
#pragma once
#include "common/emulation/thread.h"

namespace alpha_emulation {

inline char fault_text[2048];
// Of the memory access that the processor refused: its address, and its instruction's place in the library.
inline uint64_t fault_address = 0, fault_instruction = 0;
inline bool faulted = false;
inline const char* activity = nullptr;  // what the emulator does on a thread's behalf just now, e.g. "cp.async"
inline void* launch_stack_pointer = nullptr;

void append_fault(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Switches back to the launch; the fibers are given up as they are.
[[noreturn]] void abandon_launch();
// Ends the launch with a fault of the current thread.
[[noreturn]] void fault(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace alpha_emulation
