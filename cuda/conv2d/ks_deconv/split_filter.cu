// KS-deconv, stage 1 (Algorithm 2): filters split by residue, rotated, and transposed so that OC is contiguous.
//
// W (OC, FH, FW, IC) -> C: for each residue (y, x) its split filter (CH, CW, IC, OC), one after the other. Its tap
// (ch, cw) is fh = y + (CH - 1 - ch) sh, fw = x + (CW - 1 - cw) sw. Stride 1 is the case of one residue: rotation by
// 180 degrees. With NDIM 3 the depth is split in the same way.
// Grid: (ceil(IC / 32), ceil(OC / 32), FD FH FW). Block: (32, 8). Shared memory: a 32 x 33 tile.
// Macros: TYPE (float, or unsigned short for bfloat16), NDIM 2 | 3.
#include "conv2d/shape.cuh"

extern "C" __global__ void __launch_bounds__(256)
    split_filter(ALPHA_TYPE* __restrict__ C, const ALPHA_TYPE* __restrict__ W, ShapeOf<ALPHA_NDIM>::Type s) {
  __shared__ ALPHA_TYPE tile[32][33];
  const auto [row, fw] = divide(blockIdx.z, s.FW);
  const auto [fd, fh] = ALPHA_NDIM == 3 ? divide(row, s.FH) : Division{0, row};
  const int tap = split_tap(fd, fh, fw, s), taps = gridDim.z;
  const int ic = blockIdx.x * 32 + threadIdx.x;
#pragma unroll
  for (int i = 0; i < 32; i += 8) {
    const int r = i + threadIdx.y, oc = blockIdx.y * 32 + r;
    if (ic < s.IC && oc < s.OC) tile[r][threadIdx.x] = W[((long)oc * taps + blockIdx.z) * s.IC + ic];
  }
  __syncthreads();
  const int oc = blockIdx.y * 32 + threadIdx.x;
#pragma unroll
  for (int i = 0; i < 32; i += 8) {
    const int r = i + threadIdx.y, row = blockIdx.x * 32 + r;
    if (row < s.IC && oc < s.OC) C[((long)tap * s.IC + row) * s.OC + oc] = tile[threadIdx.x][r];
  }
}
