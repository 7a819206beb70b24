// Sk-dilated-V2: filter gradient (Algorithm 3B), one tap (fh, fw) and one split of G_K per block.
//
// dW[oc, fh, fw, ic] = sum over the outputs (oh, ow) whose tap meets the input, over n of
//                      dY[n, oh, ow, oc] X[n, oh sh + fh - ph, ow sw + fw - pw, ic]
// dY is fetched in unit steps, X in leaping steps of the stride. A step is BK images of one output; both operands are
// mn-major in shared memory. mma.sync (sm_80 and newer), cp.async with STAGES stages, one barrier per step.
//   MATH TF32X3 | TF32   X, dY float32, BK 32
//   MATH BF16            X, dY bfloat16, BK 64; sums and dW float32
// Grid: (ceil(IC / BN), ceil(OC / BM), FH FW GZ): GZ splits, each to its own partial dW (summed by reduce/sum.cu).
// Block: 32 (BM / WM) (BN / WN). Shared memory: STAGES 128 (BM + BN) bytes. Needs channels of X and dY of whole 16 bytes.
// Macros: ALPHA_MATH, ALPHA_BM, ALPHA_BN (tile), ALPHA_WM, ALPHA_WN (warp tile), ALPHA_STAGES.
#include "common/cp_async.cuh"
#include "common/vector.cuh"
#include "common/warp_tile.cuh"
#include "conv2d/shape.cuh"

constexpr int BM = ALPHA_BM, BN = ALPHA_BN, WM = ALPHA_WM, WN = ALPHA_WN, STAGES = ALPHA_STAGES;
using Warp = WarpTile<ALPHA_MATH, WM / 16, WN / 8>;
using Element = Warp::Element;
constexpr int BK = Warp::TILE_K, CHUNK = Warp::CHUNK, THREADS = BM / WM * (BN / WN) * 32,
              STAGE_ELEMENTS = BK * (BM + BN);
static_assert(BK * BM / CHUNK % THREADS == 0 && BK * BN / CHUNK % THREADS == 0, "every pass of the loader is whole");

// Loads this thread's share of a tile of BK images x WIDTH channels at one pixel, 16 bytes at a time; zeros beyond N and C.
template <int WIDTH>
__device__ __forceinline__ void load_images(uint32_t target, const Element* source, long image, int n0, int N, int c0,
                                            int C) {
#pragma unroll
  for (int i = 0; i < BK * WIDTH / CHUNK; i += THREADS) {
    const int k = (i + threadIdx.x) / (WIDTH / CHUNK), chunk = (i + threadIdx.x) % (WIDTH / CHUNK);
    const int slot = Warp::mn_major<WIDTH>(k, chunk) * int(sizeof(Element)), c = c0 + chunk * CHUNK;
    const bool inside = n0 + k < N && c < C;
    cp_async<16>(target + slot, source + (n0 + k) * image + c, inside ? 16 : 0);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sk_dilated_sm80(float* __restrict__ part, const Element* __restrict__ X, const Element* __restrict__ dY,
                    ConvShape s, int GZ) {
  ALPHA_DYNAMIC_SHARED(Element, smem);
  const int warp = threadIdx.x / 32, wm = warp % (BM / WM) * WM, wn = warp / (BM / WM) * WN;
  const int taps = s.FH * s.FW, tap = blockIdx.z % taps, z = blockIdx.z / taps, ic0 = blockIdx.x * BN,
            oc0 = blockIdx.y * BM;
  const int fh = tap / s.FW, fw = tap % s.FW;
  const Range oh = valid_outputs(fh, s.OH, s.IH, s.sh, s.ph), ow = valid_outputs(fw, s.OW, s.IW, s.sw, s.pw);
  const int chunks = (s.N + BK - 1) / BK, total = oh.size() * ow.size() * chunks;
  const int lo = (int)((long)total * z / GZ), steps = (int)((long)total * (z + 1) / GZ) - lo;

  int chunk = lo % chunks, column = ow.size() ? lo / chunks % ow.size() : 0,
      row = ow.size() ? lo / chunks / ow.size() : 0;
  auto load = [&](int stage) {
    const int h = oh.begin + row, w = ow.begin + column, ih = h * s.sh + fh - s.ph, iw = w * s.sw + fw - s.pw;
    const uint32_t target = shared_address(smem + stage * STAGE_ELEMENTS);
    load_images<BM>(target, dY + (long)(h * s.OW + w) * s.OC, (long)s.OH * s.OW * s.OC, chunk * BK, s.N, oc0, s.OC);
    load_images<BN>(target + BM * ROW_BYTES, X + (long)(ih * s.IW + iw) * s.IC, (long)s.IH * s.IW * s.IC, chunk * BK,
                    s.N, ic0, s.IC);
    if (++chunk == chunks) {
      chunk = 0;
      if (++column == ow.size()) column = 0, row++;
    }
  };

  Warp tile;
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) {
    if (i < steps) load(i);
    cp_async_commit();
  }
  for (int step = 0; step < steps; step++) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // this step's tiles are there, and no thread reads the stage that is loaded next
    if (step + STAGES - 1 < steps) load((step + STAGES - 1) % STAGES);
    cp_async_commit();
    const Element* stage = smem + step % STAGES * STAGE_ELEMENTS;
    tile.multiply_mn_major<BM, BN>(stage, stage + BK * BM, wm, wn);
  }
  float* dW = part + (long)z * s.OC * taps * s.IC;
  tile.each_pair([&](int m, int n, float v0, float v1) {
    const int oc = oc0 + wm + m, ic = ic0 + wn + n;
    if (oc < s.OC && ic < s.IC) store_pack<2>(dW + ((long)oc * taps + tap) * s.IC + ic, Pack<float, 2>{v0, v1});
  });
}
