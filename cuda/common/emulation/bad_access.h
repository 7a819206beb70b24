// An access that the processor refuses, while a kernel runs, is a fault of the thread that made it.
#pragma once
#include <signal.h>
#include <ucontext.h>

#include "common/emulation/fault.h"
#include "common/emulation/scheduler.h"

namespace alpha_emulation {

extern "C" const char __ehdr_start __attribute__((visibility("hidden")));  // where the library begins

// Guard pages turn an access outside an allocation into SIGSEGV. The sanitizers report it better by themselves.
#ifdef __SANITIZE_ADDRESS__
struct CatchBadAccess {};
#else
inline void on_bad_access(int, siginfo_t* information, void* context) {
  if (!current) {  // not a kernel's: let the process die of it
    signal(SIGSEGV, SIG_DFL);
    return;
  }
  const auto* registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  fault_instruction = uint64_t(registers[REG_RIP]) - reinterpret_cast<uint64_t>(&__ehdr_start);
  const char* address = static_cast<const char*>(information->si_addr);
  if (information->si_code == SI_KERNEL) fault("misaligned address");  // the processor does not say which
  if (size_t(address - stacks) < kMaxThreads * stack_bytes) fault("the thread's stack overflowed");
  if (size_t(address) < 4096) fault("access through a null pointer");
  fault_address = reinterpret_cast<uint64_t>(address);
  fault("memory access out of bounds");
}

class CatchBadAccess {
 public:
  CatchBadAccess() {
    // Its own stack, so that a fiber that overran its stack is reported too. SA_NODEFER: the handler never returns.
    static char handler_stack[64 * 1024] __attribute__((aligned(64)));
    stack_t alternative = {};
    alternative.ss_sp = handler_stack;
    alternative.ss_size = sizeof handler_stack;
    sigaltstack(&alternative, &previous_stack_);
    struct sigaction action = {};
    action.sa_sigaction = on_bad_access;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous_segv_);
    sigaction(SIGBUS, &action, &previous_bus_);
  }
  ~CatchBadAccess() {
    sigaction(SIGSEGV, &previous_segv_, nullptr);
    sigaction(SIGBUS, &previous_bus_, nullptr);
    sigaltstack(&previous_stack_, nullptr);
  }

 private:
  stack_t previous_stack_;
  struct sigaction previous_segv_, previous_bus_;
};
#endif

}  // namespace alpha_emulation
