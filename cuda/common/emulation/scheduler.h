// Which thread of the block runs next. A thread runs until it waits; it then hands over to a thread that was released
// or, when there is none, to one that has not started. A thread that never waits leaves its stack to the next one, so
// a kernel without barriers is a plain loop.
#pragma once
#include <string.h>

#include "common/emulation/fault.h"
#include "common/emulation/stack_switch.h"
#include "common/emulation/thread.h"

namespace alpha_emulation {

inline void (*thread_body)() = nullptr;  // the kernel with its arguments

// A function that each block begins with; headers that keep state of their own register theirs.
class AtBlockStart {
 public:
  explicit AtBlockStart(void (*reset)()) : reset_(reset), next_(first_) { first_ = this; }
  static void run_all() {
    for (AtBlockStart* hook = first_; hook; hook = hook->next_) hook->reset_();
  }

 private:
  void (*reset_)();
  AtBlockStart* next_;
  static inline AtBlockStart* first_ = nullptr;
};

// Threads that may go on, by warp; a stack, so that those released last run first.
struct ReleasedLanes {
  unsigned warp, lanes;
};
inline ReleasedLanes released[kMaxThreads];
inline unsigned released_count = 0;
inline unsigned start_order[kMaxThreads], started = 0;

// The driver's kMaxThreads stacks, for one launch at a time; each begins with a page that nobody may touch.
inline char* stacks = nullptr;
inline size_t stack_bytes = 0;

// Fibers that ran their thread to the end and wait for another one; and stacks that no fiber has yet.
inline void* idle_fibers[kMaxThreads];
inline unsigned idle_count = 0, fibers_made = 0;

[[noreturn]] void report_deadlock();
void thread_exited();

inline void release_lanes(unsigned warp, unsigned lanes) {
  if (!lanes) return;
  for (unsigned lane = 0; lane < kWarpSize; lane++)
    waits[warp * kWarpSize + lane] = lanes >> lane & 1 ? Wait::none : waits[warp * kWarpSize + lane];
  released[released_count++] = {warp, lanes};
}

// Makes the next released thread current: the lowest lane, or with a seed any.
inline void run_released_next() {
  ReleasedLanes& next = released[released_count - 1];
  unsigned lane = __builtin_ctz(next.lanes);
  if (shuffled()) {
    const unsigned first = random_number() % kWarpSize;
    const unsigned above = next.lanes >> first << first;
    if (above) lane = __builtin_ctz(above);
  }
  current = &threads[next.warp * kWarpSize + lane];
  next.lanes &= ~(1u << lane);
  if (!next.lanes) released_count--;
}

[[noreturn]] inline void fiber_main();

inline void* take_fiber() {
  if (idle_count) return idle_fibers[--idle_count];
  // Neighbouring stacks begin a cache line apart within their pages, else their tops would meet in one set.
  constexpr size_t kColours = 64, kColourStep = 64;
  const unsigned i = fibers_made++;
  char* stack = stacks + i * stack_bytes;
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(stack, stack_bytes);
#endif
  return prepare_stack(stack + stack_bytes - 64 - (i % kColours) * kColourStep, fiber_main);
}

// The next thread of the block to start, made current; its index follows from its linear number.
inline void start_next_thread() {
  const unsigned linear = start_order[started++];
  Thread& thread = threads[linear];
  waits[linear] = Wait::none;
  current = &thread;
}

// Notes what the current thread waits for.
inline void note_wait(Wait wait, unsigned argument, unsigned parity, Location location) {
  waits[current->linear] = wait;
  current->wait_argument = argument;
  current->wait_parity = parity;
  current->location = location;
}

// The current thread has noted what it waits for: run others until it is released.
inline void wait_for_release() {
  Thread* self = current;
  if (released_count) {
    run_released_next();
    if (current != self) alpha_switch_stack(&self->stack_pointer, current->stack_pointer);
  } else if (started < thread_count) {
    start_next_thread();
    alpha_switch_stack(&self->stack_pointer, take_fiber());
  } else {
    report_deadlock();
  }
}

[[noreturn]] inline void fiber_main() {
  for (;;) {
    thread_body();
    thread_exited();
    if (released_count) {
      run_released_next();
      alpha_switch_stack(&idle_fibers[idle_count++], current->stack_pointer);
    } else if (started < thread_count) {
      start_next_thread();
    } else if (live_threads) {
      report_deadlock();
    } else {
      current = nullptr;
      alpha_switch_stack(&idle_fibers[idle_count++], launch_stack_pointer);
    }
  }
}

// Runs every thread of the block at `block_index`; false when one of them faulted.
inline bool run_block() {
  live_threads = thread_count;
  released_count = started = 0;
  for (unsigned first = 0; first < thread_count; first += kWarpSize) {
    Warp& warp = warps[first / kWarpSize];
    const unsigned lanes = thread_count - first < kWarpSize ? thread_count - first : kWarpSize;
    warp.index = first / kWarpSize;
    warp.live = lanes == kWarpSize ? ~0u : (1u << lanes) - 1;
    warp.arrived = 0;
    warp.last_operation = nullptr;
  }
  memset(waits, int(Wait::not_started), thread_count);
  if (shuffled())
    for (unsigned i = thread_count - 1; i > 0; i--) {
      const unsigned j = random_number() % (i + 1), swapped = start_order[i];
      start_order[i] = start_order[j];
      start_order[j] = swapped;
    }
  start_next_thread();
  alpha_switch_stack(&launch_stack_pointer, take_fiber());
  return !faulted;
}

// Sets the shape of the block; thread 0 is (0, 0, 0) and x runs fastest.
inline void set_block_shape(dim3 shape) {
  block_shape = shape;
  thread_count = shape.x * shape.y * shape.z;
  for (unsigned i = 0; i < thread_count; i++) {
    threads[i].index = {i % shape.x, i / shape.x % shape.y, i / shape.x / shape.y};
    threads[i].linear = i;
    start_order[i] = i;
  }
}

}  // namespace alpha_emulation
