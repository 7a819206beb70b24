// Switching between fibers: save the callee-saved registers on one stack, load them from another.
#pragma once

#ifndef __x86_64__
#error "the emulated CUDA driver switches stacks in x86-64 assembly; other processors are not supported"
#endif

// Saves the running fiber's stack pointer in *save and goes on with the fiber whose saved pointer is `load`.
extern "C" void alpha_switch_stack(void** save, void* load) __attribute__((visibility("hidden")));

asm(R"(
.text
.p2align 4
.globl alpha_switch_stack
.hidden alpha_switch_stack
.type alpha_switch_stack,@function
alpha_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size alpha_switch_stack, .-alpha_switch_stack
)");

namespace alpha_emulation {

constexpr int kSavedRegisters = 6;

// Prepares an empty stack so that switching to the returned pointer calls `entry`, which must not return.
inline void* prepare_stack(char* top, void (*entry)()) {
  void** slot = reinterpret_cast<void**>(top);
  *--slot = nullptr;  // the return address of `entry`, which debuggers take for the end of the stack
  *--slot = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kSavedRegisters; i++) *--slot = nullptr;
  return slot;
}

}  // namespace alpha_emulation
