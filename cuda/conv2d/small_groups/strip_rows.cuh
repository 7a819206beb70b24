// Rows of strips of a map in shared memory, for the kernels of small groups on tensor cores.
//
// A *strip* is the part of a row that 8 GROUPS neighbouring results (GROUPS pixel groups) read; a block has STRIPS of
// them, which may be parts of different images. A row of the strips is brought by cp.async, with zeros for what is
// outside of the image. Neighbouring slots of a strip are columns of the source SLOT_STEP apart, so that a fragment
// reads neighbouring slots, whatever the stride. A slot has VECTORS vectors of 16 bytes of channels, and lies an odd
// number of vectors from the next one, so that ldmatrix has no bank conflicts.
#pragma once
#include "common/cp_async.cuh"
#include "common/divide.cuh"

constexpr int VECTOR_BYTES = 16, PIXELS = 8;  // of a pixel group

// What a block reads of a map of `height` x `width` x `channels`, from `channel` on, for the strips from `first_strip`
// on.
template <class Element>
struct StripSource {
  const Element* map;
  int images, height, width, channels, channel;
  int pieces, first_strip;  // strips of a row of the map; the block's first one of all images
};

// FIRST is the column of the source in slot 0 of the first strip of a row, STRIP_STEP how much further the next strip
// begins.
template <class Element, int STRIPS, int SLOTS, int SLOT_STEP, int CLASS_SLOTS, int FIRST, int STRIP_STEP, int VECTORS,
          int THREADS>
struct StripRows {
  static constexpr int CHUNK = VECTOR_BYTES / int(sizeof(Element)), PITCH = (VECTORS | 1) * VECTOR_BYTES;
  static constexpr int BYTES = STRIPS * SLOTS * PITCH;  // of a row of all strips
  static constexpr int PER_ROUND = THREADS / VECTORS, ROUNDS = (STRIPS * SLOTS + PER_ROUND - 1) / PER_ROUND;

  const char* first_image;
  int offset[ROUNDS];  // bytes from a row of the first image to this thread's vectors; negative outside of the map
  uint32_t target;     // bytes from a row in shared memory to the first of them
  int height, row_bytes;

  __device__ __forceinline__ explicit StripRows(const StripSource<Element>& s)
      : height(s.height), row_bytes(s.width * s.channels * int(sizeof(Element))) {
    const int vector = threadIdx.x % VECTORS, first = threadIdx.x / VECTORS;
    const int image0 = divide(s.first_strip, s.pieces).quotient;
    const int channel = s.channel + vector * CHUNK, pixel_bytes = s.channels * int(sizeof(Element));
    first_image = reinterpret_cast<const char*>(s.map + channel) + size_t(image0) * s.height * row_bytes;
    target = first * PITCH + vector * VECTOR_BYTES;
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
      const int place = first + i * PER_ROUND, slot = place % SLOTS;
      const auto [image, piece] = divide(s.first_strip + place / SLOTS, s.pieces);
      const int column = FIRST + piece * STRIP_STEP + slot % CLASS_SLOTS * SLOT_STEP + slot / CLASS_SLOTS;
      const bool inside = image < s.images && unsigned(column) < unsigned(s.width) && channel < s.channels;
      offset[i] = inside ? (image - image0) * s.height * row_bytes + column * pixel_bytes : -1;
    }
  }

  // True if the map has this row. Others are neither brought nor multiplied.
  __device__ __forceinline__ bool has(int row) const { return unsigned(row) < unsigned(height); }

  // Brings a row of the map to the shared address `to`.
  __device__ __forceinline__ void bring(uint32_t to, int row) const {
    if (!has(row)) return;
    const char* from = first_image + long(row) * row_bytes;
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
      if (int(threadIdx.x) < min(PER_ROUND, STRIPS * SLOTS - i * PER_ROUND) * VECTORS)
        cp_async<VECTOR_BYTES>(to + target + i * PER_ROUND * PITCH, from + max(offset[i], 0),
                               offset[i] < 0 ? 0 : VECTOR_BYTES);
    }
  }
};
