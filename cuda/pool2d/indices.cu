// J[n, oh, ow, c] = ih IW + iw of the pixel that tap I[n, oh, ow, c] of a maximum is.
//
// Grid: ceil(size / 256). Block: 256. No shared memory.
// Macros: TAP uint8_t | int.
#include "common/cuda.h"

using Tap = ALPHA_TAP;
constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    max_pool2d_indices(long long* __restrict__ J, const Tap* __restrict__ I, long long size, int IH, int IW, int C,
                       int OH, int OW, int FW, int SH, int SW, int PH, int PW, int DH, int DW, int adaptive) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= size) return;
  const long long ow = i / C % OW, oh = i / C / OW % OH;
  long long top = oh * SH - PH, left = ow * SW - PW, width = FW;
  if (adaptive) {
    top = oh * IH / OH, left = ow * IW / OW;
    width = ((ow + 1) * IW + OW - 1) / OW - left;
  }
  J[i] = (top + I[i] / width * DH) * IW + left + I[i] % width * DW;
}
