// mbarrier: arrivals and announced bytes. The copies announced to a phase are done as late as they may, when somebody
// needs the phase to be over, so who reads without waiting finds poison or old data. With a seed a copy may as well
// happen at once; the phase ends then all the same. A block must not end before its copies: its shared memory, which
// they still write to, may be another block's by then.
#pragma once
#include "common/emulation/barrier.h"
#include "common/emulation/scheduler.h"
#include "common/emulation/shared_memory.h"

namespace alpha_emulation {

constexpr unsigned kMaxMbarriers = 256, kMaxBulkCopies = 1024;
constexpr uint32_t kMbarrierMark =
    0x6d626172;  // in the upper half of the word in shared memory, the index in the lower

struct Mbarrier {
  uint32_t address;
  unsigned count, pending;  // arrivals of a phase, and those still missing
  int64_t missing_bytes;    // announced, and no copy under way brings them
  unsigned phase, copies;   // copies under way
};
inline Mbarrier mbarriers[kMaxMbarriers];
inline unsigned mbarrier_count = 0;

// A copy under way, of a kind that only `perform` knows; see tensor_map.h.
struct BulkCopy {
  Mbarrier* barrier;  // null: an unused entry
  void (*perform)(const BulkCopy& copy);
  uint32_t target;
  int coordinates[5];
  const void* map;
};
inline BulkCopy bulk_copies[kMaxBulkCopies];
inline unsigned bulk_copy_end = 0;

inline AtBlockStart forget_mbarriers([] { mbarrier_count = bulk_copy_end = 0; });
inline AtBlockEnd no_copies_are_left([] {
  unsigned left = 0;
  for (unsigned i = 0; i < bulk_copy_end; i++) left += bulk_copies[i].barrier != nullptr;
  if (left == 0) return;
  append_fault("block (%u, %u, %u) ends while %u asynchronous copies to its shared memory are under way", block_index.x,
               block_index.y, block_index.z, left);
});

inline Mbarrier& find_mbarrier(uint32_t address, const char* what) {
  uint64_t word;
  memcpy(&word, shared_pointer(address, 8, what), 8);
  const uint32_t index = uint32_t(word);
  if (word >> 32 != kMbarrierMark || index >= mbarrier_count || mbarriers[index].address != address)
    fault("%s: no initialised mbarrier at shared address %u", what, address);
  return mbarriers[index];
}

inline bool phase_can_end(const Mbarrier& barrier) { return barrier.pending == 0 && barrier.missing_bytes == 0; }

inline void end_phase(Mbarrier& barrier) {
  for (unsigned i = 0; barrier.copies && i < bulk_copy_end; i++)
    if (bulk_copies[i].barrier == &barrier) {
      bulk_copies[i].perform(bulk_copies[i]);
      bulk_copies[i].barrier = nullptr;
      barrier.copies--;
    }
  while (bulk_copy_end && !bulk_copies[bulk_copy_end - 1].barrier) bulk_copy_end--;
  const unsigned parity = barrier.phase++ & 1;
  barrier.pending = barrier.count;
  release_where([&](const Thread& thread) {
    return waits[thread.linear] == Wait::mbarrier && thread.wait_argument == barrier.address &&
           thread.wait_parity == parity;
  });
}

// A phase without copies ends with its last arrival; one with copies may go on until somebody waits for its end.
inline void settle(Mbarrier& barrier) {
  if (!phase_can_end(barrier)) return;
  bool wanted = barrier.copies == 0;
  for (unsigned i = 0; i < thread_count && !wanted; i++)
    wanted = waits[i] == Wait::mbarrier && threads[i].wait_argument == barrier.address;
  if (wanted) end_phase(barrier);
}

inline void init_mbarrier(uint32_t address, unsigned count) {
  if (address % 8) fault("mbarrier_init at shared address %u: not 8-byte aligned", address);
  if (count == 0 || mbarrier_count == kMaxMbarriers)
    fault("mbarrier_init: %u arrivals, barrier %u of at most %u", count, mbarrier_count, kMaxMbarriers);
  const uint64_t word = uint64_t(kMbarrierMark) << 32 | mbarrier_count;
  memcpy(shared_pointer(address, 8, "mbarrier_init"), &word, 8);
  Mbarrier& barrier = mbarriers[mbarrier_count++];
  barrier = {};
  barrier.address = address;
  barrier.count = barrier.pending = count;
}

inline void arrive_mbarrier(uint32_t address, unsigned bytes) {
  Mbarrier& barrier = find_mbarrier(address, "mbarrier_arrive");
  if (phase_can_end(barrier)) end_phase(barrier);
  if (barrier.pending == 0) fault("mbarrier_arrive: more than %u arrivals in a phase", barrier.count);
  barrier.missing_bytes += bytes;
  barrier.pending--;
  settle(barrier);
}

inline void wait_mbarrier(uint32_t address, unsigned parity, Location location) {
  Mbarrier& barrier = find_mbarrier(address, "mbarrier_wait");
  if (phase_can_end(barrier)) end_phase(barrier);
  if ((barrier.phase & 1) != (parity & 1)) return;
  note_wait(Wait::mbarrier, address, parity & 1, location);
  wait_for_release();
}

// Puts a copy of `bytes` under way that counts for the barrier's phase.
inline void start_bulk_copy(BulkCopy copy, uint32_t barrier_address, unsigned bytes) {
  Mbarrier& barrier = find_mbarrier(barrier_address, "an asynchronous copy");
  if (phase_can_end(barrier)) end_phase(barrier);
  barrier.missing_bytes -= bytes;
  if (shuffled() && random_number() % 2) {
    copy.perform(copy);
  } else {
    if (bulk_copy_end == kMaxBulkCopies) fault("more than %u asynchronous copies under way", kMaxBulkCopies);
    copy.barrier = &barrier;
    bulk_copies[bulk_copy_end++] = copy;
    barrier.copies++;
  }
  settle(barrier);
}

inline void describe_mbarrier_at(unsigned address) {
  for (unsigned i = 0; i < mbarrier_count; i++)
    if (mbarriers[i].address == address)
      append_fault(" (phase %u lacks %u of %u arrivals and %lld bytes)", mbarriers[i].phase, mbarriers[i].pending,
                   mbarriers[i].count, static_cast<long long>(mbarriers[i].missing_bytes));
}
inline const bool mbarriers_are_described = (describe_mbarrier = describe_mbarrier_at, true);

}  // namespace alpha_emulation
