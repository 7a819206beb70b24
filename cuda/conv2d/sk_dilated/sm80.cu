// Sk-dilated-V2: filter gradient (Algorithm 3B), one tap (fh, fw) and one split of G_K per block.
//
// dW[oc, fh, fw, ic] = sum over the outputs (oh, ow) whose tap meets the input, over n of
//                      dY[n, oh, ow, oc] X[n, oh sh + fh - ph, ow sw + fw - pw, ic]
// dY is fetched in unit steps, X in leaping steps of the stride. A step is BK images of one output; both operands are
// mn-major in shared memory. mma.sync (sm_80 and newer), cp.async with STAGES stages, one barrier per step.
//   MATH TF32X3 | TF32   X, dY float32, BK 32
//   MATH BF16            X, dY bfloat16, BK 64; sums and dW float32
// Grid: (ceil(IC / BN), ceil(OC / BM), FH FW GZ): GZ splits, each to its own partial dW (summed by reduce/sum.cu).
// Block: 32 (BM / WM) (BN / WN). Shared memory: STAGES 128 (BM + BN) bytes. Needs channels of X and dY of whole 16
// bytes.
// Macros: ALPHA_MATH, ALPHA_BM, ALPHA_BN (tile), ALPHA_WM, ALPHA_WN (warp tile), ALPHA_STAGES,
// ALPHA_RESIDENT (blocks that the registers of an SM must hold).
#include "common/cp_async.cuh"
#include "common/vector.cuh"
#include "common/warp_tile.cuh"
#include "conv2d/shape.cuh"

constexpr int BM = ALPHA_BM, BN = ALPHA_BN, WM = ALPHA_WM, WN = ALPHA_WN, STAGES = ALPHA_STAGES;
using Warp = WarpTile<ALPHA_MATH, WM / 16, WN / 8>;
using Element = Warp::Element;
constexpr int BK = Warp::TILE_K, CHUNK = Warp::CHUNK, THREADS = BM / WM * (BN / WN) * 32,
              STAGE_ELEMENTS = BK * (BM + BN);

// The loader of a tile of BK images x WIDTH channels at one pixel: a thread's chunks lie PASS images apart in one
// column.
template <int WIDTH>
struct Loader {
  static constexpr int ACROSS = WIDTH / CHUNK, PASS = THREADS / ACROSS;
  static_assert(THREADS % ACROSS == 0 && PASS % 4 == 0 && BK % PASS == 0,
                "each pass has whole rows, whose swizzle repeats");
  static_assert(sizeof(Element) == 4 || PASS % 8 == 0, "the swizzle of bfloat16 repeats after 8 rows");
  const Element* source;  // the thread's chunk of the first image, at the first pixel
  long image;             // elements
  int first, slot, bytes;

  __device__ __forceinline__ Loader(const Element* array, long image, int c0, int C) : image(image) {
    const int chunk = threadIdx.x % ACROSS, c = c0 + chunk * CHUNK;
    first = threadIdx.x / ACROSS;
    source = array + first * image + c;
    slot = Warp::template mn_major<WIDTH>(first, chunk) * int(sizeof(Element));
    bytes = c < C ? 16 : 0;
  }
  // Loads images n0 .. n0 + BK - 1 at the pixel that begins at `offset`; zeros beyond N and C.
  __device__ __forceinline__ void load(uint32_t target, long offset, int n0, int N) const {
    const Element* from = source + n0 * image + offset;
#pragma unroll
    for (int k = 0; k < BK; k += PASS, from += PASS * image)
      cp_async<16>(target + slot + k * WIDTH * int(sizeof(Element)), from, n0 + first + k < N ? bytes : 0);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, ALPHA_RESIDENT)
    sk_dilated_sm80(float* __restrict__ part, const Element* __restrict__ X, const Element* __restrict__ dY,
                    ConvShape s, int GZ) {
  ALPHA_DYNAMIC_SHARED(Element, smem);
  const int warp = threadIdx.x / 32, wm = warp % (BM / WM) * WM, wn = warp / (BM / WM) * WN;
  const int taps = s.FH * s.FW, ic0 = blockIdx.x * BN, oc0 = blockIdx.y * BM;
  const Division split = divide(blockIdx.z, taps);
  const int z = split.quotient, tap = split.remainder, fh = divide(tap, s.FW).quotient, fw = tap - fh * s.FW;
  const Range oh = valid_outputs(fh, height_of(s)), ow = valid_outputs(fw, width_of(s));
  const int chunks = (s.N + BK - 1) / BK;
  const Range all = split_steps(oh.size() * ow.size() * chunks, z, GZ);
  const int steps = all.size();

  const Division first = divide(all.begin, chunks), pixel = divide(first.quotient, max(ow.size(), 1));
  int chunk = first.remainder, row = pixel.quotient, column = pixel.remainder;
  const Loader<BM> load_dY(dY, (long)s.OH * s.OW * s.OC, oc0, s.OC);
  const Loader<BN> load_X(X, (long)s.IH * s.IW * s.IC, ic0, s.IC);
  auto load = [&](int stage) {
    const int h = oh.begin + row, w = ow.begin + column, ih = h * s.sh + fh - s.ph, iw = w * s.sw + fw - s.pw;
    const uint32_t target = shared_address(smem + stage * STAGE_ELEMENTS);
    load_dY.load(target, (long)(h * s.OW + w) * s.OC, chunk * BK, s.N);
    load_X.load(target + BM * ROW_BYTES, (long)(ih * s.IW + iw) * s.IC, chunk * BK, s.N);
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
  tile.each_pack_mn_major([&](int m, int n, const auto& pack) {
    const int oc = oc0 + wm + m, ic = ic0 + wn + n;
    if (oc < s.OC && ic < s.IC) store_pack(dW + ((long)oc * taps + tap) * s.IC + ic, pack);
  });
}
