// Y[i] = X[order[begin + i]] * SCALE + SHIFT: the pixels of a batch, gathered from a data set and normalised.
// Y[i] = X[order[begin + i]]: rows of any other array, such as labels.
//
// take_pixels: grid (blocks per image, images of the batch); a thread writes VECTOR neighbouring elements.
// take_entries: grid ceil(count size / 256), a thread for each element. Block: 256 in both. No shared memory.
// Macros: VECTOR 4 if an image has a multiple of 4 pixels and X is aligned to 4 bytes, else 1;
//   ROW the type of an element of take_entries, unsigned short for bfloat16.
// Needs: the product is rounded before the shift is added, so that pixels are the numbers of elementwise/cast.cu.
#include "common/step_value.cuh"
#include "common/vector.cuh"

using Row = ALPHA_ROW;
constexpr int THREADS = 256, V = ALPHA_VECTOR;

extern "C" __global__ void __launch_bounds__(THREADS)
    take_pixels(float* __restrict__ Y, const uint8_t* __restrict__ X, const int* __restrict__ order, long long given,
                const long long* __restrict__ replayed, long long size, float scale, float shift) {
  const long long begin = step_value(given, replayed);
  const long long i = ((long long)blockIdx.x * THREADS + threadIdx.x) * V;
  if (i >= size) return;
  const Pack<uint8_t, V> x = load_pack<V>(X + order[begin + blockIdx.y] * size + i);
  Pack<float, V> y;
#pragma unroll
  for (int j = 0; j < V; j++) y.v[j] = __fmul_rn(float(x.v[j]), scale) + shift;
  store_pack(Y + blockIdx.y * size + i, y);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    take_entries(Row* __restrict__ Y, const Row* __restrict__ X, const int* __restrict__ order, long long given,
                 const long long* __restrict__ replayed, long long size, long long total) {
  const long long begin = step_value(given, replayed);
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= total) return;
  const long long row = i / size;
  Y[i] = X[order[begin + row] * size + (i - row * size)];
}
