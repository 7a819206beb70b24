// The largest or smallest number so far and the place of the first one; NaN is an extreme (reduce/fold.cu).
#pragma once
#include "common/vector.cuh"

template <typename T, typename Place>
struct ExtremeOf {
  using Result = T;
  Number<T> value;
  Place at;
  int largest;
  __device__ explicit ExtremeOf(int flag) : value(Number<T>(0)), at(-1), largest(flag) {}
  __device__ bool before(Number<T> x, Place i) const {
    if (at < 0) return true;
    const bool nan = x != x, mine = value != value;
    if (nan || mine) return nan && (!mine || i < at);
    return (largest ? x > value : x < value) || (x == value && i < at);
  }
  __device__ void meet(Number<T> x, Place i) {
    if (before(x, i)) value = x, at = i;
  }
  __device__ void operator+=(const ExtremeOf& other) {
    if (other.at >= 0) meet(other.value, other.at);
  }
  __device__ Number<T> result() const { return value; }
};
