// Sk-dilated-V2 on Hopper: filter gradient (Algorithm 3B), up to TAPS taps of one filter row and one segment of GK a block.
//
// dW[oc, fh, fw, ic] = sum over the outputs (oh, ow) whose tap meets the input, over n of
//                      dY[n, oh, ow, oc] X[n, oh sh + fh - ph, ow sw + fw - pw, ic]
// A step is 64 of K: PW neighbouring outputs of one row x IMAGES = 64 / PW images, images fastest. The taps of a block share its
// dY, and those of one residue of fw by sw share a *band* of BAND pixels of X: the next of them reads IMAGES rows further.
// dY is fetched in unit steps, X in leaping steps (a map for each phase of sw); what lies outside the map is zeros of the
// copy engine. Both operands have K as their slow axis and are read MN-major.
// OPERANDS FLOATS: both floats, scaled and split into PLANES half-precision planes: dY turned in the consumers' registers, X
//   where it lies in shared memory, by the makers. PLANES 2 sums each step apart and promotes it ("float32"), PLANES 1 has
//   11 bits ("tf32").
// OPERANDS HALVES: the same with X as planes already (pixel_planes.cu), which pays where many blocks read it.
// OPERANDS BF16: both bfloat16, straight from shared memory.
// Grid: (ceil(IC / BN), ceil(OC / BM), FH ceil(FW / TAPS) GZ). GZ segments, each to its own partial dW (summed by sum_parts);
// with BM 64 both warpgroups have the same channels and take turns at the steps, and their sums meet in shared memory.
// Block: two consumer warpgroups and one more, whose first warp is the producer, with one working thread, and the others the
// makers. Macros: BM 64 | 128, BN 64 | 128 | 256, TAPS, PW 1 | 2 | 4 | 8, BAND = PW + ceil(TAPS / sw) - 1,
// BANDS = min(sw, TAPS), STAGES, OPERANDS, PLANES.
// Shared memory: 1024 + STAGES STAGE bytes. Needs sm_90a, OC % 8 == 0, IC % 8 == 0.
#include "common/barrier.cuh"
#include "common/half_pair.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"
#include "conv2d/ring.cuh"
#include "conv2d/shape.cuh"

enum Operands { FLOATS, HALVES, BF16 };
constexpr Operands OPERANDS = ALPHA_OPERANDS;
constexpr int BM = ALPHA_BM, BN = ALPHA_BN, PLANES = ALPHA_PLANES, TAPS = ALPHA_TAPS, PW = ALPHA_PW, BAND = ALPHA_BAND;
constexpr int BANDS = ALPHA_BANDS, GROUPS = 2, THREADS = 128 * (GROUPS + 1), TURNS = 128 / BM, R = BN / 2;
constexpr int BK = 64, STEPS = BK / 16, IMAGES = BK / PW;
constexpr int CHANNELS = OPERANDS == BF16 ? 64 : 32;              // of dY in 128 bytes
constexpr int A_BOX = BK * 128, A_BYTES = BM / CHANNELS * A_BOX;  // dY
// X: BLOCKs of 64 channels make a plane of 16 bits. Floats fill two: channels 0 .. 31 of each 64 the first, 32 .. 63 the second.
constexpr int B_BOX = BAND * IMAGES * 128, BLOCK = BANDS * B_BOX, PLANE = BN / 64 * BLOCK;
constexpr int STAGE = A_BYTES + (OPERANDS == FLOATS ? 2 : PLANES) * PLANE;
// Splitting in two takes makers of more than 24 registers; 3 x 168 are there for the three warpgroups.
constexpr int MAKERS = 3, CONSUMER_REGISTERS = OPERANDS == FLOATS && PLANES == 2 ? 232 : 240, OTHER_REGISTERS = 3 * 168 - 2 * CONSUMER_REGISTERS;
static_assert(TURNS == 1 || ALPHA_STAGES * STAGE >= TAPS * R * 128 * 4, "a warpgroup's sums fit the tiles");
static_assert(IMAGES % 8 == 0, "a band's pixels are whole groups of 8 rows");

using Tiles = Ring<STAGE, ALPHA_STAGES, GROUPS / TURNS>;

// A barrier for each stage, where the maker warps arrive: its X is planes now.
struct Made {
  uint32_t barriers;

  __device__ __forceinline__ uint32_t at(int i) const { return barriers + i % ALPHA_STAGES * 8; }
};

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
    to_planes<PLANES>(at(c, k), at(c, k + 1), hi[e], lo[e]);
  }
}

// Of a step's X: the descriptor of the tap's 16 of K.
__device__ __forceinline__ uint64_t tap_tile(uint32_t x, int tap, int plane, int k) {
  return wgmma_mn_major(x + tap % BANDS * B_BOX + plane * PLANE + (tap / BANDS * IMAGES + k * 16) * 128, BLOCK);
}

// The steps of a block: `count` from `first` on, of all (chunk of images, group of PW columns, row) of its taps, rows fastest:
// the blocks of the other filter rows, which read the same rows of X one or two steps sooner or later, find them in the L2 cache.
struct Steps {
  int first, count, rows, columns;
  Range oh, ow;

  __device__ __forceinline__ Steps(const ConvShape& s, int fh, int fw, int z, int GZ)
      : oh(valid_outputs(fh, s.OH, s.IH, s.sh, s.ph)) {
    const int last = min(fw + TAPS, s.FW) - 1;  // it begins first, the first tap ends last
    ow = {valid_outputs(last, s.OW, s.IW, s.sw, s.pw).begin, valid_outputs(fw, s.OW, s.IW, s.sw, s.pw).end};
    rows = oh.size(), columns = (ow.size() + PW - 1) / PW;
    const int total = rows * columns * ((s.N + IMAGES - 1) / IMAGES);
    first = (int)((long)total * z / GZ), count = (int)((long)total * (z + 1) / GZ) - first;
  }
};

__device__ __forceinline__ void produce(const TensorMap* X, const TensorMap* dY, const ConvShape& s, const Steps& steps,
                                        const Tiles& tiles, int fh, int fw, int oc0, int ic0) {
  if (steps.count == 0) return;
  int row = steps.first % steps.rows, column = steps.first / steps.rows % steps.columns;
  int chunk = steps.first / steps.rows / steps.columns;
  for (int i = 0; i < steps.count; i++) {
    const int h = steps.oh.begin + row, w = steps.ow.begin + column * PW, n = chunk * IMAGES;
    const uint32_t tile = tiles.begin(i, STAGE), full = tiles.full_at(i);
#pragma unroll
    for (int b = 0; b < BM / CHANNELS; b++) tma_load(tile + b * A_BOX, dY, full, oc0 + b * CHANNELS, n, w, h);
#pragma unroll
    for (int q = 0; q < BANDS; q++) {
      const int iw = w * s.sw + fw + q - s.pw, phase = (iw % s.sw + s.sw) % s.sw, x = (iw - phase) / s.sw;
#pragma unroll
      for (int b = 0; b < BN / 64; b++) {
        const uint32_t box = tile + A_BYTES + b * BLOCK + q * B_BOX;
        const int channel = ic0 + b * 64, ih = h * s.sh + fh - s.ph;
#pragma unroll
        for (int part = 0; part < (OPERANDS == FLOATS ? 2 : PLANES); part++)
          if (OPERANDS == HALVES)
            tma_load(box + part * PLANE, X + phase, full, channel, n, x, ih, part);
          else
            tma_load(box + part * PLANE, X + phase, full, channel + part * 32, n, x, ih);
      }
    }
    if (++row == steps.rows) {
      row = 0;
      if (++column == steps.columns) column = 0, chunk++;
    }
  }
}

// 4 of 8 rows, 64 channels: where two boxes of 32 floats lay, two planes of 64 halves (or one) will lie. A thread takes 8
// channels of a row, by shared addresses: `from` and `from ^ 16` its floats, `to` its halves.
__device__ __forceinline__ void make_planes(unsigned char* base, uint32_t from, uint32_t to, float scale) {
  const float4 u = *reinterpret_cast<const float4*>(base + from), v = *reinterpret_cast<const float4*>(base + (from ^ 16));
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

// All taps' products of a step, dY split in registers: done when it returns.
__device__ __forceinline__ void multiply_halves(float (&sum)[TAPS][R], const unsigned char* base, uint32_t tile, int channel,
                                                float scale) {
  const unsigned char* box = base + tile + channel / 32 * A_BOX;
  uint32_t hi[STEPS][4], lo[STEPS][4];
  float block[R];
#pragma unroll
  for (int tap = 0; tap < TAPS; tap++) {
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
      if (tap == 0) load_turned(box, channel % 32, k * 16, scale, hi[k], lo[k]);  // the last products are under way
      if (tap == 0 || k == 0) wgmma_fence();
      const uint64_t b_hi = tap_tile(tile + A_BYTES, tap, 0, k);
      if (PLANES == 2) {
        wgmma_f16<1>(block, lo[k], b_hi, k != 0);
        wgmma_f16<1>(block, hi[k], tap_tile(tile + A_BYTES, tap, 1, k), 1);
        wgmma_f16<1>(block, hi[k], b_hi, 1);
      } else {
        wgmma_f16<1>(sum[tap], hi[k], b_hi, 1);
      }
      if (tap == 0 || k == STEPS - 1) wgmma_commit();
    }
    if (PLANES == 2) {
      wgmma_wait<0>();
#pragma unroll
      for (int r = 0; r < R; r++) sum[tap][r] += block[r];
    }
  }
  wgmma_wait<0>();
}

// The same straight from shared memory: under way when it returns. M = 64: one block of 64 channels.
__device__ __forceinline__ void start_products(float (&sum)[TAPS][R], uint32_t tile, int channel) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < STEPS; k++)
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++)
      wgmma_bf16<1, 1>(sum[tap], wgmma_mn_major(tile + channel / 64 * A_BOX + k * 2048, A_BOX),
                       tap_tile(tile + A_BYTES, tap, 0, k), 1);
  wgmma_commit();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sk_dilated_wgmma(float* __restrict__ part, const TensorMap* __restrict__ X, const TensorMap* __restrict__ dY,
                     const unsigned* __restrict__ absmax, ConvShape s, int GZ) {
  ALPHA_DYNAMIC_SHARED(unsigned char, smem);
  __shared__ __align__(8) uint64_t barriers[3 * ALPHA_STAGES];
  const Tiles tiles((shared_address(smem) + 1023) & ~1023u, barriers);
  const Made made = {shared_address(barriers + 2 * ALPHA_STAGES)};
  if (threadIdx.x == 0)
    for (int i = 0; i < ALPHA_STAGES; i++) mbarrier_init(made.at(i), MAKERS);
  __syncthreads();
  const int tap_groups = (s.FW + TAPS - 1) / TAPS;
  const unsigned z = blockIdx.z / (s.FH * tap_groups);
  const int fh = blockIdx.z / tap_groups % s.FH, fw = blockIdx.z % tap_groups * TAPS;
  const int ic0 = blockIdx.x * BN, oc0 = blockIdx.y * BM;
  const Steps steps(s, fh, fw, z, GZ);
  unsigned char* base = smem - shared_address(smem);  // plus a shared address: a pointer
  if (threadIdx.x >= GROUPS * 128) {
    setmaxnreg_decrease<OTHER_REGISTERS>();
    const int maker = threadIdx.x / 32 - GROUPS * 4 - 1;
    if (threadIdx.x == GROUPS * 128) produce(X, dY, s, steps, tiles, fh, fw, oc0, ic0);
    if (OPERANDS == FLOATS && maker >= 0) make(maker, base, steps.count, tiles, made, half_scale(absmax[0]));
    return;
  }
  setmaxnreg_increase<CONSUMER_REGISTERS>();
  const int group = threadIdx.x / 128, turn = group % TURNS, first_row = group / TURNS * 64;
  const int channel = first_row + threadIdx.x % 128 / 32 * 16;  // of this warp
  const float scale = OPERANDS == BF16 ? 1.f : half_scale(absmax[1]);
  float sum[TAPS][R] = {};
  for (int i = turn; i < steps.count; i += TURNS) {
    const uint32_t tile = tiles.tile(i);
    mbarrier_wait(OPERANDS == FLOATS ? made.at(i) : tiles.full_at(i), tiles.parity(i));
    if (OPERANDS != BF16) {
      multiply_halves(sum, base, tile, channel, scale);
      tiles.release(i);
    } else {
      start_products(sum, tile, first_row);
      wgmma_wait<1>();  // the products of the step before are done
      if (i >= TURNS) tiles.release(i - TURNS);
    }
  }
  wgmma_wait<0>();
  if (TURNS == 2) {  // the second warpgroup's sums join the first's
    float* others = reinterpret_cast<float*>(smem) + threadIdx.x % 128;
    named_barrier_sync(1, GROUPS * 128);  // nobody reads tiles any more
#pragma unroll
    for (int i = 0; i < TAPS * R; i++)
      if (turn == 1) others[i * 128] = sum[i / R][i % R];
    named_barrier_sync(1, GROUPS * 128);
    if (turn == 1) return;
#pragma unroll
    for (int i = 0; i < TAPS * R; i++) sum[i / R][i % R] += others[i * 128];
  }
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  float inverse_0 = 1.f, inverse_1 = 1.f;
  if (OPERANDS != BF16) inverse_0 = inverse_scale(half_scale(absmax[0])), inverse_1 = inverse_scale(half_scale(absmax[1]));
  float* dW = part + (long)z * s.OC * s.FH * s.FW * s.IC;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int oc = oc0 + channel + g + 8 * h;
    if (oc >= s.OC) continue;
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
      if (fw + tap >= s.FW) continue;
      float* row = dW + (((long)oc * s.FH + fh) * s.FW + fw + tap) * s.IC + ic0;
#pragma unroll
      for (int j = 0; j < BN / 8; j++) {
        const int column = j * 8 + t * 2, e = j * 4 + h * 2;
        if (ic0 + column < s.IC)
          *reinterpret_cast<float2*>(row + column) =
              make_float2(sum[tap][e] * inverse_0 * inverse_1, sum[tap][e + 1] * inverse_0 * inverse_1);
      }
    }
  }
}
