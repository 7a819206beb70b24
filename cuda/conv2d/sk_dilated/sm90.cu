// Sk-dilated-V2 on Hopper: filter gradient (Algorithm 3B), up to TAPS taps of one filter row and one split of its K per
// block.
//
// dW[oc, fh, fw, ic] = sum over the outputs (oh, ow) whose tap meets the input, over n of
//                      dY[n, oh, ow, oc] X[n, oh sh + fh - ph, ow sw + fw - pw, ic]
// With NDIM 3 also over od, and X is read at (od sd + fd dd - pd, oh sh + fh dh - ph, ow sw + fw dw - pw).
// A step is 64 of K: TILE_OW neighbouring output pixels of one row x IMAGES = 64 / TILE_OW images, images fastest. The
// taps of a block share its dY. The taps of one residue of fw by sw also share an *input-row tile* of TILE_IW pixels of
// X, which each of them reads dw IMAGES rows further than the tap before. dY is loaded in unit steps, X in leaping
// steps (there is a tensor map for each phase of sw); TMA gives zeros outside of the image. Both operands have K as
// their slow axis and are read MN-major.
// MATH FP16X3, FP16: float32 operands as scaled fp16 terms. dY is converted in the consumers' registers. X is converted
//   in shared memory by the transform warps, or with PREPARED 1 it comes as fp16 terms (prepare/activation_terms.cu),
//   which is faster if many blocks read it. FP16X3 has two terms; each step is summed apart and promoted: "float32".
//   FP16 has 11 bits: "tf32". With PREPARED 2, which FP16 alone has, dY comes as fp16 terms, too.
// MATH BF16X3: as FP16X3, with bfloat16 terms, which need no scale, and without promotion; "tf32". PREPARED is 0.
// MATH BF16: both operands are bfloat16 and go from shared memory to the tensor cores directly.
// Grid: (ceil(IC / BN), ceil(OC / BM), length of `schedule`). Filter rows with fewer steps have fewer splits, so that
// all blocks are about equally long. Split z of a row writes to the z-th partial dW; sk_dilated/sum_splits.cu adds them
// up. With BM 64 both warpgroups have the same channels and are ping-pong: they take every second step, and their sums
// are added in shared memory.
// Block: two consumer warpgroups, then the producer, a warp with one working thread, then the transform warps.
// Macros: NDIM (2, or 3: depth and dilation), DW (dw; 1 with NDIM 2), BM 64 | 128, BN (multiples of 32 up to 256),
// TAPS, TILE_OW 1 | 2 | 4 | 8, or without a halo also 16 | 32 | 64, TILE_IW = TILE_OW + dw (ceil(TAPS / sw) - 1),
// NUM_INPUT_TILES = min(sw, TAPS), STAGES, MATH, PREPARED 0 | 1 | 2, TRANSFORM_WARPS 3 | 7 (BN up to 128), OUTPUT
// float, or bfloat16 if no K is split (of part).
// Shared memory: 1024 + STAGES STAGE bytes. Needs sm_90a, OC % 8 == 0, IC % 8 == 0.
#include "common/barrier.cuh"
#include "common/quad.cuh"
#include "common/vector.cuh"
#include "conv2d/sk_dilated/sm90_transform.cuh"
#include "conv2d/sk_dilated/sm90_products.cuh"

using Output = ALPHA_OUTPUT;

// What the blocks of one z of the grid compute: some taps of a filter row, and which split of their K.
struct WeightBlock {
  int filter_row, first_tap, split, num_splits;
};

// The steps of a block: `count` steps from `begin` on, of all (chunk of images, TILE_OW columns, row) of its taps, rows
// fastest; with a depth the rows are those of all its planes.
// The blocks of the other filter rows read the same rows of X one or two steps sooner or later, and find them in the L2
// cache.
struct Steps {
  int begin, count, rows, columns;
  Range od, oh, ow;

  __device__ __forceinline__ Steps(const Shape& s, int fd, int fh, const WeightBlock& block)
      : od(valid_outputs(fd, depth_of(s))), oh(valid_outputs(fh, height_of(s))) {
    const int first = block.first_tap, last = min(first + TAPS, s.FW) - 1;
    // the last tap's outputs begin first, the first tap's end last
    ow = {valid_outputs(last, width_of(s)).begin, valid_outputs(first, width_of(s)).end};
    rows = od.size() * oh.size(), columns = (ow.size() + TILE_OW - 1) / TILE_OW;
    const int all = rows * columns * ((s.N + IMAGES - 1) / IMAGES);
    const Range steps = split_steps(all, block.split, block.num_splits);
    begin = steps.begin, count = steps.size();
  }
};

__device__ __forceinline__ void produce(const TensorMap* X, const TensorMap* dY, const Shape& s, const Steps& steps,
                                        const Tiles& tiles, int fd, int fh, int fw, int oc0, int ic0) {
  if (steps.count == 0) return;
  const Axis depth = depth_of(s), height = height_of(s), width = width_of(s);
  auto [columns, row] = divide(steps.begin, steps.rows);
  auto [chunk, column] = divide(columns, steps.columns);
  Tiles::State state;
  for (int i = 0; i < steps.count; i++, state.advance()) {
    const auto [plane, row_in_plane] = NDIM == 3 ? divide(row, steps.oh.size()) : Division{0, row};
    const int od = steps.od.begin + plane, oh = steps.oh.begin + row_in_plane;
    const int id = od * depth.s + fd * depth.d - depth.p, ih = oh * height.s + fh * height.d - height.p;
    const int w = steps.ow.begin + column * TILE_OW, n = chunk * IMAGES;
    const uint32_t tile = tiles.producer_acquire(state, STAGE), full = tiles.full_barrier(state.stage());
#pragma unroll
    for (int b = 0; b < BM / CHANNELS; b++)
      tma_load(tile + b * A_BOX, dY, full, oc0 + b * CHANNELS, n, w, od * height.O + oh);
#pragma unroll
    for (int q = 0; q < NUM_INPUT_TILES; q++) {
      const auto [x, phase] = floor_divide(w * width.s + fw * width.d + q - width.p, width.s);
#pragma unroll
      for (int b = 0; b < BLOCKS_OF_X; b++) {
        const uint32_t box = tile + A_BYTES + b * BLOCK + q * B_BOX;
        const int channel = ic0 + b * 64, input_row = id * height.size + ih;
#pragma unroll
        for (int part = 0; part < (CONVERTS ? 2 : TERMS); part++)
          if (PREPARED)
            tma_load(box + part * TERM_BYTES, X + phase, full, channel, n, x, input_row, part);
          else
            tma_load(box + part * TERM_BYTES, X + phase, full, channel + part * 32, n, x, input_row);
      }
    }
    if (++row == steps.rows) {
      row = 0;
      if (++column == steps.columns) column = 0, chunk++;
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sk_dilated_sm90(Output* __restrict__ part, const TensorMap* __restrict__ X, const TensorMap* __restrict__ dY,
                    const unsigned* __restrict__ absmax_x, const unsigned* __restrict__ absmax_dy, Shape s,
                    const WeightBlock* __restrict__ schedule) {
  ALPHA_DYNAMIC_SHARED(unsigned char, smem);
  if (threadIdx.x == CONSUMER_GROUPS * 128) tma_prefetch(X), tma_prefetch(dY);
  __shared__ __align__(8) uint64_t barriers[3 * ALPHA_STAGES];
  const Tiles tiles(kept((shared_address(smem) + 1023) & ~1023u), kept(shared_address(barriers)));
  const Converted converted = {tiles.full + Tiles::BARRIERS * 8};
  if (threadIdx.x == 0)
    for (int i = 0; i < ALPHA_STAGES; i++) mbarrier_init(converted.barrier(i), TRANSFORM_WARPS);
  __syncthreads();
  const WeightBlock block = schedule[blockIdx.z];
  const int filter_rows = depth_of(s).F * s.FH, filter_row = block.filter_row, fw = block.first_tap;
  const auto [fd, fh] = NDIM == 3 ? divide(filter_row, s.FH) : Division{0, filter_row};
  const int ic0 = blockIdx.x * BN, oc0 = blockIdx.y * BM;
  const Steps steps(s, fd, fh, block);
  unsigned char* base = smem - shared_address(smem);  // base + a shared address is a pointer
  if (threadIdx.x >= CONSUMER_GROUPS * 128) {
    setmaxnreg_decrease<OTHER_REGISTERS>();
    const int transform_warp = threadIdx.x / 32 - CONSUMER_GROUPS * 4 - 1;
    if (threadIdx.x == CONSUMER_GROUPS * 128) produce(X, dY, s, steps, tiles, fd, fh, fw, oc0, ic0);
    if (CONVERTS && transform_warp >= 0)
      convert(transform_warp, base, steps.count, tiles, converted, IS_FP16 ? half_scale(*absmax_x) : 1.f);
    return;
  }
  setmaxnreg_increase<CONSUMER_REGISTERS>();
  const int group = threadIdx.x / 128, phase_group = group % PING_PONG, first_row = group / PING_PONG * 64;
  const int channel = first_row + threadIdx.x % 128 / 32 * 16;  // of this warp
  const float scale = IS_FP16 ? half_scale(*absmax_dy) : 1.f;
  float sum[TAPS][R] = {};
  Tiles::State state;
  state.advance(phase_group);
  for (int i = phase_group; i < steps.count; i += PING_PONG, state.advance(PING_PONG)) {
    const uint32_t tile = tiles.tile(state.stage());
    mbarrier_wait(CONVERTS ? converted.barrier(state.stage()) : tiles.full_barrier(state.stage()), state.parity());
    if (IN_TERMS && !BOTH) {
      multiply_terms(sum, base, tile, channel, scale);
      tiles.consumer_release(state.stage());
    } else {
      start_products(sum, tile, first_row);
      // Waits for the step before, and with ping-pong for this step, too: the other warpgroup's products keep the
      // tensor cores busy, and ptxas would serialize products that are still under way at this point.
      constexpr int PENDING = PING_PONG == 2 ? 0 : 1;
      wgmma_wait<PENDING>();
      if (i >= PENDING) tiles.consumer_release(PENDING ? state.stage_before() : state.stage());
    }
  }
  wgmma_wait<0>();
  if (PING_PONG == 2) {  // the second warpgroup's sums are added to the first's
    float* others = reinterpret_cast<float*>(smem) + threadIdx.x % 128;
    named_barrier_sync(1, CONSUMER_GROUPS * 128);  // no thread reads tiles any more
#pragma unroll
    for (int i = 0; i < TAPS * R; i++)
      if (phase_group == 1) others[i * 128] = sum[i / R][i % R];
    named_barrier_sync(1, CONSUMER_GROUPS * 128);
    if (phase_group == 1) return;
#pragma unroll
    for (int i = 0; i < TAPS * R; i++) sum[i / R][i % R] += others[i * 128];
  }
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  Unscale unscale;
  if (IS_FP16) unscale = Unscale(half_scale(*absmax_x), half_scale(*absmax_dy));
  Output* dW = part + (long)block.split * s.OC * filter_rows * s.FW * s.IC;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int oc = oc0 + channel + g + 8 * h;
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
      if (fw + tap >= s.FW) continue;
      Output* row = dW + (((long)oc * filter_rows + filter_row) * s.FW + fw + tap) * s.IC + ic0;
      store_row<BN>(oc < s.OC ? row : nullptr, s.IC - ic0, t, [&](int j) {
        return make_float2(unscale(sum[tap][j * 4 + h * 2]), unscale(sum[tap][j * 4 + h * 2 + 1]));
      });
    }
  }
}
