// The first step of the gradient behind a convolution, taken where the convolution makes its input's gradient dX:
//
//   dZ = r(dX + other)   r: the gradient of a rectifier, RECTIFIED as in batchnorm/gradient_rows.cuh
//
// With SUMS 1 what made the convolution's input is a batch normalisation, whose gradient begins so, and needs two sums
// of each column:   sums[0, z, j] = sum of dZ,   sums[1, z, j] = sum of dZ (X - mean), over the rows of part z; with
// FROM_OUTPUT and FROM_SUM of dZ (X - mean) / sqrt(var + eps). There is one part per block among those that share
// output channels, or with SPLIT_K 1 one per tile of output pixels and images. Rows are added in a fixed order.
//
// other, X, Y, residual: arrays of the form of dX, of TYPE, with Y_HALF 1 Y as an fp16 copy, whose scale follows from
// Y_magnitude (batchnorm/kept_output.cuh); mean, var, weight, bias (GN,). Those that RECTIFIED and the macros do not
// ask for may be null.
// Macros: TYPE float | bfloat16, that of dX; VECTOR 2; RECTIFIED; SLOPED (1: the slope is not 0); SUMS; OTHER (1: other
// is added); MAGNITUDE (1: `magnitude` gets the bits of the largest finite magnitude of dZ, and the blocks meet in two
// words `state`, which are 0 before and again at the end). With SUMS 0, RECTIFIED is FROM_Y. Y_HALF as above.
// Static shared memory: FirstStep::Shared, of sm90/first_step.cuh or, with PING_PONG 1, of
// sm90/first_step_channels.cuh.
// Needs GN in whole packs of 8.
#pragma once
#include "batchnorm/kept_output.cuh"
#include "conv2d/sm90/largest.cuh"

constexpr bool OTHER = ALPHA_OTHER, SLOPED = ALPHA_SLOPED, STEP_SUMS = ALPHA_SUMS;
constexpr bool READS_X = STEP_SUMS && !UNDONE, READS_Y = RECTIFIED == FROM_Y || UNDONE,
               READS_RESIDUAL = RECTIFIED == FROM_SUM;
constexpr int MAPS = OTHER + READS_X + READS_Y + READS_RESIDUAL;
static_assert(V == 2 && !RAGGED, "a lane holds pairs of neighbours");
static_assert(STEP_SUMS || RECTIFIED == FROM_Y, "without sums there is a rectifier alone");

// What a first step is given.
struct StepOperands {
  struct Maps {
    const T *other, *X;
    const Kept* Y;
    const T* residual;
    const unsigned* Y_magnitude;
  } maps;
  struct Columns {
    const float *mean, *var, *weight, *bias;
    float eps, smallest, slope, bound;
  } columns;
  struct Largest {
    unsigned *magnitude, *state;
  } target;

  // Calls run(map) for each map that is read, in the order in which `take_pairs` expects them.
  template <class Run>
  __device__ __forceinline__ void each_map(Run run) const {
    if (OTHER) run(maps.other);
    if (READS_X) run(maps.X);
    if (READS_Y) run(maps.Y);
    if (READS_RESIDUAL) run(maps.residual);
  }
  // The bias of z, which is asked for where the sign of z is found again.
  __device__ __forceinline__ const float* bias_of_z() const { return RECTIFIED == FROM_X ? columns.bias : nullptr; }
};

// The pairs of all maps: pair_of(i) is that of the i-th map that is read, and kept_of(i) that of Y.
template <class PairOf, class KeptPairOf>
__device__ __forceinline__ GradientRow take_pairs(PairOf pair_of, KeptPairOf kept_of) {
  GradientRow row = {};
  int i = 0;
  if (OTHER) row.g = pair_of(i++);
  if (READS_X) row.x = pair_of(i++);
  if (READS_Y) row.y = kept_of(i++);
  if (READS_RESIDUAL) row.residual = pair_of(i++);
  return row;
}

// Writes the largest magnitude of all threads of all blocks. All consumers call it at the end.
__device__ __forceinline__ void write_step_magnitude(unsigned largest, WarpWords& words,
                                                     const StepOperands::Largest& target) {
  if (!MAGNITUDE) return;
  note_largest<true>(words, largest);
  write_consumers_largest(words, target.magnitude, target.state);
}
