// The filters of a block in shared memory, for Y and dX of small groups on tensor cores: a row for each output channel.
// Rows lie an odd number of vectors apart, so that the words of a fragment lie in different banks.
#pragma once
#include "conv2d/small_groups/tile_sm80.cuh"

constexpr int FILTER_BYTES = TAPS * IG * int(sizeof(Element));
constexpr int FILTER_COPY = FILTER_BYTES % VECTOR_BYTES ? 8 : VECTOR_BYTES;                   // bytes of a copy
constexpr int FILTER_PITCH = ((FILTER_BYTES + VECTOR_BYTES - 1) / VECTOR_BYTES | 1) * CHUNK;  // elements
template <class Map>
constexpr int FILTER_ROWS = Map::IS_INPUT ? VECTORS * CHUNK : BLOCK_CHANNELS;

// Brings the filters of the output channels from `first` on, of which there are OC.
template <class Map>
__device__ __forceinline__ void bring_filters(uint32_t to, const Element* W, int first, int OC) {
  constexpr int COPIES = FILTER_BYTES / FILTER_COPY;  // per row
  const char* from = reinterpret_cast<const char*>(W + size_t(first) * TAPS * IG);
  for (int i = threadIdx.x; i < FILTER_ROWS<Map> * COPIES; i += THREADS) {
    const int row = i / COPIES, at = i % COPIES * FILTER_COPY;
    const bool exists = first + row < OC;
    cp_async<FILTER_COPY>(to + row * FILTER_PITCH * int(sizeof(Element)) + at,
                          from + (exists ? row * FILTER_BYTES + at : 0), exists ? FILTER_COPY : 0);
  }
}
