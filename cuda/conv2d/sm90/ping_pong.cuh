// Two warpgroups with output tiles of their own: while one multiplies, the other one finishes and stores its results
// (sm90/mainloop.cuh with PING_PONG 1). Their products are transposed, filters x pixels:
//
//   sum[m][4 j + 2 h + e] of lane 4 g + t of warp w of the warpgroup is output channel 64 m + 16 w + g + 8 h of row
//   8 j + 2 t + e of the tile
//
// So a thread has few channels and many rows, and needs no other thread to add up the rows of a channel.
#pragma once
#include "common/stmatrix.cuh"
#include "conv2d/sm90/epilogue.cuh"
#include "conv2d/sm90/statistics.cuh"

// The rows of a tile in C. Row r is image r % IMAGES of output pixel r / IMAGES.
struct TileRows {
  int images, pixels;                      // that are there
  long first, image_stride, pixel_stride;  // of the elements of C

  __device__ __forceinline__ TileRows(const GemmProblem& p, const OutputPixels& to, int n0, int j0)
      : images(min(IMAGES, p.N - n0)),
        pixels(to.count),
        first(((long)n0 * p.output_pixels + to.first) * p.GN + j0),
        image_stride((long)p.output_pixels * p.GN),
        pixel_stride((long)to.distance * p.GN) {}
  __device__ __forceinline__ int count() const { return images * pixels; }
  // Whether row `base + row` is there, and its place in C; base is a multiple of 8 that the compiler knows, row < 16.
  __device__ __forceinline__ bool inside(int base, int row) const {
    return base % IMAGES + row % IMAGES < images && base / IMAGES + row / IMAGES < pixels;
  }
  __device__ __forceinline__ long place(int base, int row) const {
    const long of_row = first + row % IMAGES * image_stride + row / IMAGES * pixel_stride;  // for all bases the same
    return of_row + base % IMAGES * image_stride + base / IMAGES * pixel_stride;
  }
};

// A thread's warp has 16 channels of a tile, from first_channel() on, of which the thread has own_channel(m, 0 | 1).
__device__ __forceinline__ int first_channel() { return threadIdx.x % GROUP_THREADS / 32 * 16; }
__device__ __forceinline__ int own_channel(int m, int h) {
  return m * 64 + first_channel() + threadIdx.x % 32 / 4 + 8 * h;
}

// The sum over the four lanes that have the same channels.
__device__ __forceinline__ float add_quad(float x) {
#pragma unroll
  for (int lanes = 1; lanes < 4; lanes *= 2) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}

// Staging: 16 channels of 16 rows on their way between the layout of the products and whole rows. Words are 8 channels,
// the lower or the upper half of 16, of a row, and lie so that neither lanes with a half each nor lanes with a row each
// meet in a bank. stmatrix and ldmatrix of the fragments 8 j and 8 j + 8 take a lane's word from lane_matrix_word().
constexpr int STAGED_WORDS = 32;
__device__ __forceinline__ int staged_word(int row, int half) { return half * 16 + (row ^ half * 4); }
__device__ __forceinline__ int lane_matrix_word() {
  const int lane = threadIdx.x % 32;
  return staged_word(lane / 16 * 8 + lane % 8, lane / 8 % 2);
}
constexpr int STAGED_BLOCKS = 4;  // of 16 rows, that are stored together
struct StagedRows {
  uint4 warps[CONSUMER_WARPS][STAGED_BLOCKS][STAGED_WORDS];
};

// The results of a thread's sums: bias and activation are applied where a result is used, not in place, for which the
// compiler would keep the products of a tile apart.
struct ChannelEpilogue {
  float bias[MI][2] = {};
  SlopeRectifier rectified;

  __device__ __forceinline__ ChannelEpilogue(const GemmProblem& p, int j0) : rectified(p.slope) {
    if (p.bias == nullptr) return;
#pragma unroll
    for (int m = 0; m < MI; m++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int channel = j0 + own_channel(m, h);
        if (channel < p.GN) bias[m][h] = p.bias[channel];
      }
  }
  // The same results, which the compiler computes anew: it has no registers to keep them.
  __device__ __forceinline__ ChannelEpilogue again() const {
    ChannelEpilogue other = *this;
#pragma unroll
    for (int m = 0; m < MI; m++)
#pragma unroll
      for (int h = 0; h < 2; h++) other.bias[m][h] = __uint_as_float(kept(__float_as_uint(bias[m][h])));
    return other;
  }
  __device__ __forceinline__ float operator()(float sum, int m, int h) const {
    return ALPHA_EPILOGUE ? rectified(sum + bias[m][h]) : sum;
  }
};

// Stores the tile of a warpgroup.
template <class Sums>
__device__ __forceinline__ void store_channels(const Sums& sum, StagedRows& staged, const GemmProblem& p, int j0,
                                               const TileRows& rows, const ChannelEpilogue& result) {
  const int row = threadIdx.x % 32 / 2, half = threadIdx.x % 2;
  uint4(&words)[STAGED_BLOCKS][STAGED_WORDS] = staged.warps[threadIdx.x / 32];
  const uint32_t to = shared_address(&words[0][lane_matrix_word()]);
#pragma unroll
  for (int m = 0; m < MI; m++) {
    const int column = m * 64 + first_channel() + half * 8;
    const bool stored = j0 + column < p.GN;
#pragma unroll
    for (int first = 0; first < BM / 16; first += STAGED_BLOCKS) {
#pragma unroll
      for (int block = 0; block < STAGED_BLOCKS; block++) {
        const float* v = &sum[m][(first + block) * 8];
        uint32_t matrices[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
          matrices[i] = narrow_pair(result(v[2 * i], m, i % 2), result(v[2 * i + 1], m, i % 2));
        stmatrix_x4_trans(to + block * int(sizeof(words[0])), matrices);
      }
      __syncwarp();
#pragma unroll
      for (int block = 0; block < STAGED_BLOCKS; block++) {
        const uint4 word = words[block][staged_word(row, half)];
        if (stored && rows.inside((first + block) * 16, row))
          *reinterpret_cast<uint4*>(p.C + rows.place((first + block) * 16, row) + column) = word;
      }
      __syncwarp();  // all have read it
    }
  }
}

// The channel statistics of a block's tiles (sm90/statistics.cuh): a thread adds up the rows that it has. The four
// lanes of a channel share an origin.
class ChannelSums {
  float origin[MI][2] = {}, sums[MI][2][2] = {};
  int count = 0;  // rows of the warpgroup

 public:
  // What warpgroups tell each other at the end.
  struct Shared {
    float mean[CONSUMER_GROUPS][BN], rest[CONSUMER_GROUPS][BN];
    int count[CONSUMER_GROUPS];
  };

  template <class Sums>
  __device__ __forceinline__ void add(const Sums& sum, const TileRows& rows, const ChannelEpilogue& result) {
    if (count == 0)  // its first row is always there
#pragma unroll
      for (int m = 0; m < MI; m++)
#pragma unroll
        for (int h = 0; h < 2; h++)
          origin[m][h] = __shfl_sync(~0u, result(sum[m][2 * h], m, h), threadIdx.x % 32 / 4 * 4);
    if (rows.count() == BM)
      add_rows(sum, result, [](int, int) { return true; });
    else
      add_rows(sum, result, [&](int base, int row) { return rows.inside(base, row); });
    count += rows.count();
  }

  // Writes part z for all warpgroups. All consumers call it.
  template <class Told>
  __device__ __forceinline__ void write(Told& shared, const GemmProblem& p, int j0, int z) {
    constexpr int BARRIER = 2;
    const int thread = threadIdx.x, group = thread / GROUP_THREADS;
#pragma unroll
    for (int m = 0; m < MI; m++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float total = add_quad(sums[m][h][0]), squares = add_quad(sums[m][h][1]);
        const float mean = count > 0 ? total / count : 0.f;
        if (thread % 4 == 0) {
          shared.mean[group][own_channel(m, h)] = origin[m][h] + mean;
          shared.rest[group][own_channel(m, h)] = fmaxf(squares - total * mean, 0.f);
        }
      }
    if (thread % GROUP_THREADS == 0) shared.count[group] = count;
    named_barrier_sync(BARRIER, CONSUMERS);
    if (thread >= BN || j0 + thread >= p.GN) return;
    float all = shared.count[0], mean = shared.mean[0][thread], rest = shared.rest[0][thread];
#pragma unroll
    for (int g = 1; g < CONSUMER_GROUPS; g++) {  // the pairwise update of Chan, Golub & LeVeque (1983)
      const float others = shared.count[g], apart = shared.mean[g][thread] - mean,
                  moved = apart * others / (all + others);
      if (others == 0) continue;
      rest += shared.rest[g][thread] + apart * moved * all;
      mean += moved, all += others;
    }
    float* target = p.statistics + (long)z * p.GN + j0 + thread;
    target[0] = mean, target[(long)p.statistics_parts * p.GN] = rest;
    if (j0 + thread == 0) p.statistics_counts[z] = all;
  }

 private:
  template <class Sums, class Inside>
  __device__ __forceinline__ void add_rows(const Sums& sum, const ChannelEpilogue& result, Inside inside) {
#pragma unroll
    for (int i = 0; i < R / 2; i++) {
      if (!inside(i / 2 * 8, threadIdx.x % 4 * 2 + i % 2)) continue;
#pragma unroll
      for (int m = 0; m < MI; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const float deviation = result(sum[m][i / 2 * 4 + h * 2 + i % 2], m, h) - origin[m][h];
          sums[m][h][0] += deviation, sums[m][h][1] += deviation * deviation;
        }
    }
  }
};
