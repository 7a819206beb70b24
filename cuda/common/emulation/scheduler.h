// Which thread of the block runs next. A thread runs until it waits; it then hands over to a thread that was released
// or, when there is none, to one that has not started. A thread that never waits leaves its stack to the next one, so
// a kernel without barriers is a plain loop.
#pragma once
#include <stddef.h>

#include "common/emulation/fault.h"
#include "common/emulation/thread.h"

namespace alpha_emulation {

inline void (*thread_body)() = nullptr;  // the kernel with its arguments

// A function that runs before or after each block; headers that keep state of their own register theirs.
enum class Moment { start, end };
template <Moment moment>
class BlockHook {
 public:
  explicit BlockHook(void (*run)()) : run_(run), next_(first_) { first_ = this; }
  static void run_all() {
    for (BlockHook* hook = first_; hook; hook = hook->next_) hook->run_();
  }

 private:
  void (*run_)();
  BlockHook* next_;
  static inline BlockHook* first_ = nullptr;
};
using AtBlockStart = BlockHook<Moment::start>;
using AtBlockEnd = BlockHook<Moment::end>;  // of a block whose threads have all ended; it may call append_fault

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

// Notes what the current thread waits for.
inline void note_wait(Wait wait, unsigned argument, unsigned parity, Location location) {
  waits[current->linear] = wait;
  current->wait_argument = argument;
  current->wait_parity = parity;
  current->location = location;
}

// The current thread has noted what it waits for: run others until it is released.
void wait_for_release();

// Runs every thread of the block at `block_index`; false when one of them faulted.
bool run_block();

// Sets the shape of the block; thread 0 is (0, 0, 0) and x runs fastest.
void set_block_shape(dim3 shape);

}  // namespace alpha_emulation
