// Direct filter gradient for few input channels (a first layer) on tensor cores (mma.sync).
//
// GEMM: GM = 64 of OC, GN = FH FW IC, GK = N OH OW pixels, in groups of eight neighbours of an output row.
// A block walks over blocks of output rows. dY comes by cp.async in chunks of PIXELS, with STAGES stages. The rows of X
// with their padding have two buffers in shared memory, and a share of the next rows is fetched beside each chunk. A
// warp multiplies 32 channels x 8 NF filter elements over 1 / WK of each chunk. Each block writes a partial dW, and
// these are added in order.
//   MATH TF32X3   three products of tf32 terms, each 32 pixels summed apart and promoted to float32: "float32"
//   MATH TF32     operands rounded to tf32
//   MATH BF16     X, dY bfloat16; a word of X is the pair of an element and the same element of the next pixel
// An infinity or NaN of dY reaches the dW of its output channel alone, one of X also the other taps of its input
// channel.
// Grid: (blocks, ceil(OC / 64)), blocks at most the blocks of rows. Block: 256. part (blocks, OC, FH, FW, IC) float32.
// Shared memory in bytes: 3 PIXELS 72 sizeof(dY) + 8 (pixel groups of a block of rows, to whole chunks) + 2 x 4
// (words of X). The rows of X have ((rows - 1) sh + FH) ((8 ceil(OW / 8) - 1) sw + FW) IC words. Needs sm_80, channels
// of dY of whole 16 bytes.
// Macros: MATH, WN 1 | 2 | 4 and NF <= 5: 8 NF WN >= FH FW IC; RESIDENT, the blocks of an SM, with TOGETHER and HELD
// (direct/pixel_groups.cuh), which together decide the registers.
#include "common/cp_async.cuh"
#include "conv2d/direct/pixel_groups.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, ALPHA_RESIDENT)
    direct_weight_sm80(float* __restrict__ part, const Element* __restrict__ X, const Element* __restrict__ dY,
                       ConvShape s, int most_rows) {
  ALPHA_DYNAMIC_SHARED(Element, stages);  // [STAGES][PIXELS][ROW]
  PixelGroup* pixel_groups = reinterpret_cast<PixelGroup*>(stages + STAGES * PIXELS * ROW);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, oc0 = blockIdx.y * CHANNELS;
  const int wm = warp % WM, wn = warp / WM % WN, wk = warp / (WM * WN);
  const int row_taps = s.FW * s.IC, K = s.FH * row_taps, step = s.sw * s.IC, row_pixel_groups = (s.OW + 7) / 8;
  const int tasks = s.N * ((s.OH + most_rows - 1) / most_rows),
            chunks = (most_rows * row_pixel_groups + PIXEL_GROUPS - 1) / PIXEL_GROUPS;
  const Task largest(s, 0, most_rows);
  const int width = largest.rows.width, words = largest.rows.height * width;
  uint32_t* buffers = reinterpret_cast<uint32_t*>(pixel_groups + chunks * PIXEL_GROUPS);  // [2][words]
  const unsigned reciprocal = 0xffffffffu / width + 1;  // 2^32 / width, rounded up; exact within the rows

  for (int i = threadIdx.x; i < chunks * PIXEL_GROUPS; i += THREADS) {
    const int row = i / row_pixel_groups, column = i % row_pixel_groups * 8;
    const bool inside = row < most_rows;
    pixel_groups[i] = {inside ? 4 * (row * s.sh * width + column * step) : 0,
                       inside ? (row * s.OW + column) * 16 + min(8, s.OW - column) : 0};
  }
  int offset[NF];  // for this lane's column of each fragment: bytes from the pixel group's base
#pragma unroll
  for (int j = 0; j < NF; j++) {
    const int k = (wn * NF + j) * 8 + g;
    offset[j] = 4 * ((k < K ? k / row_taps * width + k % row_taps : 0) + t * (IS_BF16 ? 2 : 1) * step);
  }

  // The i-th word of the share of X that this thread loads beside `chunk`.
  const int share = (words + chunks * THREADS - 1) / (chunks * THREADS);
  auto word_of = [&](int chunk, int i) { return (chunk * share + i) * THREADS + int(threadIdx.x); };
  auto fetch = [&](const Task& task, int word) {
    const int r = __umulhi(word, reciprocal);
    return task.rows.at(X + (long)task.image * s.IH * s.IW * s.IC, s, r, word - r * width);
  };
  for (int i = threadIdx.x; i < words; i += THREADS) put(buffers, i, step, fetch(Task(s, blockIdx.x, most_rows), i));
  __syncthreads();  // the pixel groups are written

  // Loads the next chunk of dY: each thread loads 16 bytes of a pixel, all threads PER_ROUND pixel groups per round.
  constexpr int PER_ROUND = THREADS / (8 * VECTORS), ROUNDS = PIXEL_GROUPS / PER_ROUND;
  const int my_pixel_group = threadIdx.x / (8 * VECTORS), my_pixel = threadIdx.x / VECTORS % 8;
  const int my_channel = threadIdx.x % VECTORS * VECTOR;
  const uint32_t target = shared_address(stages + (my_pixel_group * 8 + my_pixel) * ROW + my_channel);
  const int my_limit = oc0 + my_channel < s.OC ? my_pixel : 8;  // this thread's pixel exists in groups with more pixels
  int ahead_task = blockIdx.x, ahead_chunk = 0, ahead_stage = 0, ahead_pixel_groups = 0;
  const Element* ahead = dY;
  auto bring = [&] {
    if (ahead_task < tasks) {
      if (ahead_chunk == 0) {
        const Task task(s, ahead_task, most_rows);
        ahead = dY + (((long)task.image * s.OH + task.rows.oh0) * s.OW + my_pixel) * s.OC + oc0 + my_channel;
        ahead_pixel_groups = task.rows.rows * row_pixel_groups;
      }
#pragma unroll
      for (int q = 0; q < ROUNDS; q++) {
        const int o = ahead_chunk * PIXEL_GROUPS + q * PER_ROUND + my_pixel_group, at = pixel_groups[o].pixel_and_count;
        const bool inside = my_limit < (at & 15) && o < ahead_pixel_groups;
        cp_async<16>(target + (ahead_stage * PIXELS + q * PER_ROUND * 8) * ROW * int(sizeof(Element)),
                     ahead + (long)(at >> 4) * s.OC, inside ? 16 : 0);
      }
      ahead_stage = ahead_stage == STAGES - 1 ? 0 : ahead_stage + 1;
      if (++ahead_chunk == chunks) ahead_chunk = 0, ahead_task += gridDim.x;
    }
    cp_async_commit();
  };
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) bring();

  float acc[MF][NF][4] = {};
  int stage = 0;
  uint32_t* x_rows = buffers;
  for (int task = blockIdx.x; task < tasks; task += gridDim.x) {
    uint32_t* next_rows = x_rows == buffers ? buffers + words : buffers;
    const bool has_next = task + int(gridDim.x) < tasks;
    const Task next(s, task + gridDim.x, most_rows);
    for (int chunk = 0; chunk < chunks; chunk++) {
      cp_async_wait<STAGES - 2>();
      __syncthreads();  // this chunk and these rows are there, the chunk before has been read
      bring();
      Element held[HELD];
#pragma unroll
      for (int i = 0; i < HELD; i++)
        if (has_next && i < share && word_of(chunk, i) < words) held[i] = fetch(next, word_of(chunk, i));

      const Element* d = stages + stage * PIXELS * ROW + wm * 16 * MF;
#pragma unroll 1
      for (int first = wk * SHARE; first < (wk + 1) * SHARE; first += TOGETHER) {
        float sum[MF][NF][4] = {};
#pragma unroll
        for (int o = 0; o < TOGETHER; o += IS_BF16 ? 2 : 1) {
          const PixelGroup* pixel_group = pixel_groups + chunk * PIXEL_GROUPS + first + o;
          const char* x = reinterpret_cast<const char*>(x_rows) + pixel_group->base;
          const char* x_next = IS_BF16 ? reinterpret_cast<const char*>(x_rows) + pixel_group[1].base : x + 16 * step;
          multiply(sum, d, (first + o) * 8, x, x_next, offset);
        }
#pragma unroll
        for (int m = 0; m < MF; m++)
#pragma unroll
          for (int j = 0; j < NF; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) acc[m][j][e] += sum[m][j][e];
      }

#pragma unroll
      for (int i = 0; i < HELD; i++)
        if (has_next && i < share && word_of(chunk, i) < words) put(next_rows, word_of(chunk, i), step, held[i]);
      for (int i = HELD; i < share && has_next; i++)
        if (word_of(chunk, i) < words) put(next_rows, word_of(chunk, i), step, fetch(next, word_of(chunk, i)));
      stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
    x_rows = next_rows;
  }  // every copy has been waited for: the groups after the last chunk are empty

  // The warps with the other pixels pass their sums on through shared memory, one after the other.
  float* sums = reinterpret_cast<float*>(stages) + (wn * WM + wm) * MF * NF * 4 * 32 + lane;
  for (int giver = 1; giver < WK; giver++) {
    __syncthreads();
    if (wk == giver)
#pragma unroll
      for (int r = 0; r < MF * NF * 4; r++) sums[r * 32] = acc[r / (NF * 4)][r / 4 % NF][r % 4];
    __syncthreads();
    if (wk == 0)
#pragma unroll
      for (int r = 0; r < MF * NF * 4; r++) acc[r / (NF * 4)][r / 4 % NF][r % 4] += sums[r * 32];
  }
  if (wk != 0) return;
  float* dW = part + (long)blockIdx.x * s.OC * K;
#pragma unroll
  for (int m = 0; m < MF; m++)
#pragma unroll
    for (int j = 0; j < NF; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int oc = oc0 + wm * 16 * MF + m * 16 + (e >> 1) * 8 + g, k = (wn * NF + j) * 8 + t * 2 + (e & 1);
        if (oc < s.OC && k < K) dW[(long)oc * K + k] = acc[m][j][e];
      }
}
