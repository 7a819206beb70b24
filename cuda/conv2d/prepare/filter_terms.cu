// Filters as fp16 terms, ready for TMA: the B operand of sm90/mainloop.cuh.
//
// P (TERMS, FD FH FW, GN, Kp) of fp16, with Kp = K rounded up to 64 and filled with zeros. Within each 8 of K the order
// is 0 4 1 5 2 6 3 7, the order in which a thread holds the floats of the other operand (sm90/products.cuh).
//   filter_terms        ConvV2: tap (fh, fw), GN = OC, K = IC
//   split_filter_terms  KS-deconv, stage 1 (Algorithm 2): split by residue, rotated, GN = IC, K = OC
//                       (ks_deconv/split_filter.cu)
// filter_terms: a thread makes 8 of K of one filter and tap. Grid: ceil(taps GN Kp / (8 256)). Block: 256. Needs IC in
//   whole packs of 8, as TMA reads them, and W at a multiple of 16 bytes.
// split_filter_terms: a block transposes a tile. Grid: (ceil(GN / 16), Kp / 64, FD FH FW). Block: (32, 8). Shared
//   memory: a 64 x 17 tile.
// Macros: TERMS 1 | 2, NDIM 2 | 3 (with a depth), ORDERED 1: as above; 0: K in its own order, for an operand that
//   comes as terms, too.
#include "common/fp16_terms.cuh"
#include "common/vector.cuh"
#include "conv2d/shape.cuh"

using Shape = ShapeOf<ALPHA_NDIM>::Type;
constexpr bool ORDERED = ALPHA_ORDERED;
constexpr int TERMS = ALPHA_TERMS, TILE_K = 64, TILE_GN = 16, LANES = 32, ROWS = 8;

// The channel that lies at offset p.
__device__ __forceinline__ int channel_at(int p) { return ORDERED ? (p & ~7) + (p >> 1 & 3) + (p & 1) * 4 : p; }

extern "C" __global__ void __launch_bounds__(256)
    filter_terms(uint32_t* __restrict__ P, const float* __restrict__ W, const unsigned* __restrict__ absmax, Shape s,
                 int Kp, int taps) {
  const int packs = Kp / 8;
  const auto [row, pack] = divide(blockIdx.x * 256 + threadIdx.x, packs);  // row: of P, a tap and a filter
  const auto [tap, oc] = divide(row, s.OC);
  if (tap >= taps) return;
  const int first = pack * 8;
  const float* w = W + ((long)oc * taps + tap) * s.IC + first;
  Pack<float, 4> lower = {}, upper = {};
  if (first < s.IC) lower = load_pack<4>(w), upper = load_pack<4>(w + 4);
  const float scale = half_scale(*absmax);
  Pack<uint32_t, 4> hi, lo;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const Pack<float, 4>& half = i < 2 ? lower : upper;
    const float even = ORDERED ? lower.v[i] : half.v[i % 2 * 2], odd = ORDERED ? upper.v[i] : half.v[i % 2 * 2 + 1];
    split_pair(even * scale, odd * scale, hi.v[i], lo.v[i]);
  }
  uint32_t* p = P + ((long)row * Kp + first) / 2;
  store_pack(p, hi);
  if (TERMS == 2) store_pack(p + (long)taps * s.OC * Kp / 2, lo);
}

extern "C" __global__ void __launch_bounds__(256)
    split_filter_terms(uint32_t* __restrict__ P, const float* __restrict__ W, const unsigned* __restrict__ absmax,
                       Shape s, int Kp) {
  __shared__ float tile[TILE_K][TILE_GN + 1];  // [oc][ic]
  const int taps = gridDim.z, oc0 = blockIdx.y * TILE_K, ic0 = blockIdx.x * TILE_GN;
  const auto [row, fw] = divide(blockIdx.z, s.FW);
  const auto [fd, fh] = ALPHA_NDIM == 3 ? divide(row, s.FH) : Division{0, row};
  const int tap = split_tap(fd, fh, fw, s), self = threadIdx.y * LANES + threadIdx.x;
  const int column = self % TILE_GN, ic_read = ic0 + column;
#pragma unroll
  for (int r = 0; r < TILE_K; r += LANES * ROWS / TILE_GN) {
    const int k = r + self / TILE_GN, oc = oc0 + k;
    tile[k][column] = oc < s.OC && ic_read < s.IC ? W[((long)oc * taps + blockIdx.z) * s.IC + ic_read] : 0.f;
  }
  const float scale = half_scale(*absmax);
  __syncthreads();
  const int offset = threadIdx.x * 2;
#pragma unroll
  for (int r = 0; r < TILE_GN; r += ROWS) {
    const int mine = r + threadIdx.y, ic = ic0 + mine;
    if (ic >= s.IC) break;
    uint32_t hi, lo;
    split_pair(tile[channel_at(offset)][mine] * scale, tile[channel_at(offset + 1)][mine] * scale, hi, lo);
    const long pair = (((long)tap * s.IC + ic) * Kp + oc0 + offset) / 2;
    P[pair] = hi;
    if (TERMS == 2) P[pair + (long)taps * s.IC * Kp / 2] = lo;
  }
}
