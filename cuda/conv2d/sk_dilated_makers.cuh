// The warps that make half-precision planes of X in place, where TMA has put floats (sk_dilated_wgmma.cu).
#pragma once
#include "common/half_pair.cuh"
#include "conv2d/sk_dilated_tile.cuh"

// 4 of 8 rows, 64 channels: where two boxes of 32 floats lay, two planes of 64 halves (or one) will lie. A thread takes 8
// channels of a row, by shared addresses: `from` and `from ^ 16` its floats, `to` its halves.
__device__ __forceinline__ void make_planes(unsigned char* base, uint32_t from, uint32_t to, float scale) {
  const float4 u = *reinterpret_cast<const float4*>(base + from),
               v = *reinterpret_cast<const float4*>(base + (from ^ 16));
  uint32_t hi[4], lo[4];
  to_planes<PLANES>(u.x * scale, u.y * scale, hi[0], lo[0]);
  to_planes<PLANES>(u.z * scale, u.w * scale, hi[1], lo[1]);
  to_planes<PLANES>(v.x * scale, v.y * scale, hi[2], lo[2]);
  to_planes<PLANES>(v.z * scale, v.w * scale, hi[3], lo[3]);
  __syncwarp();  // all have read
  *reinterpret_cast<uint4*>(base + to) = make_uint4(hi[0], hi[1], hi[2], hi[3]);
  if (PLANES == 2) *reinterpret_cast<uint4*>(base + to + PLANE) = make_uint4(lo[0], lo[1], lo[2], lo[3]);
}

// A maker warp's share of each step's X, 8 rows at a time. Eight neighbouring threads are in rows r and r ^ 5, so that the
// swizzle keeps their reads of every other piece, and their writes of half a row, off each other's banks.
__device__ __forceinline__ void make(int maker, unsigned char* base, int steps, const Tiles& tiles, const Made& made,
                                     float scale) {
  const int lane = threadIdx.x & 31, piece = lane & 3, box = lane >> 3 & 1, row = (lane >> 4) ^ (lane >> 2 & 1) * 5;
  const uint32_t from = box * PLANE + row * 128 + (((2 * piece) ^ row) << 4);
  const uint32_t to = row * 128 + (((4 * box + piece) ^ row) << 4);
  for (int i = 0; i < steps; i++) {
    const uint32_t x = tiles.wait(i) + A_BYTES;
#pragma unroll 1
    for (uint32_t rows = x + maker * 1024; rows < x + PLANE; rows += MAKERS * 1024) {
      make_planes(base, rows + from, rows + to, scale);
      make_planes(base, (rows + from) ^ 0x120, (rows + to) ^ 0x120, scale);  // row ^ 2
    }
    fence_proxy_async();
    __syncwarp();
    if (lane == 0) mbarrier_arrive(made.at(i));
  }
}
