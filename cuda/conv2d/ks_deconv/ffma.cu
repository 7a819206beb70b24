// KS-deconv, stages 2 and 3, of any shape on FFMA (Algorithm 2): one residue (y, x) per layer of the grid.
//
// dX[n, ih, iw, ic] = sum over (ch, cw), oc of dY[n, oh_s + ch, ow_s + cw, oc] C[y, x][ch, cw][ic, oc]
// GM = N U V (pixels of the residue), GN = IC, GK = CH CW OC. C is the result of stage 1 (ks_deconv/split_filter.cu).
// Grid: (ceil(max GM / 64), ceil(IC / 64), sh sw). Block: 256. Takes any shape.
#include "common/gemm_ffma.cuh"
#include "conv2d/shape.cuh"

struct InputGradientProblem {
  struct Row {
    long base;  // of image n in dY
    int oh, ow;
    bool valid;
  };
  struct Column {
    long base;
    bool valid;
  };
  struct Step {
    int ch, cw, oc;
    long filter;
  };
  const float *dY, *C;
  float* dX;
  ConvShape s;
  int M, N, CH, CW, ih_s, iw_s, U, V;  // pixels ih_s + u sh, iw_s + v sw

  __device__ Row row(int m) const {
    const int v = m % max(V, 1), u = m / max(V, 1) % max(U, 1), n = m / max(U * V, 1);
    const SplitPixel h = split_pixel(ih_s + u * s.sh, height_of(s)), w = split_pixel(iw_s + v * s.sw, width_of(s));
    return {(long)n * s.OH * s.OW * s.OC, h.first, w.first, m < M};
  }
  __device__ Column column(int n) const { return {(long)n * s.OC, n < N}; }
  __device__ Step step(int k) const {
    const int tap = k / s.OC, oc = k % s.OC;
    return {tap / max(CW, 1), tap % max(CW, 1), oc, (long)tap * s.IC * s.OC + oc};
  }
  __device__ bool meets(const Row& r, const Column&, const Step& t) const {
    const int oh = r.oh + t.ch, ow = r.ow + t.cw;
    return r.valid && oh >= 0 && oh < s.OH && ow >= 0 && ow < s.OW;
  }
  __device__ float a(const Row& r, const Step& t) const {
    return meets(r, {}, t) ? dY[r.base + (long)((r.oh + t.ch) * s.OW + r.ow + t.cw) * s.OC + t.oc] : 0.f;
  }
  __device__ float b(const Column& c, const Step& t) const { return c.valid ? C[t.filter + c.base] : 0.f; }
  __device__ void store(int m, int n, float value) const {
    const int v = m % V, u = m / V % U, image = m / (U * V);
    const long pixel = ((long)image * s.IH + ih_s + u * s.sh) * s.IW + iw_s + v * s.sw;
    dX[pixel * s.IC + n] = value;
  }
};

extern "C" __global__ void __launch_bounds__(256, 3)
    ks_deconv_ffma(float* __restrict__ dX, const float* __restrict__ dY, const float* __restrict__ C, ConvShape s) {
  const int y = blockIdx.z / s.sw, x = blockIdx.z % s.sw;
  const int CH = split_size(y, s.FH, s.sh), CW = split_size(x, s.FW, s.sw);
  // the first pixel of the residue
  const int ih_s = ((y - s.ph) % s.sh + s.sh) % s.sh, iw_s = ((x - s.pw) % s.sw + s.sw) % s.sw;
  const int U = ih_s < s.IH ? (s.IH - ih_s - 1) / s.sh + 1 : 0, V = iw_s < s.IW ? (s.IW - iw_s - 1) / s.sw + 1 : 0;
  const int before = split_begin(0, y, x, s);
  InputGradientProblem p;
  p.dY = dY;
  p.C = C + (long)before * s.IC * s.OC;
  p.dX = dX;
  p.s = s;
  p.M = s.N * U * V;
  p.N = s.IC;
  p.CH = CH;
  p.CW = CW;
  p.ih_s = ih_s;
  p.iw_s = iw_s;
  p.U = U;
  p.V = V;
  if ((int)(blockIdx.x * ALPHA_BM) >= p.M) return;
  GemmFfma<InputGradientProblem, true, true>::run(p, blockIdx.x * ALPHA_BM, blockIdx.y * ALPHA_BN, 0, CH * CW * s.OC);
}
