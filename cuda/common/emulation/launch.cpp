#include "common/emulation/launch.h"

#include <string.h>

#include "common/emulation/bad_access.h"
#include "common/emulation/fault.h"
#include "common/emulation/scheduler.h"
#include "common/emulation/shared_memory.h"

namespace alpha_emulation {

// Whether the packed arguments lie where the parameters do; leaves the reason in fault_text when not.
static bool arguments_fit(const KernelEntry& kernel) {
  const uint32_t count = kernel.parameter_count;
  if (request->argument_count != count) {
    append_fault("takes %u arguments, given %u", count, request->argument_count);
    return false;
  }
  uint32_t offset = 0;
  for (uint32_t i = 0; i < count; i++) {
    offset = (offset + kernel.alignments[i] - 1) / kernel.alignments[i] * kernel.alignments[i];
    if (request->offsets[i] != offset) {
      append_fault(
          "parameter %u of %u bytes lies at byte %u, its argument was packed at byte %u: an argument before "
          "it has another size than its parameter",
          i, kernel.sizes[i], offset, request->offsets[i]);
      return false;
    }
    offset += kernel.sizes[i];
  }
  if (count && request->argument_bytes != offset) {
    append_fault("parameter %u of %u bytes ends at byte %u, the packed arguments have %u bytes", count - 1,
                 kernel.sizes[count - 1], offset, request->argument_bytes);
    return false;
  }
  return true;
}

static void check_guards(LaunchRequest& asked) {
  if (kAddressSanitizer) return;  // it has stopped the write
  for (uint32_t z = 0; z < asked.zone_count; z++) {
    const auto* zone = reinterpret_cast<const unsigned char*>(asked.zones[z].address);
    const uint64_t bytes = asked.zones[z].bytes;
    if (bytes == 0 || (zone[0] == kPoison && memcmp(zone, zone + 1, bytes - 1) == 0)) continue;
    while (*zone == kPoison) zone++;
    asked.fault_address = reinterpret_cast<uint64_t>(zone);
    append_fault("write out of bounds");
    return;
  }
}

// The numbers 0 .. count - 1 in the order that LaunchRequest::block_order names: each `step` after the one before.
struct BlockOrder {
  uint64_t count, step, next;

  BlockOrder(uint32_t order, uint64_t count) : count(count), step(1), next(0) {
    if (count == 1 || order == 0) return;
    if (order == 1) {
      step = next = count - 1;
      return;
    }
    uint64_t state = order;
    next = random(state) % count;
    do step = random(state) % count;
    while (common_factor(count, step) != 1);  // else the steps would not reach every block
  }
  uint64_t take() {
    const uint64_t block = next;
    next = (next + step) % count;
    return block;
  }

  // SplitMix64 (Steele, Lea, Flood 2014); not the generator that the order of threads draws from.
  static uint64_t random(uint64_t& state) {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  static uint64_t common_factor(uint64_t a, uint64_t b) { return b ? common_factor(b, a % b) : a; }
};

static void run_blocks() {
  CatchBadAccess catch_bad_access;
  (void)catch_bad_access;
  const uint64_t count = uint64_t(grid_shape.x) * grid_shape.y * grid_shape.z;
  BlockOrder order(request->block_order, count);
  for (uint64_t i = 0; i < count; i++) {
    const uint64_t block = order.take();
    block_index = {unsigned(block % grid_shape.x), unsigned(block / grid_shape.x % grid_shape.y),
                   unsigned(block / grid_shape.x / grid_shape.y)};
    poison_shared_memory();
    AtBlockStart::run_all();
    if (!run_block()) return;
    AtBlockEnd::run_all();
    if (fault_text[0]) return;
    if (!shared_guards_intact()) {
      append_fault("write outside the %u bytes of dynamic shared memory, in block (%u, %u, %u)", dynamic_shared_bytes,
                   block_index.x, block_index.y, block_index.z);
      return;
    }
  }
}

const char* launch(LaunchRequest& asked, const KernelEntry& kernel) {
  request = &asked;
  thread_body = kernel.run_thread;
  stacks = asked.stacks, stack_bytes = asked.stack_bytes;
  idle_count = fibers_made = 0;  // another library's fibers may have used the stacks since
  fault_text[0] = 0, fault_address = fault_instruction = 0, faulted = false, activity = nullptr;
  const unsigned threads = asked.block[0] * asked.block[1] * asked.block[2];
  if (threads > kernel.most_threads) {
    append_fault("a block of %u threads; __launch_bounds__ allows %u", threads, kernel.most_threads);
  } else if (arguments_fit(kernel)) {
    random_state = asked.seed;
    grid_shape = dim3(asked.grid[0], asked.grid[1], asked.grid[2]);
    set_block_shape(dim3(asked.block[0], asked.block[1], asked.block[2]));
    set_shared_memory(asked.shared_bytes);
    run_blocks();
    asked.fault_address = fault_address, asked.fault_instruction = fault_instruction;
    if (!fault_text[0]) check_guards(asked);
  }
  current = nullptr;
  return fault_text[0] ? fault_text : nullptr;
}

}  // namespace alpha_emulation
