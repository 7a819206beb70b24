// Rows of an image with their padding in shared memory: what the direct kernels for few input channels read.
#pragma once
#include "conv2d/shape.cuh"

// Output rows [oh0, oh0 + rows) of one image, and the padded rows of X that they read.
struct InputRows {
  int oh0, rows, height, width;  // `height` rows of `width` elements

  // Rows for `columns` pixels per output row, at least OW. Elements outside of the image are zeros.
  __device__ __forceinline__ InputRows(const ConvShape& s, int oh0, int most_rows, int columns)
      : oh0(oh0),
        rows(min(most_rows, s.OH - oh0)),
        height((rows - 1) * s.sh + s.FH),
        width(((columns - 1) * s.sw + s.FW) * s.IC) {}

  __device__ __forceinline__ InputRows(const ConvShape& s, int oh0, int most_rows)
      : InputRows(s, oh0, most_rows, s.OW) {}

  // Element c of row r; T is float, or the 16 bits of a bfloat16.
  template <typename T>
  __device__ __forceinline__ T at(const T* image, const ConvShape& s, int r, int c) const {
    const int ih = oh0 * s.sh - s.ph + r, i = c - s.pw * s.IC, row = s.IW * s.IC;  // i: within the row of X
    return unsigned(ih) < unsigned(s.IH) & unsigned(i) < unsigned(row) ? image[ih * row + i] : T(0);
  }

  // Loads all rows, one per warp at a time. The caller needs a barrier before and after.
  __device__ __forceinline__ void load(float* x_rows, const float* image, const ConvShape& s) const {
    for (int r = threadIdx.x / 32; r < height; r += blockDim.x / 32)
      for (int c = threadIdx.x % 32; c < width; c += 32) x_rows[r * width + c] = at(image, s, r, c);
  }
};

// The type of the elements of X, W, Y and dY in memory: float, or the bits of bfloat16.
template <bool bf16>
struct ElementOf {
  using Type = float;
};
template <>
struct ElementOf<true> {
  using Type = uint16_t;
};

__device__ __forceinline__ uint32_t word_at(const char* offset) { return *reinterpret_cast<const uint32_t*>(offset); }
