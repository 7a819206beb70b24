// Direct forward convolution of images of few channels (a first layer) on FFMA.
//
// Y[n, oh, ow, oc] = sum over fh, fw, ic of X[n, oh sh - ph + fh, ow sw - pw + fw, ic] W[oc, fh, fw, ic]
// A block takes some output rows of one image and 64 output channels. It holds in shared memory the filters, [k][oc],
// and the rows of X with their padding, so that the taps of a filter row are consecutive floats and need no test.
// A thread computes 4 pixels x 16 channels: 64 FFMA for 4 loads of X (one pixel per lane) and 4 of W (a broadcast).
// Grid: (N ceil(OH / rows), ceil(OC / 64)). Block: 128, one warp per 16 channels.
// Shared memory: 32 68 + FH FW IC 68 + ((rows - 1) sh + FH) ((OW - 1) sw + FW) IC floats. Takes any shape.
#include "conv2d/direct/input_rows.cuh"

constexpr int CHANNELS = 64, FILTER_ROW = CHANNELS + 4, GROUP = 16, PIXELS = 4, THREADS = 128;

extern "C" __global__ void __launch_bounds__(THREADS)
    direct_forward_ffma(float* __restrict__ Y, const float* __restrict__ X, const float* __restrict__ W, ConvShape s,
                        int rows) {
  ALPHA_DYNAMIC_SHARED(float, filters);
  __shared__ __align__(16) float staged[32][FILTER_ROW];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, oc0 = blockIdx.y * CHANNELS;
  const int row_taps = s.FW * s.IC, K = s.FH * row_taps;
  float* x_rows = filters + K * FILTER_ROW;

  for (int oc = warp; oc < CHANNELS; oc += THREADS / 32)
    for (int k = lane; k < K; k += 32)
      filters[k * FILTER_ROW + oc] = oc0 + oc < s.OC ? W[(long)(oc0 + oc) * K + k] : 0.f;
  const int row_blocks = (s.OH + rows - 1) / rows, n = blockIdx.x / row_blocks;
  const InputRows b(s, blockIdx.x % row_blocks * rows, rows);
  b.load(x_rows, X + (long)n * s.IH * s.IW * s.IC, s);
  __syncthreads();

  const int pixels = b.rows * s.OW, group = warp * GROUP;
  for (int first = 0; first < pixels; first += 32 * PIXELS) {
    const float* x[PIXELS];
#pragma unroll
    for (int i = 0; i < PIXELS; i++) {
      const int pixel = min(first + i * 32 + lane, pixels - 1);  // beyond the rows: computed, not stored
      x[i] = x_rows + pixel / s.OW * s.sh * b.width + pixel % s.OW * s.sw * s.IC;
    }
    float acc[PIXELS][GROUP] = {};
    const float* w = filters + group;
    for (int fh = 0; fh < s.FH; fh++) {
#pragma unroll 3
      for (int k = 0; k < row_taps; k++, w += FILTER_ROW) {
        float v[PIXELS];
#pragma unroll
        for (int i = 0; i < PIXELS; i++) v[i] = x[i][fh * b.width + k];
#pragma unroll
        for (int j = 0; j < GROUP; j += 4) {
          const float4 f = *reinterpret_cast<const float4*>(w + j);
#pragma unroll
          for (int i = 0; i < PIXELS; i++) {
            acc[i][j + 0] += v[i] * f.x;
            acc[i][j + 1] += v[i] * f.y;
            acc[i][j + 2] += v[i] * f.z;
            acc[i][j + 3] += v[i] * f.w;
          }
        }
      }
    }
    // 32 pixels at a time through shared memory, so that a warp stores whole rows of channels
#pragma unroll
    for (int i = 0; i < PIXELS; i++) {
      __syncthreads();  // the previous pixels are stored
#pragma unroll
      for (int j = 0; j < GROUP; j += 4)
        *reinterpret_cast<float4*>(&staged[lane][group + j]) =
            make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
      __syncthreads();
      for (int e = threadIdx.x; e < 32 * CHANNELS; e += THREADS) {
        const int pixel = first + i * 32 + e / CHANNELS, oc = oc0 + e % CHANNELS;
        if (pixel < pixels && oc < s.OC)
          Y[(((long)n * s.OH + b.oh0) * s.OW + pixel) * s.OC + oc] = staged[e / CHANNELS][e % CHANNELS];
      }
    }
  }
}
