// The transform warps: they convert X from the floats that TMA has loaded to terms of 16 bits, in place
// (sk_dilated/sm90.cu).
#pragma once
#include "conv2d/sk_dilated/sm90_tile.cuh"

// The floats of a thread, 8 channels of two of 8 rows of 64 channels. One or two terms of 64 channels take the place of
// two boxes of 32 floats. The floats of the first row are at the shared addresses `from` and `from ^ 16`, its terms go
// to `to`; the second row is the first one ^ 2.
struct Floats {
  static constexpr uint32_t SECOND = 0x120;  // which bits of an address in the swizzled tile row ^ 2 changes
  float4 rows[2][2];

  __device__ __forceinline__ void load(const unsigned char* base, uint32_t from) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      rows[i / 2][i % 2] = *reinterpret_cast<const float4*>(base + (from ^ (i / 2 * SECOND) ^ (i % 2 * 16)));
  }
  __device__ __forceinline__ void store_terms(unsigned char* base, uint32_t to, float scale) const {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const float4 u = rows[i][0], v = rows[i][1];
      uint32_t hi[4], lo[4];
      split(u.x * scale, u.y * scale, hi[0], lo[0]);
      split(u.z * scale, u.w * scale, hi[1], lo[1]);
      split(v.x * scale, v.y * scale, hi[2], lo[2]);
      split(v.z * scale, v.w * scale, hi[3], lo[3]);
      unsigned char* const target = base + (to ^ (i * SECOND));
      *reinterpret_cast<uint4*>(target) = make_uint4(hi[0], hi[1], hi[2], hi[3]);
      if (TERMS == 2) *reinterpret_cast<uint4*>(target + TERM_BYTES) = make_uint4(lo[0], lo[1], lo[2], lo[3]);
    }
  }
};

// Converts a transform warp's share of each step's X, 8 rows at a time. Eight neighbouring threads work on rows r and
// r ^ 5: with the swizzle, neither their reads of every second 16 bytes nor their writes of half a row have bank
// conflicts.
__device__ __forceinline__ void convert(int transform_warp, unsigned char* base, int steps, const Tiles& tiles,
                                        const Converted& converted, float scale) {
  const int lane = threadIdx.x & 31, vector = lane & 3, box = lane >> 3 & 1, row = (lane >> 4) ^ (lane >> 2 & 1) * 5;
  const uint32_t from = box * TERM_BYTES + row * 128 + (((2 * vector) ^ row) << 4);
  const uint32_t to = row * 128 + (((4 * box + vector) ^ row) << 4);
  Tiles::State state;
  for (int i = 0; i < steps; i++, state.advance()) {
    const uint32_t x = tiles.consumer_wait(state) + A_BYTES;
#pragma unroll 1
    for (uint32_t rows = x + transform_warp * 1024; rows < x + TERM_BYTES; rows += TRANSFORM_WARPS * 1024) {
      Floats floats;
      floats.load(base, rows + from);
      __syncwarp();  // all lanes have read
      floats.store_terms(base, rows + to, scale);
    }
    fence_proxy_async();
    __syncwarp();
    if (lane == 0) mbarrier_arrive(converted.barrier(state.stage()));
  }
}
