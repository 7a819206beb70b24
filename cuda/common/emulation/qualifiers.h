// CUDA's keywords as the C++ compiler is to read them.
#pragma once

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))

// Blocks run one after another, so one static object is one object per block. Thread-local storage is used for nothing
// else in a kernel's library: that is how the poison finds every shared variable, those of templates included.
// AddressSanitizer sets no red zones around thread-local objects, so its builds do without that poison.
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define __shared__ static
namespace alpha_emulation {
constexpr bool kAddressSanitizer = true;
}
#else
#define __shared__ static thread_local
namespace alpha_emulation {
constexpr bool kAddressSanitizer = false;
}
#endif
