#include "common/emulation/scheduler.h"

#include <string.h>

#include "common/emulation/stack_switch.h"

namespace alpha_emulation {

// Makes the next released thread current: the lowest lane, or with a seed any.
static void run_released_next() {
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

[[noreturn]] static void fiber_main();

static void* take_fiber() {
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
static void start_next_thread() {
  const unsigned linear = start_order[started++];
  Thread& thread = threads[linear];
  waits[linear] = Wait::none;
  current = &thread;
}

void wait_for_release() {
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

void fiber_main() {
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

bool run_block() {
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

void set_block_shape(dim3 shape) {
  block_shape = shape;
  thread_count = shape.x * shape.y * shape.z;
  for (unsigned i = 0; i < thread_count; i++) {
    threads[i].index = {i % shape.x, i / shape.x % shape.y, i / shape.x / shape.y};
    threads[i].linear = i;
    start_order[i] = i;
  }
}

}  // namespace alpha_emulation
