// Images read at the places that G says, and the gradients of that.
//
// X (N, ID, IH, IW, C), with ID = 1 if RANK is 2; G (M, RANK): (x, y) or (x, y, z) of each sample, -1 to 1 within the
// image. M samples, `per_image` of each image; a sample is a sum over TAPS^RANK pixels around its place.
//
// sample: Y (M, C) = the sum of weight times pixel. A thread computes a pack of VECTOR channels of one sample.
// sample_slopes: dG (M, RANK) = the sum over the channels of dY times the slope of the sample. LANES neighbouring
// threads
//   share a sample, take turns in its packs, and meet in a butterfly.
// sample_taps: F (TAPS^RANK, M) = the pixel of each tap, among those of all images, or -1 if it is outside;
//   R (TAPS^RANK, M, C) = its weight times dY, which is to be added to the pixel. A thread writes one pack of all taps.
//   All: one thread of the grid per item. Block: 256. No shared memory.
// Macros: TYPE float | double | bfloat16; VECTOR 1 | 4 | 8 divides C, arrays are aligned to packs; RANK 2 | 3;
//   MODE, PADDING, ALIGN_CORNERS as in taps.cuh; LANES a power of two up to 32; INDEX an unsigned type
//   that holds all sizes. G, dG and R are of float if TYPE is bfloat16.
#include "resample/taps.cuh"

constexpr int THREADS = 256, V = ALPHA_VECTOR, LANES = ALPHA_LANES;

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    sample(T* __restrict__ Y, const T* __restrict__ X, const Real* __restrict__ G, long long M, long long per_image,
           int ID, int IH, int IW, int C) {
  const Index i = Index(blockIdx.x) * THREADS + threadIdx.x, packs = C / V;
  if (i >= Index(M) * packs) return;
  const Index m = i / packs, c = i % packs * V;
  const Sample at(G, m, per_image, ID, IH, IW);
  Pack<Real, V> sum = {};
#pragma unroll
  for (int k = 0; k < ALL_TAPS; k++) {
    const Index pixel = at.pixel(k);
    if (pixel == OUTSIDE) continue;
    const Pack<Real, V> x = load_pack<V>(X + pixel * C + c);
    const Real weight = at.weight(k);
#pragma unroll
    for (int j = 0; j < V; j++) sum.v[j] += weight * x.v[j];
  }
  store_pack(Y + m * C + c, sum);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    sample_slopes(Real* __restrict__ dG, const T* __restrict__ dY, const T* __restrict__ X, const Real* __restrict__ G,
                  long long M, long long per_image, int ID, int IH, int IW, int C) {
  const Index i = Index(blockIdx.x) * THREADS + threadIdx.x, m = i / LANES;
  const int lane = i % LANES;
  Real sums[RANK] = {};
  if (m < Index(M)) {
    const Sample at(G, m, per_image, ID, IH, IW);
#pragma unroll
    for (int k = 0; k < ALL_TAPS; k++) {
      const Index pixel = at.pixel(k);
      if (pixel == OUTSIDE) continue;
      Real product = 0;
#pragma unroll 1  // the loads of several packs at a time would need more registers than there are
      for (int c = lane * V; c < C; c += LANES * V) {
        const Pack<Real, V> dy = load_pack<V>(dY + m * C + c), x = load_pack<V>(X + pixel * C + c);
#pragma unroll
        for (int j = 0; j < V; j++) product += dy.v[j] * x.v[j];
      }
#pragma unroll
      for (int a = 0; a < RANK; a++) sums[RANK - 1 - a] += product * at.weight(k, a);
    }
  }
#pragma unroll
  for (int a = 0; a < RANK; a++) {
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) sums[a] += __shfl_xor_sync(~0u, sums[a], distance);
    if (m < Index(M) && lane == 0) dG[m * RANK + a] = sums[a];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    sample_taps(long long* __restrict__ F, Real* __restrict__ R, const T* __restrict__ dY, const Real* __restrict__ G,
                long long M, long long per_image, int ID, int IH, int IW, int C) {
  const Index i = Index(blockIdx.x) * THREADS + threadIdx.x, packs = C / V;
  if (i >= Index(M) * packs) return;
  const Index m = i / packs, c = i % packs * V;
  const Sample at(G, m, per_image, ID, IH, IW);
  const Pack<Real, V> dy = load_pack<V>(dY + m * C + c);
#pragma unroll
  for (int k = 0; k < ALL_TAPS; k++) {
    const Real weight = at.weight(k);
    Pack<Real, V> row;
#pragma unroll
    for (int j = 0; j < V; j++) row.v[j] = weight * dy.v[j];
    store_pack(R + (k * Index(M) + m) * C + c, row);
    if (c == 0) F[k * Index(M) + m] = at.pixel(k) == OUTSIDE ? -1 : (long long)at.pixel(k);
  }
}
