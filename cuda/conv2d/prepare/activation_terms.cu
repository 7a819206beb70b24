// An activation as fp16 terms: the B operand of sk_dilated/sm90.cu with PREPARED 1.
//
// X (n floats) -> P (TERMS, n) of fp16, scaled by half_scale(*absmax). A thread converts 4 floats.
// Grid: ceil(n / 1024). Block: 256. Needs n % 4 == 0. Macros: TERMS 1 | 2.
#include "common/fp16_terms.cuh"

extern "C" __global__ void __launch_bounds__(256) activation_terms(uint2* __restrict__ P, const float4* __restrict__ X,
                                                                   const unsigned* __restrict__ absmax, long long n4) {
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i >= n4) return;
  const float scale = half_scale(*absmax);
  const float4 v = X[i];
  uint2 hi, lo;
  split_pair(v.x * scale, v.y * scale, hi.x, lo.x);
  split_pair(v.z * scale, v.w * scale, hi.y, lo.y);
  P[i] = hi;
  if (ALPHA_TERMS == 2) P[i + n4] = lo;
}
