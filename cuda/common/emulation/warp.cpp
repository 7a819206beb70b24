#include "common/emulation/warp.h"

namespace alpha_emulation {

// Runs the operation at which `lane` waits if every live lane of its mask has arrived; the lanes it has served.
static unsigned complete_warp_operation(Warp& warp, unsigned lane) {
  const unsigned lanes = warp.lanes[lane].mask & warp.live;
  if ((warp.arrived & lanes) != lanes) return 0;
  warp.lanes[lane].operation->run(warp, lanes);
  warp.arrived &= ~lanes;
  return lanes;
}

void meet_warp(const WarpOperation& operation, unsigned mask, void* operands, Location location) {
  Warp& warp = current_warp();
  const unsigned lane = current_lane();
  if (!(mask >> lane & 1)) fault("%s: mask %#x does not name the calling lane %u", operation.name, mask, lane);
  const bool as_before = warp.last_operation == &operation && warp.last_mask == mask;
  if (const unsigned others = as_before ? 0 : warp.arrived & mask) {
    const unsigned other = __builtin_ctz(others);
    const Warp::Lane& met = warp.lanes[other];
    if (met.operation != &operation || met.mask != mask)
      fault("lanes of warp %u meet at different operations: lane %u at %s (mask %#x), lane %u at %s (mask %#x)",
            warp.index, lane, operation.name, mask, other, met.operation->name, met.mask);
  }
  warp.lanes[lane] = {&operation, mask, operands};
  warp.last_operation = &operation, warp.last_mask = mask;
  warp.arrived |= 1u << lane;
  note_wait(Wait::warp, 0, 0, location);
  if (const unsigned lanes = complete_warp_operation(warp, lane)) {
    waits[current->linear] = Wait::none;
    release_lanes(warp.index, lanes & ~(1u << lane));
  } else {
    wait_for_release();
  }
}

void lane_exited(Warp& warp, unsigned lane) {
  warp.live &= ~(1u << lane);
  for (unsigned waiting = warp.arrived; waiting;) {
    const unsigned first = __builtin_ctz(waiting);
    release_lanes(warp.index, complete_warp_operation(warp, first));
    waiting &= ~warp.lanes[first].mask;
  }
}

}  // namespace alpha_emulation
