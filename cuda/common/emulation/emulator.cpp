// The emulator behind its headers: compiled once, and linked into the library of each kernel. One unit, so that the
// compiler can inline a switch of threads into the barrier that makes it.
#include "common/emulation/cuda.h"

#include "common/emulation/barrier.cpp"
#include "common/emulation/fault.cpp"
#include "common/emulation/launch.cpp"
#include "common/emulation/scheduler.cpp"
#include "common/emulation/shared_memory.cpp"
#include "common/emulation/warp.cpp"
