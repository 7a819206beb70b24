// CUDA C++ for a C++ compiler: each CUDA thread is a fiber, blocks run one after another. See
// docs/debugging_kernels.md.
#pragma once
#include <stdlib.h>
#include <string.h>

#include "common/emulation/qualifiers.h"
#include "common/emulation/vector_types.h"
#include "common/emulation/thread.h"
#include "common/emulation/fault.h"
#include "common/emulation/scheduler.h"
#include "common/emulation/shared_memory.h"
#include "common/emulation/barrier.h"
#include "common/emulation/warp.h"
#include "common/emulation/atomics.h"
#include "common/emulation/intrinsics.h"
#include "common/emulation/bfloat16.h"
#include "common/emulation/launch.h"
