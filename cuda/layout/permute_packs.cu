// permute.cu for arrays whose addresses and strides are multiples of packs: nothing but packs is read and written.
//
// A thread reads PACK packs along M, transposes them in its registers and writes PACK packs along N. The lanes of a
// warp are 4 x 8 such squares: a tile of 4 PACK x 8 PACK elements. All loads of a thread are in flight at the same
// time. Axis 0 of `axes` counts the tiles along M, axis 1 those along N; the others are the box's other axes.
// Grid: ceil(tiles / 8). Block: 256. No shared memory.
// Needs: both arrays aligned to packs; M, N, both bases and all strides but the two of 1 are multiples of PACK.
// Macros: WORD an unsigned type of the size of an element, up to 8 bytes; PACK elements of 8 or 16 bytes together, at
// most 8; INDEX as in layout/axes.cuh.
#include "common/vector.cuh"
#include "layout/axes.cuh"

using Word = ALPHA_WORD;
using Index = ALPHA_INDEX;
constexpr int THREADS = 256, WARPS = THREADS / 32, PACK = ALPHA_PACK, BYTES = sizeof(Word);
constexpr int LANES_M = 4, LANES_N = 8;
constexpr int WORDS = PACK * BYTES / 4, PARTS = BYTES < 4 ? 1 : BYTES / 4;  // of 4 bytes, of a pack and of an element
using Line = Pack<uint32_t, WORDS>;

// Pack k of the transposed square: element k of each line.
__device__ __forceinline__ Line column_of(const Line (&lines)[PACK], int k) {
  Line column;
#pragma unroll
  for (int w = 0; w < WORDS; w++) {
    if constexpr (BYTES >= 4) {
      column.v[w] = lines[w / PARTS].v[k * PARTS + w % PARTS];
    } else if constexpr (BYTES == 2) {
      column.v[w] = __byte_perm(lines[2 * w].v[k / 2], lines[2 * w + 1].v[k / 2], k % 2 ? 0x7632 : 0x5410);
    } else {
      const unsigned byte = k % 4, both = byte | (4 + byte) << 4;  // this byte of two words
      column.v[w] = __byte_perm(__byte_perm(lines[4 * w].v[k / 4], lines[4 * w + 1].v[k / 4], both),
                                __byte_perm(lines[4 * w + 2].v[k / 4], lines[4 * w + 3].v[k / 4], both), 0x5410);
    }
  }
  return column;
}

// With a number of blocks per SM the compiler does not save registers until it spills.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    permute_packs(Word* __restrict__ Y, const Word* __restrict__ X, long long tiles, long long M, long long N,
                  long long x_step, long long y_step, const Axes axes) {
  const int lane = threadIdx.x % 32;
  Index rest[1] = {Index(blockIdx.x) * WARPS + threadIdx.x / 32};
  if (rest[0] >= Index(tiles)) return;
  const Index m = (take_axis(axes, 0, rest[0]) * LANES_M + lane % LANES_M) * PACK;
  const Index n = (take_axis(axes, 1, rest[0]) * LANES_N + lane / LANES_M) * PACK;
  if (m >= Index(M) || n >= Index(N)) return;
  Offset<Index> x[1], y[1];
  locate<2>(axes, rest, x, y);
  const Word* source = X + (x[0] + Offset<Index>(m) + Offset<Index>(n) * Offset<Index>(x_step));
  Word* target = Y + (y[0] + Offset<Index>(n) + Offset<Index>(m) * Offset<Index>(y_step));
  Line lines[PACK];
#pragma unroll
  for (int k = 0; k < PACK; k++) lines[k] = *reinterpret_cast<const Line*>(source + k * x_step);
#pragma unroll
  for (int k = 0; k < PACK; k++) *reinterpret_cast<Line*>(target + k * y_step) = column_of(lines, k);
}
