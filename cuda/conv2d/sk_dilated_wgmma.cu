// Sk-dilated-V2 on Hopper: filter gradient (Algorithm 3B), one tap (fh, fw) and one segment of GK a block.
//
// dW[oc, fh, fw, ic] = sum over the outputs (oh, ow) whose tap meets the input, over n of
//                      dY[n, oh, ow, oc] X[n, oh sh + fh - ph, ow sw + fw - pw, ic]
// A step is 64 of K: PW neighbouring outputs of one row x 64 / PW images. dY is fetched in unit steps as floats, turned and
// split into half-precision planes in registers; X is fetched in leaping steps (a map for each phase of sw) as planes made
// by pixel_planes.cu, MN-major. Columns beyond the map are zeros of the copy engine. Precision: position_wgmma.cuh.
// Grid: (ceil(IC / BN), ceil(OC / 128), FH FW GZ): GZ segments, each to its own partial dW (summed by sum_parts).
// Block: two consumer warpgroups of 64 output channels each, and a producer. Shared memory: 1024 + STAGES (4 64 128 + BN / 64
// PLANES 64 128) bytes. Needs sm_90a, OC % 4 == 0, IC % 8 == 0.
// Macros: BN 64 | 128, PLANES 1 | 2, STAGES, PW 1 | 2 | 4 | 8 | 16 | 32.
#include "common/half_pair.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"
#include "conv2d/shape.cuh"

constexpr int BN = ALPHA_BN, PLANES = ALPHA_PLANES, STAGES = ALPHA_STAGES, PW = ALPHA_PW;
constexpr int GROUPS = 2, BM = 64 * GROUPS, BK = 64, IMAGES = BK / PW, THREADS = 128 * (GROUPS + 1), R = BN / 2;
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
    if (PLANES == 2)
      split_pair(at(c, k), at(c, k + 1), hi[e], lo[e]);
    else
      hi[e] = pack_half(at(c, k), at(c, k + 1));
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sk_dilated_wgmma(float* __restrict__ part, const TensorMap* __restrict__ X, const TensorMap* __restrict__ dY,
                     const unsigned* __restrict__ absmax, ConvShape s, int GZ) {
  ALPHA_DYNAMIC_SHARED(unsigned char, smem);
  __shared__ __align__(8) uint64_t barriers[2 * STAGES];
  const uint32_t start = shared_address(smem), tiles = (start + 1023) & ~1023u;
  const uint32_t full = shared_address(barriers), empty = shared_address(barriers + STAGES);
  const int taps = s.FH * s.FW, tap = blockIdx.z % taps, z = blockIdx.z / taps, ic0 = blockIdx.x * BN, oc0 = blockIdx.y * BM;
  const int fh = tap / s.FW, fw = tap % s.FW;
  const Range oh = valid_outputs(fh, s.OH, s.IH, s.sh, s.ph), ow = valid_outputs(fw, s.OW, s.IW, s.sw, s.pw);
  const int columns = (ow.size() + PW - 1) / PW, chunks = (s.N + IMAGES - 1) / IMAGES, total = oh.size() * columns * chunks;
  const int lo_step = (int)((long)total * z / GZ), steps = (int)((long)total * (z + 1) / GZ) - lo_step;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) mbarrier_init(full + i * 8, 1), mbarrier_init(empty + i * 8, GROUPS);
    mbarrier_fence_init();
  }
  __syncthreads();
  if (threadIdx.x >= GROUPS * 128) {
    setmaxnreg_decrease<40>();
    if (threadIdx.x > GROUPS * 128 || steps == 0) return;
    int chunk = lo_step % chunks, column = lo_step / chunks % columns, row = lo_step / chunks / columns;
    for (int i = 0; i < steps; i++) {
      const int stage = i % STAGES, h = oh.begin + row, w = ow.begin + column * PW;
      const int ih = h * s.sh + fh - s.ph, iw = w * s.sw + fw - s.pw, phase = iw % s.sw;
      if (i >= STAGES) mbarrier_wait(empty + stage * 8, (i / STAGES & 1) ^ 1);
      const uint32_t tile = tiles + stage * STAGE;
      mbarrier_arrive_expect(full + stage * 8, STAGE);
#pragma unroll
      for (int b = 0; b < BM / 32; b++)
        tma_load(tile + b * BOX, dY, full + stage * 8, oc0 + b * 32, w, h, chunk * IMAGES);
#pragma unroll
      for (int b = 0; b < BN / 64; b++)
        tma_load(tile + A_BYTES + b * BLOCK, X + phase, full + stage * 8, ic0 + b * 64, iw / s.sw, ih, chunk * IMAGES, 0);
      if (++chunk == chunks) {
        chunk = 0;
        if (++column == columns) column = 0, row++;
      }
    }
    return;
  }
  setmaxnreg_increase<232>();
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, channel = group * 64 + warp * 16;
  const float scale = half_scale(absmax[1]);
  float sum[R] = {}, block[R];
  for (int i = 0; i < steps; i++) {
    const int stage = i % STAGES;
    mbarrier_wait(full + stage * 8, i / STAGES & 1);
    const unsigned char* a = smem + (tiles - start) + stage * STAGE + channel / 32 * BOX;
    const uint32_t b = tiles + stage * STAGE + A_BYTES;
    uint32_t hi[4][4], lo[4][4];
#pragma unroll
    for (int k = 0; k < BK / 16; k++) {
      load_turned(a, channel % 32, k * 16, scale, hi[k], lo[k]);  // the products of the last k are under way
      wgmma_fence();
      const uint64_t b_hi = wgmma_mn_major(b + k * 2048, BLOCK);
      if (PLANES == 2) {
        wgmma_f16<1>(block, lo[k], b_hi, k != 0);
        wgmma_f16<1>(block, hi[k], wgmma_mn_major(b + PLANE + k * 2048, BLOCK), 1);
        wgmma_f16<1>(block, hi[k], b_hi, 1);
      } else {
        wgmma_f16<1>(sum, hi[k], b_hi, 1);
      }
      wgmma_commit();
    }
    wgmma_wait<0>();
    if (threadIdx.x % 128 == 0) mbarrier_arrive(empty + stage * 8);
    if (PLANES == 2) {
#pragma unroll
      for (int r = 0; r < R; r++) sum[r] += block[r];
    }
  }
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const float inverse_x = inverse_scale(half_scale(absmax[0])), inverse_y = inverse_scale(half_scale(absmax[1]));
  float* dW = part + (long)z * s.OC * taps * s.IC;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int oc = oc0 + channel + g + h * 8;
    if (oc >= s.OC) continue;
#pragma unroll
    for (int j = 0; j < BN / 8; j++) {
      const int ic = ic0 + j * 8 + t * 2;
      if (ic < s.IC)
        *reinterpret_cast<float2*>(dW + ((long)oc * taps + tap) * s.IC + ic) =
            make_float2(sum[j * 4 + h * 2] * inverse_x * inverse_y, sum[j * 4 + h * 2 + 1] * inverse_x * inverse_y);
    }
  }
}
