// Philox4x32-10 (Salmon et al., SC 2011), word for word that of alpha/core/rng.py.
#pragma once
#include "common/cuda.h"

// One draw: the seed and the number of the stream.
struct Stream {
  unsigned long long key, number;
};

// The four words of block `index` of a stream.
__device__ __forceinline__ uint4 philox(const Stream& stream, unsigned long long index) {
  const unsigned long long number = stream.number;
  uint4 c = make_uint4(uint32_t(index), uint32_t(index >> 32), uint32_t(number), uint32_t(number >> 32));
  uint32_t k0 = uint32_t(stream.key), k1 = uint32_t(stream.key >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const uint32_t high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
    c = make_uint4(high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0);
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return c;
}
