// Direct filter gradient for few input channels (a first layer) on FFMA.
//
// dW[oc, k] = sum over the pixels (n, oh, ow) of dY[n, oh, ow, oc] X[.. at tap and channel k]
// A block walks over blocks of output rows. It holds the rows of X with their padding in shared memory; a row of dY (64
// channels) is 256 contiguous bytes that all warps read. A thread sums 4 channels x KT elements k over every P-th
// pixel: one 16-byte load of dY and KT loads of X (a broadcast) for 4 KT FFMA. Each block writes P partial dW.
// Grid: (blocks, ceil(OC / 64)). Block: 16 KG P threads rounded up to warps, KG = ceil(FH FW IC / KT).
// Shared memory: ((rows - 1) sh + FH) ((OW - 1) sw + FW) IC floats (dynamic). Needs OC % 4 == 0. Macros: KT, P.
#include "conv2d/direct/input_rows.cuh"

constexpr int KT = ALPHA_KT, P = ALPHA_P, CHANNELS = 64, AHEAD = 4;  // pixels whose dY is fetched ahead

extern "C" __global__ void __launch_bounds__(256, 2)
    direct_weight_ffma(float* __restrict__ part, const float* __restrict__ X, const float* __restrict__ dY, ConvShape s,
                       int most_rows) {
  ALPHA_DYNAMIC_SHARED(float, x_rows);
  const int row_taps = s.FW * s.IC, K = s.FH * row_taps, KG = (K + KT - 1) / KT;
  const int oc = blockIdx.y * CHANNELS + threadIdx.x % 16 * 4, k0 = threadIdx.x / 16 % KG * KT,
            group = threadIdx.x / (16 * KG);
  const bool is_active = group < P && oc < s.OC;
  const int row_blocks = (s.OH + most_rows - 1) / most_rows;
  const int width = ((s.OW - 1) * s.sw + s.FW) * s.IC;
  int offset[KT];  // of element k within the rows of X, from the pixel's base
#pragma unroll
  for (int j = 0; j < KT; j++) {
    const int k = min(k0 + j, K - 1);
    offset[j] = k / row_taps * width + k % row_taps;
  }
  float acc[KT][4] = {};
  for (int task = blockIdx.x; task < s.N * row_blocks; task += gridDim.x) {
    const InputRows b(s, task % row_blocks * most_rows, most_rows);
    __syncthreads();  // the previous rows have been read
    b.load(x_rows, X + (long)(task / row_blocks) * s.IH * s.IW * s.IC, s);
    __syncthreads();
    if (!is_active) continue;
    const float* gradient = dY + ((long)(task / row_blocks) * s.OH + b.oh0) * s.OW * s.OC + oc;
    const int pixels = b.rows * s.OW;
    auto fetch = [&](int first, float4(&g)[AHEAD]) {
#pragma unroll
      for (int i = 0; i < AHEAD; i++)
        if (first + i * P < pixels) g[i] = *reinterpret_cast<const float4*>(gradient + (long)(first + i * P) * s.OC);
    };
    int row = 0, column = group;
    float4 g[AHEAD], next[AHEAD];
    fetch(group, g);
    for (int pixel = group; pixel < pixels; pixel += AHEAD * P) {
      fetch(pixel + AHEAD * P, next);  // under way while these are multiplied
#pragma unroll
      for (int i = 0; i < AHEAD; i++) {
        if (pixel + i * P >= pixels) break;
        while (column >= s.OW) column -= s.OW, row++;
        const float* base = x_rows + row * s.sh * width + column * s.sw * s.IC;
        column += P;
#pragma unroll
        for (int j = 0; j < KT; j++) {
          const float x = base[offset[j]];
          acc[j][0] += g[i].x * x;
          acc[j][1] += g[i].y * x;
          acc[j][2] += g[i].z * x;
          acc[j][3] += g[i].w * x;
        }
      }
#pragma unroll
      for (int i = 0; i < AHEAD; i++) g[i] = next[i];
    }
  }
  if (!is_active) return;
  float* dW = part + ((long)blockIdx.x * P + group) * s.OC * K;
#pragma unroll
  for (int j = 0; j < KT; j++)
    if (k0 + j < K)
#pragma unroll
      for (int c = 0; c < 4; c++) dW[(long)(oc + c) * K + k0 + j] = acc[j][c];
}
