// Sk-dilated of any shape on FFMA (Algorithm 3): dY is fetched in unit steps, X in leaping steps of the stride.
//
// dW[oc, j] = sum over k of dY[k, oc] X(k, j), with GM = OC, GN = FH FW IC (j = tap and channel), GK = N OH OW.
// Grid: (ceil(GN / 64), ceil(GM / 64), GZ): GZ splits of G_K, each to its own partial dW (summed by reduce/sum.cu).
// Block: 256. Takes any shape; padded zeros are predicated.
#include "common/gemm_ffma.cuh"
#include "conv2d/shape.cuh"

struct WeightGradientProblem {
  struct Row {
    int oc;
    bool valid;
  };
  struct Column {
    int fh, fw, ic;
    bool valid;
  };
  struct Step {
    int k, n, ih, iw;
  };
  const float *X, *dY;
  float* dW;
  ConvShape s;
  int M, N, K;

  __device__ Row row(int m) const { return {m, m < M}; }
  __device__ Column column(int n) const {
    const int tap = n / s.IC;
    return {tap / s.FW, tap % s.FW, n % s.IC, n < N};
  }
  __device__ Step step(int k) const {
    const int ow = k % s.OW, oh = k / s.OW % s.OH;
    return {k, k / (s.OW * s.OH), oh * s.sh - s.ph, ow * s.sw - s.pw};
  }
  __device__ float a(const Row& r, const Step& t) const { return r.valid ? dY[(long)t.k * M + r.oc] : 0.f; }
  __device__ bool meets(const Row&, const Column& c, const Step& t) const {
    const int ih = t.ih + c.fh, iw = t.iw + c.fw;
    return c.valid && ih >= 0 && ih < s.IH && iw >= 0 && iw < s.IW;
  }
  __device__ float b(const Column& c, const Step& t) const {
    return meets({}, c, t) ? X[((long)(t.n * s.IH + t.ih + c.fh) * s.IW + t.iw + c.fw) * s.IC + c.ic] : 0.f;
  }
  __device__ void store(int m, int n, float v) const { dW[(long)m * N + n] = v; }
};

extern "C" __global__ void __launch_bounds__(256)
    sk_dilated_ffma(float* __restrict__ part, const float* __restrict__ X, const float* __restrict__ dY, ConvShape s) {
  const int K = s.N * s.OH * s.OW, GN = s.FH * s.FW * s.IC;
  WeightGradientProblem p;
  p.X = X;
  p.dY = dY;
  p.dW = part + (long)blockIdx.z * s.OC * GN;
  p.s = s;
  p.M = s.OC;
  p.N = GN;
  p.K = K;
  const int lo = (int)((long)K * blockIdx.z / gridDim.z), hi = (int)((long)K * (blockIdx.z + 1) / gridDim.z);
  GemmFfma<WeightGradientProblem, false, false>::run(p, blockIdx.y * ALPHA_BM, blockIdx.x * ALPHA_BN, lo, hi);
}
