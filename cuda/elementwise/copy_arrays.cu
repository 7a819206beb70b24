// target[i] = (TO) source[i], for many arrays at once.
//
// Grid: one block per row of the table, a chunk of one array. Block: 256. No shared memory.
// Macros: FROM, TO element types.
#include "common/cuda.h"
#include "common/vector.cuh"

using From = ALPHA_FROM;
using To = ALPHA_TO;
constexpr int THREADS = 256;

struct Row {
  To* target;
  const From* source;
  long long start, length;
};

extern "C" __global__ void __launch_bounds__(THREADS) copy_arrays(const Row* __restrict__ table) {
  const Row row = table[blockIdx.x];
  To* target = row.target + row.start;
  const From* __restrict__ source = row.source + row.start;
  const int length = row.length;
#pragma unroll 8
  for (int i = threadIdx.x; i < length; i += THREADS) {
    const Pack<Number<From>, 1> x = load_pack<1>(source + i);
    store_pack(target + i, Pack<Number<To>, 1>{Number<To>(x.v[0])});
  }
}
