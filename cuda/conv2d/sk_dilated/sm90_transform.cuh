// The transform warps: they convert X from the floats that TMA has loaded to fp16 terms, in place (sk_dilated/sm90.cu).
#pragma once
#include "common/fp16_terms.cuh"
#include "conv2d/sk_dilated/sm90_tile.cuh"

// Converts 4 of 8 rows of 64 channels. One or two terms of 64 fp16 take the place of two boxes of 32 floats. A thread converts 8
// channels of a row. Its floats are at the shared addresses `from` and `from ^ 16`, its fp16 terms go to `to`.
__device__ __forceinline__ void convert_rows(unsigned char* base, uint32_t from, uint32_t to, float scale) {
  const float4 u = *reinterpret_cast<const float4*>(base + from),
               v = *reinterpret_cast<const float4*>(base + (from ^ 16));
  uint32_t hi[4], lo[4];
  to_terms<TERMS>(u.x * scale, u.y * scale, hi[0], lo[0]);
  to_terms<TERMS>(u.z * scale, u.w * scale, hi[1], lo[1]);
  to_terms<TERMS>(v.x * scale, v.y * scale, hi[2], lo[2]);
  to_terms<TERMS>(v.z * scale, v.w * scale, hi[3], lo[3]);
  __syncwarp();  // all lanes have read
  *reinterpret_cast<uint4*>(base + to) = make_uint4(hi[0], hi[1], hi[2], hi[3]);
  if (TERMS == 2) *reinterpret_cast<uint4*>(base + to + TERM_BYTES) = make_uint4(lo[0], lo[1], lo[2], lo[3]);
}

// Converts a transform warp's share of each step's X, 8 rows at a time. Eight neighbouring threads work on rows r and r ^ 5: with
// the swizzle, neither their reads of every second 16 bytes nor their writes of half a row have bank conflicts.
__device__ __forceinline__ void convert(int transform_warp, unsigned char* base, int steps, const Tiles& tiles,
                                        const Converted& converted, float scale) {
  const int lane = threadIdx.x & 31, vector = lane & 3, box = lane >> 3 & 1, row = (lane >> 4) ^ (lane >> 2 & 1) * 5;
  const uint32_t from = box * TERM_BYTES + row * 128 + (((2 * vector) ^ row) << 4);
  const uint32_t to = row * 128 + (((4 * box + vector) ^ row) << 4);
  Tiles::Place place;
  for (int i = 0; i < steps; i++, place.advance()) {
    const uint32_t x = tiles.consumer_wait(place) + A_BYTES;
#pragma unroll 1
    for (uint32_t rows = x + transform_warp * 1024; rows < x + TERM_BYTES; rows += TRANSFORM_WARPS * 1024) {
      convert_rows(base, rows + from, rows + to, scale);
      convert_rows(base, (rows + from) ^ 0x120, (rows + to) ^ 0x120, scale);  // row ^ 2
    }
    fence_proxy_async();
    __syncwarp();
    if (lane == 0) mbarrier_arrive(converted.barrier(place.stage()));
  }
}
