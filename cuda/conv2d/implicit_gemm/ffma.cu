// Forward convolution of any shape as an implicit GEMM on FFMA: Y[m, oc] = sum over k of patch(m, k) W[oc, k].
//
// GM = N OH OW (m = output pixel), GN = OC, GK = FH FW IC (k = tap and channel, the order of W's memory).
// Grid: (ceil(GM / 64), ceil(GN / 64)). Block: 256. Takes any shape; padded zeros are predicated.
#include "common/gemm_ffma.cuh"
#include "conv2d/shape.cuh"

struct ForwardProblem {
  struct Row {
    long base;  // of image n
    int ih, iw;
    bool valid;
  };
  struct Column {
    long base;
    bool valid;
  };
  struct Step {
    int fh, fw, ic, k;
  };
  const float *X, *W;
  float* Y;
  ConvShape s;
  int M, N, K;

  __device__ Row row(int m) const {
    const int ow = m % s.OW, oh = m / s.OW % s.OH, n = m / (s.OW * s.OH);
    return {(long)n * s.IH * s.IW * s.IC, oh * s.sh - s.ph, ow * s.sw - s.pw, m < M};
  }
  __device__ Column column(int n) const { return {(long)n * K, n < N}; }
  __device__ Step step(int k) const {
    const int tap = k / s.IC;
    return {tap / s.FW, tap % s.FW, k % s.IC, k};
  }
  __device__ bool meets(const Row& r, const Column&, const Step& t) const {
    const int ih = r.ih + t.fh, iw = r.iw + t.fw;
    return r.valid && ih >= 0 && ih < s.IH && iw >= 0 && iw < s.IW;
  }
  __device__ float a(const Row& r, const Step& t) const {
    return meets(r, {}, t) ? X[r.base + (long)((r.ih + t.fh) * s.IW + r.iw + t.fw) * s.IC + t.ic] : 0.f;
  }
  __device__ float b(const Column& c, const Step& t) const { return c.valid ? W[c.base + t.k] : 0.f; }
  __device__ void store(int m, int n, float v) const { Y[(long)m * N + n] = v; }
};

extern "C" __global__ void __launch_bounds__(256, 3)
    implicit_gemm_ffma(float* __restrict__ Y, const float* __restrict__ X, const float* __restrict__ W, ConvShape s) {
  ForwardProblem p;
  p.X = X;
  p.W = W;
  p.Y = Y;
  p.s = s;
  p.M = s.N * s.OH * s.OW;
  p.N = s.OC;
  p.K = s.FH * s.FW * s.IC;
  GemmFfma<ForwardProblem, true, true>::run(p, blockIdx.x * ALPHA_BM, blockIdx.y * ALPHA_BN, 0, p.K);
}
