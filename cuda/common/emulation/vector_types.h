// CUDA's built-in vector types, with CUDA's alignment.
#pragma once

#define ALPHA_VECTOR_TYPES(base, prefix, align2, align4)                          \
  struct prefix##1 { base x; };                                                   \
  struct __align__(align2) prefix##2 { base x, y; };                              \
  struct prefix##3 { base x, y, z; };                                             \
  struct __align__(align4) prefix##4 { base x, y, z, w; };                        \
  inline prefix##1 make_##prefix##1(base x) { return {x}; }                       \
  inline prefix##2 make_##prefix##2(base x, base y) { return {x, y}; }            \
  inline prefix##3 make_##prefix##3(base x, base y, base z) { return {x, y, z}; } \
  inline prefix##4 make_##prefix##4(base x, base y, base z, base w) { return {x, y, z, w}; }

ALPHA_VECTOR_TYPES(signed char, char, 2, 4)
ALPHA_VECTOR_TYPES(unsigned char, uchar, 2, 4)
ALPHA_VECTOR_TYPES(short, short, 4, 8)
ALPHA_VECTOR_TYPES(unsigned short, ushort, 4, 8)
ALPHA_VECTOR_TYPES(int, int, 8, 16)
ALPHA_VECTOR_TYPES(unsigned int, uint, 8, 16)
ALPHA_VECTOR_TYPES(long long, longlong, 16, 16)
ALPHA_VECTOR_TYPES(unsigned long long, ulonglong, 16, 16)
ALPHA_VECTOR_TYPES(float, float, 8, 16)
ALPHA_VECTOR_TYPES(double, double, 16, 16)
#undef ALPHA_VECTOR_TYPES

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
