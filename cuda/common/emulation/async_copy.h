// cp.async: a copy happens as late as it may, at the wait for its group, so a missing wait leaves poison or old data.
// With a seed each copy may as well happen at once, so that writing where others still read is seen too.
#pragma once
#include <stdlib.h>
#include <string.h>

#include "common/emulation/scheduler.h"
#include "common/emulation/shared_memory.h"
#include "common/emulation/thread.h"

namespace alpha_emulation {

struct Copy {
  char* target;
  const char* source;
  uint8_t bytes, valid_bytes;
  unsigned group;
};

// The copies a thread has started and not finished, oldest first.
struct CopyQueue {
  Copy* copies;
  unsigned first, end, capacity;
  unsigned groups;  // committed so far
};
inline CopyQueue copy_queues[kMaxThreads];

inline void perform(const Copy& copy) {
  activity = "cp.async";
  if (copy.valid_bytes == 16) {  // nearly all: let the compiler see the size
    memcpy(copy.target, copy.source, 16);
  } else {
    if (copy.valid_bytes) memcpy(copy.target, copy.source, copy.valid_bytes);  // else the source may be null
    memset(copy.target + copy.valid_bytes, 0, copy.bytes - copy.valid_bytes);
  }
  activity = nullptr;
}

inline void start_copy(uint32_t target, const void* source, int bytes, int valid_bytes) {
  if (valid_bytes < 0 || valid_bytes > bytes) fault("cp.async of %d bytes, %d of them valid", bytes, valid_bytes);
  if (target % bytes || (valid_bytes && reinterpret_cast<uintptr_t>(source) % bytes))
    fault("cp.async of %d bytes from %p to shared address %u: not aligned", bytes, source, target);
  CopyQueue& queue = copy_queues[current->linear];
  const Copy copy = {shared_pointer(target, bytes, "cp.async"), static_cast<const char*>(source), uint8_t(bytes),
                     uint8_t(valid_bytes), queue.groups};
  if (shuffled() && random_number() % 2) return perform(copy);
  if (queue.end == queue.capacity) {
    queue.capacity = queue.capacity ? 2 * queue.capacity : 32;
    queue.copies = static_cast<Copy*>(realloc(queue.copies, queue.capacity * sizeof(Copy)));
  }
  queue.copies[queue.end++] = copy;
}

inline void commit_copies() { copy_queues[current->linear].groups++; }

inline void finish_copies(unsigned pending) {
  CopyQueue& queue = copy_queues[current->linear];
  while (queue.first < queue.end && queue.copies[queue.first].group + pending < queue.groups)
    perform(queue.copies[queue.first++]);
  if (queue.first == queue.end) {
    queue.first = queue.end = 0;
  } else if (queue.first * 2 > queue.capacity) {
    memmove(queue.copies, queue.copies + queue.first, (queue.end - queue.first) * sizeof(Copy));
    queue.end -= queue.first, queue.first = 0;
  }
}

// Copies that nobody waited for are lost with their block.
inline void drop_copies() {
  for (unsigned i = 0; i < thread_count; i++) copy_queues[i].first = copy_queues[i].end = copy_queues[i].groups = 0;
}
inline AtBlockStart drop_copies_at_block_start(drop_copies);

}  // namespace alpha_emulation
