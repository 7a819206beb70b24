// Filters as fp16 terms, ready for TMA: the B operand of sm90/mainloop.cuh.
//
// P (TERMS, FD FH FW, GN, Kp) of fp16, with Kp = K rounded up to 64 and filled with zeros. Within each 8 of K the order
// is 0 4 1 5 2 6 3 7, the order in which a thread holds the floats of the other operand (sm90/products.cuh).
//   filter_terms        ConvV2: tap (fh, fw), GN = OC, K = IC
//   split_filter_terms  KS-deconv, stage 1 (Algorithm 2): split by residue, rotated, GN = IC, K = OC
//                       (ks_deconv/split_filter.cu)
// Block: (32, 8). Grid: (Kp / 64, ceil(GN / 32), FD FH FW). Shared memory of split_filter_terms: a 64 x 33 tile.
// Macros: TERMS 1 | 2, NDIM 2 | 3 (with a depth).
#include "common/fp16_terms.cuh"
#include "conv2d/shape.cuh"

using Shape = ShapeOf<ALPHA_NDIM>::Type;

// The channel that lies at offset p.
__device__ __forceinline__ int channel_at(int p) { return (p & ~7) + (p >> 1 & 3) + (p & 1) * 4; }

__device__ __forceinline__ void store_pair(uint32_t* P, long pair, long term_pairs, float lower, float upper) {
  uint32_t hi, lo;
  split_pair(lower, upper, hi, lo);
  P[pair] = hi;
  if (ALPHA_TERMS == 2) P[pair + term_pairs] = lo;
}

extern "C" __global__ void __launch_bounds__(256) filter_terms(uint32_t* __restrict__ P, const float* __restrict__ W,
                                                               const unsigned* __restrict__ absmax, Shape s, int Kp) {
  const float scale = half_scale(*absmax);
  const int taps = gridDim.z, tap = blockIdx.z, offset = blockIdx.x * 64 + threadIdx.x * 2;
  for (int r = threadIdx.y; r < 32; r += 8) {
    const int oc = blockIdx.y * 32 + r;
    if (oc >= s.OC) break;
    const float* w = W + ((long)oc * taps + tap) * s.IC;
    const int c0 = channel_at(offset), c1 = channel_at(offset + 1);
    const float lower = c0 < s.IC ? w[c0] * scale : 0.f, upper = c1 < s.IC ? w[c1] * scale : 0.f;
    store_pair(P, (((long)tap * s.OC + oc) * Kp + offset) / 2, (long)taps * s.OC * Kp / 2, lower, upper);
  }
}

extern "C" __global__ void __launch_bounds__(256)
    split_filter_terms(uint32_t* __restrict__ P, const float* __restrict__ W, const unsigned* __restrict__ absmax,
                       Shape s, int Kp) {
  __shared__ float tile[64][33];  // [oc][ic]
  const float scale = half_scale(*absmax);
  const int taps = gridDim.z, oc0 = blockIdx.x * 64, ic0 = blockIdx.y * 32;
  const auto [row, fw] = divide(blockIdx.z, s.FW);
  const auto [fd, fh] = ALPHA_NDIM == 3 ? divide(row, s.FH) : Division{0, row};
  const int tap = split_tap(fd, fh, fw, s);
  for (int r = threadIdx.y; r < 64; r += 8) {
    const int oc = oc0 + r, ic = ic0 + threadIdx.x;
    tile[r][threadIdx.x] = oc < s.OC && ic < s.IC ? W[((long)oc * taps + blockIdx.z) * s.IC + ic] * scale : 0.f;
  }
  __syncthreads();
  const int offset = threadIdx.x * 2;
  for (int r = threadIdx.y; r < 32; r += 8) {
    const int ic = ic0 + r;
    if (ic >= s.IC) break;
    store_pair(P, (((long)tap * s.IC + ic) * Kp + oc0 + offset) / 2, (long)taps * s.IC * Kp / 2,
               tile[channel_at(offset)][r], tile[channel_at(offset + 1)][r]);
  }
}
