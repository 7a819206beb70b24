// The first step of a gradient (sm90/step_operands.cuh) with PING_PONG 1, where a lane holds few channels and many rows
// (sm90/ping_pong.cuh).
//
// A warp has 16 channels of all rows of a tile. It goes through them in blocks of 16 rows: cp.async brings the maps of
// a block to shared memory, from where ldmatrix gives each lane what belongs to its sums; dZ goes back to the same
// place by stmatrix, and from there to memory in whole rows. All of this is hidden behind the products of the other
// warpgroup.
// Macros: DEPTH (2 to 16 blocks under way). Shared memory: static FirstStep::Shared, dynamic FirstStep::Staged.
#pragma once
#include "common/cp_async.cuh"
#include "common/ldmatrix.cuh"
#include "common/stmatrix.cuh"
#include "conv2d/sm90/ping_pong.cuh"
#include "conv2d/sm90/step_operands.cuh"

static_assert(PING_PONG && MI == 1 && sizeof(T) == 2, "bfloat16 of 64 channels");

class FirstStep {
 public:
  static constexpr bool ACTIVE = true, SUMS = STEP_SUMS;

  static constexpr int DEPTH = ALPHA_DEPTH, CHANNELS = SUMS ? BN : 1;

  // Of each warp, blocks of maps on their way. They lie in dynamic shared memory.
  struct Staged {
    uint4 words[CONSUMER_WARPS][DEPTH][MAPS][STAGED_WORDS];
  };
  // Numbers of the channels of the block, of which with UNDONE the scale is the inverse; sums and magnitudes that warps
  // tell each other at the end; what undoes the slope, for which a thread has no register.
  struct Shared {
    float mean[CHANNELS], scale[CHANNELS], bias[CHANNELS], sums[CONSUMER_GROUPS][2][CHANNELS];
    float4 totals[SUMS ? CONSUMERS : 1];  // of each thread's two channels, of all tiles: of dZ, and of its products
    unsigned magnitudes[CONSUMER_WARPS];
    float steepness;
  };

  __device__ __forceinline__ explicit FirstStep(const StepOperands& operands) : operands(operands) {}

  // Works out the numbers of the channels of the block's tiles, which begin with column j0. All consumers call it.
  __device__ __forceinline__ void describe(Shared& shared, const GemmProblem& p, int j0) const {
    const StepOperands::Columns& columns = operands.columns;
    const int i = threadIdx.x, channel = j0 + i;
    if (!SUMS) return;
    shared.totals[i] = make_float4(0, 0, 0, 0);
    if (UNDONE && i == 0) shared.steepness = 1 / columns.slope;
    if (i < BN && channel < p.GN) {
      if (UNDONE) {
        const Undone<1> undone(columns.weight, columns.bias, columns.slope, columns.smallest, channel, sizeof(T) == 2);
        shared.scale[i] = undone.inverse.v[0], shared.bias[i] = undone.bias.v[0];
      } else {
        const Normalization<1> normalized(columns.mean, columns.var, columns.weight, operands.bias_of_z(), columns.eps,
                                          channel);
        shared.mean[i] = normalized.mean.v[0], shared.scale[i] = normalized.scale.v[0];
        shared.bias[i] = normalized.bias.v[0];
      }
    }
    named_barrier_sync(BARRIER, CONSUMERS);
  }

  // Begins to read the first blocks of the maps of a tile, before the products.
  __device__ __forceinline__ void begin(Staged& staged, const GemmProblem& p, int j0, const TileRows& rows) const {
#pragma unroll
    for (int block = 0; block < DEPTH - 1; block++) fetch(staged, p, j0, rows, block);
  }

  // Makes dZ of the sums of a tile, and stores it.
  __device__ __forceinline__ void operator()(Staged& staged, Shared& shared, const float (&sum)[MI][R],
                                             const GemmProblem& p, int j0, const TileRows& rows) {
    const KnownRectifier<float, SLOPED> rectifier(operands.columns.slope, operands.columns.bound);
    const int row = threadIdx.x % 32 / 2, half = threadIdx.x % 2, column = first_channel() + half * 8;
    const bool stored = j0 + column < p.GN;
    float sums[2][2] = {};  // of this tile
    auto words_of = [&](int block, int map) -> uint4(&)[STAGED_WORDS] {
      return staged.words[threadIdx.x / 32][block % DEPTH][map];
    };
    auto store = [&](int block) {  // what the warp has left in the place of the first map
      const uint4 word = words_of(block, 0)[staged_word(row, half)];
      if (stored && rows.inside(block * 16, row))
        *reinterpret_cast<uint4*>(p.C + rows.place(block * 16, row) + column) = word;
    };
#pragma unroll
    for (int block = 0; block < BM / 16; block++) {
      cp_async_wait<DEPTH - 2>();
      __syncwarp();  // the maps of the block are there, and all have read the block before
      fetch(staged, p, j0, rows, block + DEPTH - 1);
      uint32_t read[MAPS][4];
#pragma unroll
      for (int map = 0; map < MAPS; map++)
        ldmatrix_x4_trans(read[map], shared_address(&words_of(block, map)[lane_matrix_word()]));
      uint32_t matrices[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float* values = &sum[0][(block * 2 + i / 2) * 4 + i % 2 * 2];
        bool inside[2];
#pragma unroll
        for (int e = 0; e < 2; e++) inside[e] = rows.inside(block * 16 + i / 2 * 8, threadIdx.x % 4 * 2 + e);
        matrices[i] = take(shared, read, values, inside, i, rectifier, sums[i % 2]);
      }
      __syncwarp();  // all lanes have read both
      stmatrix_x4_trans(shared_address(&words_of(block, 0)[lane_matrix_word()]), matrices);
      __syncwarp();
      store(block);
    }
    if (SUMS) {
      float4& total = shared.totals[threadIdx.x];
      total = make_float4(total.x + sums[0][0], total.y + sums[0][1], total.z + sums[1][0], total.w + sums[1][1]);
    }
  }

  // Writes the sums of all warpgroups as part z. All consumers call it.
  __device__ __forceinline__ void write_sums(Shared& shared, const GemmProblem& p, int j0, int z) {
    const int thread = threadIdx.x;
    const float4 t = shared.totals[thread];
    const float sums[2][2] = {{t.x, t.y}, {t.z, t.w}};
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const float total = add_quad(sums[h][i]);
        if (thread % 4 == 0) shared.sums[thread / GROUP_THREADS][i][own_channel(0, h)] = total;
      }
    named_barrier_sync(BARRIER, CONSUMERS);
    if (thread >= BN || j0 + thread >= p.GN) return;
    float* part = p.statistics + (long)z * p.GN + j0 + thread;
    float totals[2] = {};
#pragma unroll
    for (int g = 0; g < CONSUMER_GROUPS; g++)
      totals[0] += shared.sums[g][0][thread], totals[1] += shared.sums[g][1][thread];
    part[0] = totals[0], part[(long)p.statistics_parts * p.GN] = totals[1];
  }

  // Writes the largest magnitude. All consumers call it at the end.
  __device__ __forceinline__ void end(Shared& shared) const {
    write_step_magnitude(largest, shared.magnitudes, operands.target);
  }

 private:
  static constexpr int BARRIER = 2;

  StepOperands operands;
  unsigned largest = 0;

  // Begins to read a block of all maps, with zeros for what is not there.
  __device__ __forceinline__ void fetch(Staged& staged, const GemmProblem& p, int j0, const TileRows& rows,
                                        int block) const {
    const int row = threadIdx.x % 32 / 2, half = threadIdx.x % 2, column = first_channel() + half * 8;
    if (block < BM / 16) {
      const bool inside = j0 + column < p.GN && rows.inside(block * 16, row);
      const long place = inside ? rows.place(block * 16, row) + column : 0;
      int i = 0;
      operands.each_map([&](const auto* map) {
        cp_async<16>(shared_address(&staged.words[threadIdx.x / 32][block % DEPTH][i++][staged_word(row, half)]),
                     map + place, inside ? 16 : 0);
      });
    }
    cp_async_commit();  // also for no block, so that the number of groups under way is known
  }

  // dZ of two rows of a lane's channel i % 2, as a pair of bfloat16.
  __device__ __forceinline__ uint32_t take(const Shared& shared, const uint32_t (&read)[MAPS][4], const float* values,
                                           const bool (&inside)[2], int i,
                                           const KnownRectifier<float, SLOPED>& rectifier, float (&sums)[2]) {
    const int channel = own_channel(0, i % 2);
    Normalization<2> normalized;
    Undone<2> undone;
    undone.steepness = UNDONE ? shared.steepness : 0;
#pragma unroll
    for (int e = 0; SUMS && e < 2; e++) {
      normalized.mean.v[e] = shared.mean[channel], normalized.scale.v[e] = shared.scale[channel];
      normalized.bias.v[e] = undone.bias.v[e] = shared.bias[channel], undone.inverse.v[e] = shared.scale[channel];
    }
    auto pair_of = [&](int map) {
      Pack<float, 2> pair;
      widen_pair(read[map][i], pair.v[0], pair.v[1]);
      return pair;
    };
    GradientRow row = take_pairs(pair_of, pair_of);
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const float dX = inside[e] ? values[e] : 0.f;  // what is outside adds nothing
      row.g.v[e] = OTHER ? row.g.v[e] + dX : dX;
    }
    Pack<float, 2> dZ = rectified_gradient(row, normalized, rectifier);
#pragma unroll
    for (int e = 0; UNDONE && SLOPED && e < 2; e++)  // the same numbers from fewer registers
      dZ.v[e] = row.g.v[e] * (row.y.v[e] > 0 ? 1 : operands.columns.slope);
#pragma unroll
    for (int e = 0; e < 2; e++) {
      if (MAGNITUDE) largest = max(largest, finite_magnitude(dZ.v[e]));
      if (SUMS) sums[0] += dZ.v[e], sums[1] += dZ.v[e] * centred(row, normalized, undone, e);
    }
    return narrow_pair(dZ.v[0], dZ.v[1]);
  }
};
