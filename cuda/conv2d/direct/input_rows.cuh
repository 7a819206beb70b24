// Rows of an image with their padding in shared memory: what the direct kernels for few input channels read.
#pragma once
#include "conv2d/shape.cuh"

// Output rows [oh0, oh0 + rows) of one image, and the padded rows of X that they read.
struct InputRows {
  int oh0, rows, height, width;  // height rows of width numbers

  // `columns` of each output row are read, at least OW; what lies beyond the image is zeros.
  __device__ __forceinline__ InputRows(const ConvShape& s, int oh0, int most_rows, int columns)
      : oh0(oh0),
        rows(min(most_rows, s.OH - oh0)),
        height((rows - 1) * s.sh + s.FH),
        width(((columns - 1) * s.sw + s.FW) * s.IC) {}

  __device__ __forceinline__ InputRows(const ConvShape& s, int oh0, int most_rows)
      : InputRows(s, oh0, most_rows, s.OW) {}

  // Number c of row r, T a float or the 16 bits of a bfloat16.
  template <typename T>
  __device__ __forceinline__ T at(const T* image, const ConvShape& s, int r, int c) const {
    const int ih = oh0 * s.sh - s.ph + r, i = c - s.pw * s.IC, row = s.IW * s.IC;  // i within the row of X
    return unsigned(ih) < unsigned(s.IH) & unsigned(i) < unsigned(row) ? image[ih * row + i] : T(0);
  }

  // A warp a row; the caller meets at a barrier before and after.
  __device__ __forceinline__ void load(float* x_rows, const float* image, const ConvShape& s) const {
    for (int r = threadIdx.x / 32; r < height; r += blockDim.x / 32)
      for (int c = threadIdx.x % 32; c < width; c += 32) x_rows[r * width + c] = at(image, s, r, c);
  }
};

// The numbers that X, W, Y and dY lie in memory as: floats, or the bits of bfloat16.
template <bool bf16>
struct ElementOf {
  using Type = float;
};
template <>
struct ElementOf<true> {
  using Type = uint16_t;
};

__device__ __forceinline__ uint32_t word_at(const char* offset) { return *reinterpret_cast<const uint32_t*>(offset); }
