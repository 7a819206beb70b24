// Sk-dilated-V2: filter gradient (Algorithm 3B), one tap (fh, fw) and one segment of GK a block.
//
// dW[oc, fh, fw, ic] = sum over the outputs (oh, ow) whose tap meets the input, over n of
//                      dY[n, oh, ow, oc] X[n, oh sh + fh - ph, ow sw + fw - pw, ic]
// dY is fetched in unit steps, X in leaping steps of the stride. A step is 32 images of one output; both operands are
// mn-major in shared memory. 3xTF32 on mma.sync, cp.async, STAGES deep, one barrier a step.
// Grid: (ceil(IC / BN), ceil(OC / BM), FH FW GZ): GZ segments, each to its own partial dW (summed by sum_parts).
// Block: 32 (BM / WM) (BN / WN). Shared memory: STAGES 32 (BM + BN) floats. Needs OC % 4 == 0 and IC % 4 == 0.
// Macros: ALPHA_BM, ALPHA_BN (tile), ALPHA_WM, ALPHA_WN (warp tile), ALPHA_STAGES.
#include "common/cp_async.cuh"
#include "common/tf32x3.cuh"
#include "conv2d/shape.cuh"

constexpr int BM = ALPHA_BM, BN = ALPHA_BN, WM = ALPHA_WM, WN = ALPHA_WN, STAGES = ALPHA_STAGES, BK = TILE_K;
constexpr int THREADS = BM / WM * (BN / WN) * 32, STAGE_FLOATS = BK * (BM + BN);
static_assert(BK * BM / 4 % THREADS == 0 && BK * BN / 4 % THREADS == 0, "every pass of the loader is whole");

// Thread's share of a tile of 32 images x WIDTH channels at one pixel: 16-byte copies, zeros beyond N and C.
template <int WIDTH>
__device__ __forceinline__ void load_images(uint32_t target, const float* source, long image, int n0, int N, int c0, int C) {
#pragma unroll
  for (int i = 0; i < BK * WIDTH / 4; i += THREADS) {
    const int k = (i + threadIdx.x) / (WIDTH / 4), chunk = (i + threadIdx.x) % (WIDTH / 4);
    const bool inside = n0 + k < N && c0 + chunk * 4 < C;
    cp_async<16>(target + swizzle_mn_major<WIDTH>(k, chunk) * 4, source + (n0 + k) * image + c0 + chunk * 4, inside ? 16 : 0);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sk_dilated(float* __restrict__ part, const float* __restrict__ X, const float* __restrict__ dY, ConvShape s, int GZ) {
  ALPHA_DYNAMIC_SHARED(float, smem);
  const int warp = threadIdx.x / 32, wm = warp % (BM / WM) * WM, wn = warp / (BM / WM) * WN;
  const int taps = s.FH * s.FW, tap = blockIdx.z % taps, z = blockIdx.z / taps, ic0 = blockIdx.x * BN, oc0 = blockIdx.y * BM;
  const int fh = tap / s.FW, fw = tap % s.FW;
  const Range oh = valid_outputs(fh, s.OH, s.IH, s.sh, s.ph), ow = valid_outputs(fw, s.OW, s.IW, s.sw, s.pw);
  const int chunks = (s.N + BK - 1) / BK, total = oh.size() * ow.size() * chunks;
  const int lo = (int)((long)total * z / GZ), steps = (int)((long)total * (z + 1) / GZ) - lo;

  int chunk = lo % chunks, column = ow.size() ? lo / chunks % ow.size() : 0, row = ow.size() ? lo / chunks / ow.size() : 0;
  auto load = [&](int stage) {
    const int h = oh.begin + row, w = ow.begin + column, ih = h * s.sh + fh - s.ph, iw = w * s.sw + fw - s.pw;
    const uint32_t target = shared_address(smem) + stage * STAGE_FLOATS * 4;
    load_images<BM>(target, dY + (long)(h * s.OW + w) * s.OC, (long)s.OH * s.OW * s.OC, chunk * BK, s.N, oc0, s.OC);
    load_images<BN>(target + BK * BM * 4, X + (long)(ih * s.IW + iw) * s.IC, (long)s.IH * s.IW * s.IC, chunk * BK, s.N,
                    ic0, s.IC);
    if (++chunk == chunks) {
      chunk = 0;
      if (++column == ow.size()) column = 0, row++;
    }
  };

  Tf32x3<WM / 16, WN / 8> tile;
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) {
    if (i < steps) load(i);
    cp_async_commit();
  }
  for (int step = 0; step < steps; step++) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // the step's tiles are whole, and everyone is done with the stage that is loaded next
    if (step + STAGES - 1 < steps) load((step + STAGES - 1) % STAGES);
    cp_async_commit();
    const float* stage = smem + step % STAGES * STAGE_FLOATS;
    tile.multiply_mn_major<BM, BN>(stage, stage + BK * BM, wm, wn);
  }
  float* dW = part + (long)z * s.OC * taps * s.IC;
  tile.each_pair([&](int m, int n, float v0, float v1) {
    const int oc = oc0 + wm + m, ic = ic0 + wn + n;
    if (oc < s.OC && ic < s.IC)
      *reinterpret_cast<float2*>(dW + ((long)oc * taps + tap) * s.IC + ic) = make_float2(v0, v1);
  });
}
