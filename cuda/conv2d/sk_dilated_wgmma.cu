// Sk-dilated-V2 on Hopper: filter gradient (Algorithm 3B), one tap (fh, fw) and one segment of GK a block.
//
// dW[oc, fh, fw, ic] = sum over the outputs (oh, ow) whose tap meets the input, over n of
//                      dY[n, oh, ow, oc] X[n, oh sh + fh - ph, ow sw + fw - pw, ic]
// A step is 64 of K: PW neighbouring outputs of one row x 64 / PW images. dY is fetched in unit steps as floats, turned and
// split into half-precision planes in registers; X is fetched in leaping steps (a map for each phase of sw) as planes made
// by pixel_planes.cu, MN-major. Columns beyond the map are zeros of the copy engine. Precision: position_wgmma.cuh.
// Grid: (ceil(IC / BN), ceil(OC / 128), FH FW GZ): GZ segments, each to its own partial dW (summed by sum_parts).
// Block and macros: half_gemm.cuh, PW 1 | 2 | 4 | 8 | 16 | 32. Shared memory: 1024 + STAGES (4 64 128 + BN / 64 PLANES 64 128)
// bytes. Needs sm_90a, OC % 4 == 0, IC % 8 == 0.
#include "conv2d/half_gemm.cuh"
#include "conv2d/shape.cuh"

constexpr int IMAGES = BK / PW;
constexpr int BOX = BK * 128, A_BYTES = BM / 32 * BOX, PLANE = BK * 128, BLOCK = PLANES * PLANE;  // bytes
constexpr int STAGE = A_BYTES + BN / 64 * BLOCK;

// The A fragment of 16 of K: rows are output channels, so K runs down the rows of the tile. A thread takes
// (channel g or g + 8, k = 2t, 2t + 1, 2t + 8, 2t + 9); the swizzle keeps these reads off each other's banks.
__device__ __forceinline__ void load_turned(const unsigned char* box, int channel, int k0, float scale, uint32_t (&hi)[4],
                                            uint32_t (&lo)[4]) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  auto at = [&](int c, int k) {
    return *reinterpret_cast<const float*>(box + k * 128 + (((c >> 2) ^ (k & 7)) << 4) + (c & 3) * 4) * scale;
  };
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const int c = channel + g + e % 2 * 8, k = k0 + 2 * t + e / 2 * 8;
    to_planes(at(c, k), at(c, k + 1), hi[e], lo[e]);
  }
}

// The steps of a block: `count` from `first` on, of all (row, group of PW columns, chunk of images) of its tap.
struct Steps {
  int first, count, chunks, columns;
  Range oh, ow;

  __device__ __forceinline__ Steps(const ConvShape& s, int fh, int fw, int z, int GZ)
      : oh(valid_outputs(fh, s.OH, s.IH, s.sh, s.ph)), ow(valid_outputs(fw, s.OW, s.IW, s.sw, s.pw)) {
    columns = (ow.size() + PW - 1) / PW, chunks = (s.N + IMAGES - 1) / IMAGES;
    const int total = oh.size() * columns * chunks;
    first = (int)((long)total * z / GZ), count = (int)((long)total * (z + 1) / GZ) - first;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sk_dilated_wgmma(float* __restrict__ part, const TensorMap* __restrict__ X, const TensorMap* __restrict__ dY,
                     const unsigned* __restrict__ absmax, ConvShape s, int GZ) {
  ALPHA_DYNAMIC_SHARED(unsigned char, smem);
  __shared__ __align__(8) uint64_t barriers[2 * STAGES];
  const Ring<STAGE> ring(smem, barriers);
  const int taps = s.FH * s.FW, tap = blockIdx.z % taps, z = blockIdx.z / taps, ic0 = blockIdx.x * BN, oc0 = blockIdx.y * BM;
  const int fh = tap / s.FW, fw = tap % s.FW;
  const Steps steps(s, fh, fw, z, GZ);
  if (is_producer()) {
    setmaxnreg_decrease<40>();
    if (threadIdx.x > GROUPS * 128 || steps.count == 0) return;
    int chunk = steps.first % steps.chunks, column = steps.first / steps.chunks % steps.columns;
    int row = steps.first / steps.chunks / steps.columns;
    for (int i = 0; i < steps.count; i++) {
      const int h = steps.oh.begin + row, w = steps.ow.begin + column * PW;
      const int ih = h * s.sh + fh - s.ph, iw = w * s.sw + fw - s.pw, phase = iw % s.sw;
      const uint32_t tile = ring.begin(i), full = ring.full_at(i);
#pragma unroll
      for (int b = 0; b < BM / 32; b++) tma_load(tile + b * BOX, dY, full, oc0 + b * 32, w, h, chunk * IMAGES);
#pragma unroll
      for (int b = 0; b < BN / 64; b++)
        tma_load(tile + A_BYTES + b * BLOCK, X + phase, full, ic0 + b * 64, iw / s.sw, ih, chunk * IMAGES, 0);
      if (++chunk == steps.chunks) {
        chunk = 0;
        if (++column == steps.columns) column = 0, row++;
      }
    }
    return;
  }
  setmaxnreg_increase<232>();
  const int channel = threadIdx.x / 32 * 16;
  const float scale = half_scale(absmax[1]);
  const unsigned char* base = smem - shared_address(smem);  // plus a shared address: a pointer
  float sum[R] = {};
  consume<1>(
      ring, steps.count, sum,
      [&](uint32_t tile, int k, uint32_t(&hi)[4], uint32_t(&lo)[4]) {
        load_turned(base + tile + channel / 32 * BOX, channel % 32, k * 16, scale, hi, lo);
      },
      [&](uint32_t tile, int plane, int k) { return wgmma_mn_major(tile + A_BYTES + plane * PLANE + k * 2048, BLOCK); });
  float* dW = part + (long)z * s.OC * taps * s.IC;
  store_rows(sum, absmax, s.IC - ic0, [&](int row) -> float* {
    return oc0 + row < s.OC ? dW + ((long)(oc0 + row) * taps + tap) * s.IC + ic0 : nullptr;
  });
}
