// Rows of channels with zeros behind them, or without their last channels, for kernels that take whole packs of
// channels.
//
// X (rows, XC) -> Y (.., YC): Y[r, c] = X[r, c] if X has that element, else 0. A thread writes VECTOR neighbours.
// Grid: ceil(packs / 256), with packs of VECTOR elements of Y. Block: 256. No shared memory.
// Needs YC % VECTOR == 0. Macros: WORD an unsigned type of an element's 2 or 4 bytes; VECTOR, whose bytes are at most
// 16; INDEX an unsigned type that counts the elements of X and Y.
#include "common/vector.cuh"

using Word = ALPHA_WORD;
using Index = ALPHA_INDEX;
constexpr int VECTOR = ALPHA_VECTOR;

extern "C" __global__ void __launch_bounds__(256)
    resize_rows(Word* __restrict__ Y, const Word* __restrict__ X, long long packs, long long rows, int XC, int YC) {
  const Index pack = Index(blockIdx.x) * 256 + threadIdx.x;
  if (pack >= Index(packs)) return;
  const unsigned across = YC / VECTOR;
  const Index row = pack / across;
  const int c = int(pack - row * across) * VECTOR, left = row < Index(rows) ? XC - c : 0;
  const Word* source = X + row * XC + c;
  Pack<Word, VECTOR> result;
#pragma unroll
  for (int i = 0; i < VECTOR; i++) result.v[i] = i < left ? source[i] : 0;
  store_pack<VECTOR>(Y + pack * VECTOR, result);
}
