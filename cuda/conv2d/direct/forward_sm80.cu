// Direct forward convolution of images of few channels (a first layer) on tensor cores (mma.sync).
//
// GEMM: GM = N OH OW pixels, GN = OC, GK = FH FW IC, with each filter row padded to an even length and all to 32
// BLOCKS. A block walks over blocks of output rows. It holds in shared memory the filters of 64 output channels as
// fragments, and the rows of X with their padding. Each word of these is the pair of an element and the next one, so
// that two neighbours of K are one word wherever the pixel begins, and need no test. A warp computes 16 MT pixels x 64
// channels.
//   MATH FP16X3   fp16 terms hi + lo, scaled by the largest finite magnitude of the rows: hi hi + hi lo + lo hi; each
//                 32 of K are summed apart and promoted to float32: "float32"
//   MATH FP16     one scaled fp16 term, 11 bits: "tf32"
//   MATH BF16     X, W, Y bfloat16
// With EPILOGUE 1 a bias, which may be null, and a rectifier of `slope` follow. With MAGNITUDE 1 `magnitude_of_Y` gets
// the bits of the largest finite magnitude of Y, and the blocks meet in two words `meeting`, which are 0 before and
// again at the end.
// The columns of the fragments are channels in such an order that a lane has 16 contiguous bytes of Y.
// An infinity or NaN of X or W may also reach pixels of the same rows to which it does not belong.
// Grid: (blocks, ceil(OC / 64)), any number of blocks. Block: 128.
// Shared memory: BLOCKS (4096 TERMS + 64) + 4 TERMS ((rows - 1) sh + FH) ((OW - 1) sw + FW) IC bytes, and 400 static.
// Needs sm_80; takes any shape. Macros: MATH, EPILOGUE, MAGNITUDE, BLOCKS = ceil(FH even(FW IC) / 32); RESIDENT,
// the blocks of an SM, and LOADS, those under way in a thread, which together decide the registers.
#include "common/largest.cuh"
#include "common/rectifier.cuh"
#include "conv2d/direct/input_rows.cuh"
#include "conv2d/direct/channel_pairs.cuh"

constexpr int BLOCKS = ALPHA_BLOCKS, STEPS = 2 * BLOCKS, CHANNELS = 64, NF = CHANNELS / 8;
// With one block of K the filters stay in registers. With more they are read again, for two tiles and half of the
// columns.
constexpr int MT = BLOCKS == 1 ? 1 : 2, NJ = BLOCKS == 1 ? NF : NF / 2;
constexpr bool EPILOGUE = ALPHA_EPILOGUE, MAGNITUDE = ALPHA_MAGNITUDE;
constexpr int LOADS = ALPHA_LOADS;

extern "C" __global__ void __launch_bounds__(THREADS, ALPHA_RESIDENT)
    direct_forward_sm80(Element* __restrict__ Y, const Element* __restrict__ X, const Element* __restrict__ W,
                        const float* __restrict__ bias, float slope, unsigned* magnitude_of_Y, unsigned* meeting,
                        ConvShape s, int most_rows) {
  ALPHA_DYNAMIC_SHARED(FilterPairs, filters);                        // [STEPS][NF][32]
  int* offsets = reinterpret_cast<int*>(filters + STEPS * NF * 32);  // of each pair of K: bytes from the pixel's base
  uint32_t* x_rows = reinterpret_cast<uint32_t*>(offsets + STEPS * 8);  // [TERMS][term_stride]
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, oc0 = blockIdx.y * CHANNELS;
  const int row_taps = s.FW * s.IC, even_taps = (row_taps + 1) & ~1, K = s.FH * row_taps;
  const int row_blocks = (s.OH + most_rows - 1) / most_rows, step = s.sw * s.IC;
  const InputRows largest_rows(s, 0, most_rows);
  const int width = largest_rows.width, term_stride = largest_rows.height * width;

  unsigned largest = 0, largest_of_Y = 0;
  const Element* filter = W + (long)oc0 * K;
  const int channels = min(CHANNELS, s.OC - oc0);
  __shared__ Pack<float, 4> biases[CHANNELS / 4];
  if (EPILOGUE && threadIdx.x < CHANNELS)
    biases[threadIdx.x / 4].v[threadIdx.x % 4] =
        bias != nullptr && threadIdx.x < channels ? bias[oc0 + threadIdx.x] : 0;
  if (!IS_BF16)
    for (int i = threadIdx.x * VECTOR; i < channels * K; i += THREADS * VECTOR) {
      if (i + VECTOR <= channels * K) {
        const auto w = *reinterpret_cast<const Pack<Element, VECTOR>*>(filter + i);
#pragma unroll
        for (int e = 0; e < VECTOR; e++) largest = max(largest, magnitude(w.v[e]));
      } else {
        for (int e = i; e < channels * K; e++) largest = max(largest, magnitude(filter[e]));
      }
    }
  const float filter_scale = block_scale(largest);
#pragma unroll 2
  for (int k = 0; k < STEPS; k++) {
    FilterPairs pairs[NF / WARPS];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int fh = (k * 16 + t * 2 + r * 8) / even_taps, c = k * 16 + t * 2 + r * 8 - fh * even_taps;
#pragma unroll
      for (int i = 0; i < NF / WARPS; i++) {
        const int oc = channel(warp + i * WARPS, g);
        const Element* w = filter + oc * K + fh * row_taps + c;
        const bool inside = oc < channels && fh < s.FH;
        const Pair pair =
            make_pair(inside ? w[0] : Element(0), inside && c + 1 < row_taps ? w[1] : Element(0), filter_scale);
#pragma unroll
        for (int p = 0; p < TERMS; p++) pairs[i].v[2 * p + r] = pair.v[p];
      }
    }
#pragma unroll
    for (int i = 0; i < NF / WARPS; i++) filters[(k * NF + warp + i * WARPS) * 32 + lane] = pairs[i];
  }
  for (int i = threadIdx.x; i < STEPS * 8; i += THREADS) {
    const int fh = 2 * i / even_taps;
    offsets[i] = fh < s.FH ? 4 * (fh * width + 2 * i % even_taps) : 0;  // beyond the filter: times zero
  }
  __syncthreads();

  uint32_t b[2][TERMS][NJ][2];
  auto load_filters = [&](int block, int first) {
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
      for (int j = 0; j < NJ; j++) {
        const FilterPairs pairs = filters[((block * 2 + k) * NF + first + j) * 32 + lane];
#pragma unroll
        for (int p = 0; p < TERMS; p++) b[k][p][j][0] = pairs.v[2 * p], b[k][p][j][1] = pairs.v[2 * p + 1];
      }
  };
  if (BLOCKS == 1) load_filters(0, 0);
  const unsigned reciprocal = 0xffffffffu / s.OW + 1;  // 2^32 / OW, rounded up; exact for the pixels of a task
  for (int task = blockIdx.x; task < s.N * row_blocks; task += gridDim.x) {
    const InputRows in(s, task % row_blocks * most_rows, most_rows);
    const Element* image = X + (long)(task / row_blocks) * s.IH * s.IW * s.IC;
    largest = 0;
    // A warp takes parts of rows of 31 pairs each: the second element of a pair is that of the lane's right neighbour.
    // A warp loads LOADS parts before it uses one. If it has more, it loads them once for the scale and again for the
    // pairs.
    const int row_parts = (width + 30) / 31, parts = in.height * row_parts;
    const unsigned part_reciprocal = 0xffffffffu / row_parts + 1;
    auto place_of = [&](int part, int& r, int& c) {
      r = row_parts == 1 ? part : __umulhi(part, part_reciprocal);
      c = (part - r * row_parts) * 31 + lane;
      return part < parts;
    };
    Element x[LOADS];
    auto fetch = [&](int first) {
#pragma unroll
      for (int i = 0, r, c; i < LOADS; i++)
        x[i] = place_of(first + i * WARPS, r, c) ? in.at(image, s, r, c) : Element(0);
    };
    if (!IS_BF16)
      for (int first = warp; first < parts; first += WARPS * LOADS) {
        fetch(first);
#pragma unroll
        for (int i = 0; i < LOADS; i++) largest = max(largest, magnitude(x[i]));
      }
    const float scale = block_scale(largest);  // its barrier: all have read the rows before
    for (int first = warp; first < parts; first += WARPS * LOADS) {
      if (IS_BF16 || parts > WARPS * LOADS) fetch(first);
#pragma unroll
      for (int i = 0, r, c; i < LOADS; i++) {
        const Element right = of_right_lane(x[i]);
        if (place_of(first + i * WARPS, r, c) & lane < 31 & c < width) {
          const Pair pair = make_pair(x[i], right, scale);
#pragma unroll
          for (int p = 0; p < TERMS; p++) x_rows[p * term_stride + r * width + c] = pair.v[p];
        }
      }
    }
    __syncthreads();

    const Unscale unscale(scale, filter_scale);
    const SlopeRectifier rectified(slope);
    const int pixels = in.rows * s.OW;
    Element* out = Y + ((long)(task / row_blocks) * s.OH + in.oh0) * s.OW * s.OC + oc0;
    for (int first = warp * 16 * MT; first < pixels; first += WARPS * 16 * MT) {
      const char* base[MT][2];
#pragma unroll
      for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int pixel = min(first + m * 16 + h * 8 + g, pixels - 1);  // beyond the rows: computed, not stored
          const int row = s.OW == 1 ? pixel : __umulhi(pixel, reciprocal);
          base[m][h] = reinterpret_cast<const char*>(x_rows + row * s.sh * width + (pixel - row * s.OW) * step);
        }
      float acc[MT][NF][4] = {};
#pragma unroll 1
      for (int block = 0; block < BLOCKS; block++) {
        uint32_t a[2][MT][TERMS][4];
#pragma unroll
        for (int k = 0; k < 2; k++) {
          const int* offset = offsets + (block * 2 + k) * 8 + t;
          const int left = offset[0], right = offset[4];
#pragma unroll
          for (int m = 0; m < MT; m++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
              const char* word = base[m][e & 1] + (e < 2 ? left : right);
#pragma unroll
              for (int p = 0; p < TERMS; p++) a[k][m][p][e] = word_at(word + 4 * p * term_stride);
            }
        }
#pragma unroll
        for (int j0 = 0; j0 < NF; j0 += NJ) {
          if (BLOCKS > 1) load_filters(block, j0);
          float sum[MT][NJ][4] = {};
#pragma unroll
          for (int k = 0; k < 2; k++)
#pragma unroll
            for (int product = TERMS == 2 ? 0 : 2; product < 3; product++)  // lo hi, hi lo, hi hi
#pragma unroll
              for (int m = 0; m < MT; m++)
                multiply(sum[m], a[k][m][product == 0 ? TERMS - 1 : 0], b[k][product == 1 ? TERMS - 1 : 0]);
#pragma unroll
          for (int m = 0; m < MT; m++)
#pragma unroll
            for (int j = 0; j < NJ; j++)
#pragma unroll
              for (int e = 0; e < 4; e++)
                acc[m][j0 + j][e] = BLOCKS == 1 ? sum[m][j][e] : acc[m][j0 + j][e] + sum[m][j][e];
        }
      }
#pragma unroll
      for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int pixel = first + m * 16 + h * 8 + g;
          if (pixel >= pixels) continue;
#pragma unroll
          for (int q = 0; q < CHANNELS / (4 * VECTOR); q++) {
            const int c = (q * 4 + t) * VECTOR;
            Pack<float, VECTOR> v;
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
              v.v[i] = acc[m][q * (VECTOR / 2) + i / 2][2 * h + i % 2];
              if (!IS_BF16) v.v[i] = unscale(v.v[i]);
              if (EPILOGUE) v.v[i] = rectified(v.v[i] + biases[(c + i) / 4].v[i % 4]);
              if (MAGNITUDE) largest_of_Y = max(largest_of_Y, finite_magnitude(v.v[i]));
            }
            store_vector(out + (long)pixel * s.OC + c, v, channels - c, s.OC % VECTOR == 0);
          }
        }
    }
  }
  if (MAGNITUDE) write_largest(magnitude_of_Y, meeting, largest_of_Y, gridDim.x * gridDim.y);
}
