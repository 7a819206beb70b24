// Images read at the places that G says, and the gradients of that.
//
// X (N, ID, IH, IW, C), with ID = 1 if RANK is 2; G (M, RANK): (x, y) or (x, y, z) of each sample, -1 to 1 within the
// image. M samples, `per_image` of each image; a sample is a sum over TAPS^RANK pixels around its place.
//
// sample: Y (M, C) = the sum of weight times pixel. A thread computes a pack of VECTOR channels of one sample.
// sample_slopes: dG (M, RANK) = the sum over the channels of dY times the slope of the sample. LANES neighbouring threads
//   share a sample, take turns in its packs, and meet in a butterfly.
// sample_taps: F (TAPS^RANK, M) = the pixel of each tap, among those of all images, or -1 if it is outside;
//   R (TAPS^RANK, M, C) = its weight times dY, which is to be added to the pixel. A thread writes one pack of all taps.
//   All: one thread of the grid per item. Block: 256. No shared memory.
// Macros: TYPE float | double | bfloat16; VECTOR 1 | 4 | 8 divides C, arrays are aligned to packs; RANK 2 | 3;
//   MODE 0 nearest | 1 linear | 2 cubic; PADDING 0 zeros | 1 border | 2 reflection; ALIGN_CORNERS 0 | 1;
//   LANES a power of two up to 32. G, F's weights, dG and R are of float if TYPE is bfloat16.
#include "common/cuda.h"
#include "common/vector.cuh"

using T = ALPHA_TYPE;
using Real = Number<T>;
constexpr int THREADS = 256, V = ALPHA_VECTOR, RANK = ALPHA_RANK, LANES = ALPHA_LANES;
constexpr int NEAREST = 0, LINEAR = 1, CUBIC = 2, MODE = ALPHA_MODE, TAPS = 1 << MODE;
constexpr int ZEROS = 0, REFLECTION = 2, PADDING = ALPHA_PADDING;
constexpr bool ALIGN_CORNERS = ALPHA_ALIGN_CORNERS;
constexpr int ALL_TAPS = RANK == 2 ? TAPS * TAPS : TAPS * TAPS * TAPS;

// The taps of one axis: which pixels they are, -1 if there is none, their weights and the slopes of their weights.
struct AxisTaps {
  int place[TAPS];
  Real weight[TAPS], slope[TAPS];
};

// Where p is after padding; `sign` is how it moves with p. What is not finite is outside.
__device__ __forceinline__ Real padded(Real p, int I, Real& sign) {
  sign = 1;
  if constexpr (PADDING == REFLECTION) {
    const Real first = ALIGN_CORNERS ? Real(0) : Real(-0.5), length = ALIGN_CORNERS ? Real(I - 1) : Real(I);
    if (length == 0) {
      p = 0, sign = 0;
    } else {
      const Real distance = fabs(p - first), turns = floor(distance / length), rest = fmod(distance, length);
      const bool back = fmod(turns, Real(2)) == 1;
      if (p < first) sign = -sign;
      if (back) sign = -sign;
      p = (back ? length - rest : rest) + first;
    }
  }
  if constexpr (PADDING != ZEROS) {
    if (!(p > 0 && p < I - 1)) sign = 0;
    if (p < 0) p = 0;
    if (p > I - 1) p = I - 1;
  }
  return fabs(p) < Real(2147483392.0) ? p : Real(-100);
}

__device__ __forceinline__ int inside(Real place, int I) { return place >= 0 && place < I ? int(place) : -1; }

// Keys' cubic, a = -0.75, of a signed distance below 2, and its slope.
__device__ __forceinline__ void cubic(Real distance, Real& weight, Real& slope) {
  const Real a = Real(-0.75), d = fabs(distance);
  if (d <= 1) {
    weight = ((a + 2) * d - (a + 3)) * d * d + 1;
    slope = (3 * (a + 2) * d - 2 * (a + 3)) * d;
  } else {
    weight = ((d - 5) * d + 8) * d * a - 4 * a;
    slope = ((3 * d - 10) * d + 8) * a;
  }
  if (distance < 0) slope = -slope;
}

__device__ __forceinline__ AxisTaps axis_taps(Real g, int I) {
  AxisTaps taps;
  Real p = ALIGN_CORNERS ? (g + 1) / 2 * (I - 1) : ((g + 1) * I - 1) / 2, sign;
  const Real scale = Real(ALIGN_CORNERS ? I - 1 : I) / 2;
  if constexpr (MODE == CUBIC) {
    const Real low = floor(p);
#pragma unroll
    for (int k = 0; k < TAPS; k++) {
      cubic(p - low - (k - 1), taps.weight[k], taps.slope[k]);
      taps.slope[k] *= scale;
      taps.place[k] = inside(padded(low + (k - 1), I, sign), I);
    }
  } else {
    p = padded(p, I, sign);
    const Real low = MODE == NEAREST ? rint(p) : floor(p);
#pragma unroll
    for (int k = 0; k < TAPS; k++) {
      taps.place[k] = inside(low + k, I);
      taps.weight[k] = MODE == NEAREST ? Real(1) : k ? p - low : 1 - (p - low);
      taps.slope[k] = MODE == NEAREST ? Real(0) : k ? sign * scale : -sign * scale;
    }
  }
  return taps;
}

// The taps of one sample: of each axis, the depth first; `image` is the first pixel of its image.
struct Sample {
  AxisTaps axis[RANK];
  int lengths[3];
  long long image;

  __device__ __forceinline__ Sample(const Real* G, long long m, long long per_image, int ID, int IH, int IW)
      : lengths{ID, IH, IW}, image(m / per_image * ID * IH * IW) {
#pragma unroll
    for (int a = 0; a < RANK; a++) axis[a] = axis_taps(G[m * RANK + RANK - 1 - a], lengths[3 - RANK + a]);
  }

  // The number of tap k along axis a.
  __device__ __forceinline__ static constexpr int digit(int k, int a) {
    return a == RANK - 1 ? k % TAPS : a == RANK - 2 ? k / TAPS % TAPS : k / (TAPS * TAPS);
  }

  // Which pixel of all images tap k is, or -1.
  __device__ __forceinline__ long long pixel(int k) const {
    long long at = 0;
    bool outside = false;
#pragma unroll
    for (int a = 0; a < RANK; a++) {
      const int place = axis[a].place[digit(k, a)];
      outside |= place < 0;
      at = at * lengths[3 - RANK + a] + place;
    }
    return outside ? -1 : image + at;
  }

  // The product of the weights of tap k, with the slope in place of the weight along axis `sloped`.
  __device__ __forceinline__ Real weight(int k, int sloped = -1) const {
    Real product = 1;
#pragma unroll
    for (int a = 0; a < RANK; a++) product *= a == sloped ? axis[a].slope[digit(k, a)] : axis[a].weight[digit(k, a)];
    return product;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    sample(T* __restrict__ Y, const T* __restrict__ X, const Real* __restrict__ G, long long M, long long per_image,
           int ID, int IH, int IW, int C) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  const int packs = C / V;
  if (i >= M * packs) return;
  const long long m = i / packs, c = i % packs * V;
  const Sample at(G, m, per_image, ID, IH, IW);
  Pack<Real, V> sum = {};
#pragma unroll
  for (int k = 0; k < ALL_TAPS; k++) {
    const long long pixel = at.pixel(k);
    if (pixel < 0) continue;
    const Pack<Real, V> x = load_pack<V>(X + pixel * C + c);
    const Real weight = at.weight(k);
#pragma unroll
    for (int j = 0; j < V; j++) sum.v[j] += weight * x.v[j];
  }
  store_pack(Y + m * C + c, sum);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sample_slopes(Real* __restrict__ dG, const T* __restrict__ dY, const T* __restrict__ X, const Real* __restrict__ G,
                  long long M, long long per_image, int ID, int IH, int IW, int C) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  const long long m = i / LANES;
  const int lane = i % LANES;
  Real sums[RANK] = {};
  if (m < M) {
    const Sample at(G, m, per_image, ID, IH, IW);
#pragma unroll
    for (int k = 0; k < ALL_TAPS; k++) {
      const long long pixel = at.pixel(k);
      if (pixel < 0) continue;
      Real product = 0;
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
    if (m < M && lane == 0) dG[m * RANK + a] = sums[a];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sample_taps(long long* __restrict__ F, Real* __restrict__ R, const T* __restrict__ dY, const Real* __restrict__ G,
                long long M, long long per_image, int ID, int IH, int IW, int C) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  const int packs = C / V;
  if (i >= M * packs) return;
  const long long m = i / packs, c = i % packs * V;
  const Sample at(G, m, per_image, ID, IH, IW);
  const Pack<Real, V> dy = load_pack<V>(dY + m * C + c);
#pragma unroll
  for (int k = 0; k < ALL_TAPS; k++) {
    const Real weight = at.weight(k);
    Pack<Real, V> row;
#pragma unroll
    for (int j = 0; j < V; j++) row.v[j] = weight * dy.v[j];
    store_pack(R + (k * M + m) * C + c, row);
    if (c == 0) F[k * M + m] = at.pixel(k);
  }
}
