// Convolutions with groups and dilation of any shape on FFMA: the kernels for what no other kernel takes.
//
// With groups of IG input and OG output channels, g the group of a channel, and all taps outside of the map left out:
//   grouped_forward  Y[n, oh, ow, oc] = f(sum over fh, fw, i < IG
//                      of X[n, oh sh - ph + fh dh, .., g IG + i] W[oc, fh, fw, i] + b)
//   grouped_input    dX[n, ih, iw, ic] = f(sum over the taps with (ih + ph - fh dh) % sh == 0, .., o < OG
//                      of dY[n, (ih + ph - fh dh) / sh, .., g OG + o] W[g OG + o, fh, fw, ic % IG] + b)
//   grouped_weight   dW[oc, fh, fw, i] = sum over n, oh, ow of X[n, oh sh - ph + fh dh, .., g IG + i] dY[n, oh, ow, oc]
// A thread computes one result; neighbouring threads have neighbouring channels. Grid: ceil(results / 256), of
// grouped_weight by splits of the rows of all images. Block: 256. Macros: TYPE float | bfloat16.
#include "common/bfloat16.cuh"
#include "common/rectifier.cuh"
#include "common/vector.cuh"
#include "conv2d/shape.cuh"

using T = ALPHA_TYPE;
constexpr int THREADS = 256;

__device__ __forceinline__ float number(const T* source) { return load_pack<1>(source).v[0]; }

__device__ __forceinline__ void store_result(T* target, float sum, const float* bias, float slope) {
  if (bias != nullptr) sum += *bias;
  store_pack(target, Pack<float, 1>{Rectifier<float>{slope}(sum)});
}

// Taps, d apart, of output o that meet the input.
__device__ __forceinline__ Range dilated_taps(int o, int size, int F, int s, int p, int d) {
  const int first = o * s - p, last = size - first;
  return {first < 0 ? (-first + d - 1) / d : 0, last > 0 ? min(F, (last + d - 1) / d) : 0};
}

extern "C" __global__ void __launch_bounds__(THREADS)
    grouped_forward(T* __restrict__ Y, const T* __restrict__ X, const T* __restrict__ W, const float* __restrict__ bias,
                    float slope, GroupedShape s) {
  const long i = long(blockIdx.x) * THREADS + threadIdx.x, pixel = i / s.OC;
  if (pixel >= long(s.N) * s.OH * s.OW) return;
  const int oc = i % s.OC, ow = pixel % s.OW, oh = pixel / s.OW % s.OH, IG = s.IC / s.groups;
  const T* image = X + pixel / (s.OW * s.OH) * s.IH * s.IW * s.IC + oc / (s.OC / s.groups) * IG;
  const T* w = W + long(oc) * s.FH * s.FW * IG;
  const Range rows = dilated_taps(oh, s.IH, s.FH, s.sh, s.ph, s.dh),
              columns = dilated_taps(ow, s.IW, s.FW, s.sw, s.pw, s.dw);
  float sum = 0;
  for (int fh = rows.begin; fh < rows.end; fh++)
    for (int fw = columns.begin; fw < columns.end; fw++) {
      const T* x = image + (long(oh * s.sh - s.ph + fh * s.dh) * s.IW + ow * s.sw - s.pw + fw * s.dw) * s.IC;
#pragma unroll 4
      for (int c = 0; c < IG; c++) sum += number(x + c) * number(w + (fh * s.FW + fw) * IG + c);
    }
  store_result(Y + i, sum, bias == nullptr ? nullptr : bias + oc, slope);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    grouped_input(T* __restrict__ dX, const T* __restrict__ dY, const T* __restrict__ W, const float* __restrict__ bias,
                  float slope, GroupedShape s) {
  const long i = long(blockIdx.x) * THREADS + threadIdx.x, pixel = i / s.IC;
  if (pixel >= long(s.N) * s.IH * s.IW) return;
  const int ic = i % s.IC, iw = pixel % s.IW, ih = pixel / s.IW % s.IH;
  const int IG = s.IC / s.groups, OG = s.OC / s.groups, oc = ic / IG * OG, taps = s.FH * s.FW;
  const T* image = dY + pixel / (s.IW * s.IH) * s.OH * s.OW * s.OC + oc;
  const T* w = W + long(oc) * taps * IG + ic % IG;
  float sum = 0;
  for (int fh = 0; fh < s.FH; fh++) {
    const int h = ih + s.ph - fh * s.dh, oh = h / s.sh;
    if (h < 0 || h % s.sh != 0 || oh >= s.OH) continue;
    for (int fw = 0; fw < s.FW; fw++) {
      const int v = iw + s.pw - fw * s.dw, ow = v / s.sw;
      if (v < 0 || v % s.sw != 0 || ow >= s.OW) continue;
      const T* y = image + (long(oh) * s.OW + ow) * s.OC;
#pragma unroll 4
      for (int c = 0; c < OG; c++) sum += number(y + c) * number(w + (long(c) * taps + fh * s.FW + fw) * IG);
    }
  }
  store_result(dX + i, sum, bias == nullptr ? nullptr : bias + ic, slope);
}

// The threads of a warp have neighbouring output channels. Each split of gridDim.y has a partial sum.
extern "C" __global__ void __launch_bounds__(THREADS)
    grouped_weight(float* __restrict__ part, const T* __restrict__ X, const T* __restrict__ dY, GroupedShape s) {
  const int IG = s.IC / s.groups, results = s.OC * s.FH * s.FW * IG, i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= results) return;
  const int oc = i % s.OC, k = i / s.OC, c = k % IG, fw = k / IG % s.FW, fh = k / (IG * s.FW);
  const int first_row = fh * s.dh - s.ph, first_column = fw * s.dw - s.pw;
  const Range columns = valid_outputs(fw, width_of(s));
  const int rows = s.N * s.OH, split = (rows + gridDim.y - 1) / gridDim.y,
            last = min(rows, int(blockIdx.y + 1) * split);
  float sum = 0;
  for (int row = blockIdx.y * split; row < last; row++) {
    const int ih = row % s.OH * s.sh + first_row;
    if (unsigned(ih) >= unsigned(s.IH)) continue;
    const T* x = X + (long(row / s.OH) * s.IH + ih) * s.IW * s.IC + oc / (s.OC / s.groups) * IG + c;
    const T* y = dY + long(row) * s.OW * s.OC + oc;
    for (int ow = columns.begin; ow < columns.end; ow++)
      sum += number(x + long(ow * s.sw + first_column) * s.IC) * number(y + long(ow) * s.OC);
  }
  part[long(blockIdx.y) * results + (long(oc) * s.FH * s.FW + fh * s.FW + fw) * IG + c] = sum;
}
