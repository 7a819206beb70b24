// A value that changes from step to step, such as a learning rate: as an argument, and in device memory.
#pragma once
#include "common/cuda.h"

// `replayed` if it is not null, else `given`. In a captured step the argument is fixed, so the value lies in device
// memory, where it is written before each replay.
template <class T>
__device__ __forceinline__ T step_value(const T& given, const T* __restrict__ replayed) {
  return replayed ? *replayed : given;
}
