#include "common/emulation/barrier.h"

#include <stdio.h>
#include <string.h>

namespace alpha_emulation {

static AtBlockStart reset_barriers([] {
  for (BlockBarrier& barrier : barriers) barrier = BlockBarrier();
});

static const char* file_name(const char* path) {
  const char* slash = path ? strrchr(path, '/') : nullptr;
  return slash ? slash + 1 : path ? path : "?";
}

static bool wait_alike(const Thread& one, const Thread& other) {
  return waits[one.linear] == waits[other.linear] && one.location.line == other.location.line &&
         one.wait_argument == other.wait_argument && one.wait_parity == other.wait_parity;
}

// Adds a part of the report: how many threads wait in the same way as `first`, from it on, and where.
static void describe_waiting(const Thread& first) {
  unsigned alike = 0;
  for (unsigned i = 0; i < thread_count; i++) alike += wait_alike(threads[i], first);
  append_fault("; %u thread%s (first (%u, %u, %u)) ", alike, alike == 1 ? "" : "s", first.index.x, first.index.y,
               first.index.z);
  const char* verb = alike == 1 ? "waits" : "wait";
  const char* file = file_name(first.location.file);
  switch (waits[first.linear]) {
    case Wait::block_barrier:
      append_fault("%s at __syncthreads, %s:%d", verb, file, first.location.line);
      break;
    case Wait::named_barrier:
      append_fault("%s at named barrier %u where %u of %u threads have arrived, %s:%d", verb, first.wait_argument,
                   barriers[first.wait_argument].arrived, barriers[first.wait_argument].expected, file,
                   first.location.line);
      break;
    case Wait::warp:
      append_fault("%s at %s for other lanes of the warp, %s:%d", verb,
                   warps[first.linear / kWarpSize].lanes[first.linear % kWarpSize].operation->name, file,
                   first.location.line);
      break;
    case Wait::warpgroup:
      append_fault("%s at wgmma_wait for others of the warpgroup, %s:%d", verb, file, first.location.line);
      break;
    case Wait::mbarrier:
      append_fault("%s for the mbarrier at shared address %u, parity %u, %s:%d", verb, first.wait_argument,
                   first.wait_parity, file, first.location.line);
      if (describe_mbarrier) describe_mbarrier(first.wait_argument);
      break;
    default:
      append_fault("%s exited", alike == 1 ? "has" : "have");
  }
}

// Appends every kind of waiting once, at most eight.
static void describe_all_waiting() {
  unsigned described = 0;
  for (unsigned i = 0; i < thread_count && described < 8; i++) {
    if (waits[i] == Wait::none || waits[i] == Wait::not_started) continue;
    bool seen = false;
    for (unsigned j = 0; j < i && !seen; j++) seen = wait_alike(threads[j], threads[i]);
    if (!seen) describe_waiting(threads[i]), described++;
  }
}

[[noreturn]] static void report_block(const char* what) {
  snprintf(fault_text, sizeof fault_text, "%s in block (%u, %u, %u)", what, block_index.x, block_index.y,
           block_index.z);
  describe_all_waiting();
  abandon_launch();
}

void report_deadlock() {
  bool at_barrier = false, elsewhere = false;
  for (unsigned i = 0; i < thread_count; i++) (waits[i] == Wait::block_barrier ? at_barrier : elsewhere) = true;
  report_block(at_barrier && elsewhere ? "divergent __syncthreads" : "deadlock");
}

void thread_exited() {
  note_wait(Wait::exited, 0, 0, {});
  live_threads--;
  lane_exited(current_warp(), current_lane());
}

void sync_block(int predicate, Location location) {
  BlockBarrier& barrier = barriers[0];
  note_wait(Wait::block_barrier, 0, 0, location);
  if (barrier.arrived == 0) barrier.line = location.line;
  barrier.several_lines |= barrier.line != location.line;
  barrier.count += predicate != 0;
  barrier.all &= predicate != 0;
  barrier.any |= predicate != 0;
  if (++barrier.arrived == thread_count) {
    if (barrier.several_lines) report_block("divergent __syncthreads");
    barrier_count = barrier.count, barrier_all = barrier.all, barrier_any = barrier.any;
    barrier = BlockBarrier();
    release_where([](const Thread&) { return true; });
  }
  wait_for_release();
}

void sync_named(unsigned id, unsigned count, bool wait, Location location) {
  if (id == 0 || id >= kBarriers) fault("named barrier %u: they are 1 to %u, 0 is __syncthreads", id, kBarriers - 1);
  if (count == 0 || count % kWarpSize || count > thread_count)
    fault("named barrier %u for %u threads of a block of %u: not a multiple of 32 or too many", id, count,
          thread_count);
  BlockBarrier& barrier = barriers[id];
  if (barrier.arrived && barrier.expected != count)
    fault("named barrier %u for %u threads, but others wait there for %u", id, count, barrier.expected);
  barrier.expected = count;
  if (wait) note_wait(Wait::named_barrier, id, 0, location);
  if (++barrier.arrived == count) {
    barrier.arrived = 0;
    release_where([=](const Thread& thread) {
      return waits[thread.linear] == Wait::named_barrier && thread.wait_argument == id;
    });
  }
  if (wait) wait_for_release();
}

}  // namespace alpha_emulation
