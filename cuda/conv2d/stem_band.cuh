// A band of an image with its padding in shared memory: what the kernels of a network's first layer read.
#pragma once
#include "conv2d/shape.cuh"

// Output rows [oh0, oh0 + rows) of one image, and the padded rows of X that they read.
struct StemBand {
  int oh0, rows, height, width;  // height rows of width floats

  __device__ __forceinline__ StemBand(const ConvShape& s, int oh0, int most_rows)
      : oh0(oh0), rows(min(most_rows, s.OH - oh0)), height((rows - 1) * s.sh + s.FH),
        width(((s.OW - 1) * s.sw + s.FW) * s.IC) {}

  // A warp a row; the caller meets at a barrier before and after.
  __device__ __forceinline__ void load(float* band, const float* image, const ConvShape& s) const {
    for (int r = threadIdx.x / 32; r < height; r += blockDim.x / 32) {
      const int ih = oh0 * s.sh - s.ph + r;
      for (int c = threadIdx.x % 32; c < width; c += 32) {
        const int i = c - s.pw * s.IC;  // within the row of X
        band[r * width + c] = ih >= 0 && ih < s.IH && i >= 0 && i < s.IW * s.IC ? image[ih * s.IW * s.IC + i] : 0.f;
      }
    }
  }
};
