// wgmma: each thread notes its products. When the whole warpgroup has come to the wait that retires their group the
// last thread does them, out of the operands as they are in shared memory then. Who reads d before that finds what was
// there.
#pragma once
#include <stdlib.h>

#include "common/emulation/half.h"
#include "common/emulation/mma.h"
#include "common/emulation/shared_memory.h"
#include "common/emulation/tensor_map.h"
#include "common/emulation/warp.h"

namespace alpha_emulation {

constexpr unsigned kWarpgroup = 128;

struct ProductQueue;

// A product that one thread noted.
struct Product {
  void (*perform)(const ProductQueue* queues, unsigned which);  // by the queues of the 128 threads
  float* d;
  uint32_t a_registers[4];
  uint64_t a, b;  // descriptors
  bool a_in_registers, a_transposed, b_transposed;
  int scale;
  unsigned group;
};

struct ProductQueue {
  Product* products;
  unsigned end, capacity;
  unsigned groups;  // committed so far
  bool fenced;
};
inline ProductQueue product_queues[kMaxThreads];

inline AtBlockStart forget_products([] {
  for (unsigned i = 0; i < thread_count; i++)
    product_queues[i].end = product_queues[i].groups = product_queues[i].fenced = 0;
});

inline void fence_wgmma() { product_queues[current->linear].fenced = true; }
inline void commit_wgmma() { product_queues[current->linear].groups++; }

struct Tf32 {
  static constexpr int bytes = 4, depth = 8;
  static float value(const char* place) { return tf32_value(*reinterpret_cast<const uint32_t*>(place)); }
};
struct Bf16 {
  static constexpr int bytes = 2, depth = 16;
  static float value(const char* place) { return bf16_value(*reinterpret_cast<const uint16_t*>(place)); }
};
struct F16 {
  static constexpr int bytes = 2, depth = 16;
  static float value(const char* place) { return half_value(*reinterpret_cast<const uint16_t*>(place)); }
};

// A shared memory descriptor, taken apart.
struct Tile {
  uint32_t start, leading, stride;
  unsigned swizzle;  // bytes

  explicit Tile(uint64_t descriptor)
      : start((descriptor & 0x3fff) << 4),
        leading((descriptor >> 16 & 0x3fff) << 4),
        stride((descriptor >> 32 & 0x3fff) << 4),
        swizzle(descriptor >> 62 ? 256u >> (descriptor >> 62) : 0) {
    if (!swizzle || descriptor >> 46 & 0xffff)
      fault("wgmma: the emulator knows descriptors with a swizzle and no base offset, not %#llx",
            static_cast<unsigned long long>(descriptor));
  }
};

// Reads all rows of an operand into values[k][row].
template <class Type, int rows>
void read_tile(const Tile& tile, bool transposed, float (&values)[Type::depth][rows]) {
  constexpr int per_piece = 16 / Type::bytes;  // elements of the 16 bytes that the swizzle keeps together
  if (transposed) {
    constexpr int block = 128 / Type::bytes;  // rows side by side in 128 bytes
    if (tile.swizzle != 128) fault("wgmma: the emulator knows MN-major tiles with the 128-byte swizzle only");
    for (int k = 0; k < Type::depth; k++)
      for (int row = 0; row < rows; row += per_piece) {
        const uint32_t linear =
            tile.start + row / block * tile.leading + k / 8 * tile.stride + k % 8 * 128 + row % block * Type::bytes;
        const char* piece = shared_pointer(swizzled(linear, 128), 16, "wgmma");
        for (int i = 0; i < per_piece; i++) values[k][row + i] = Type::value(piece + i * Type::bytes);
      }
  } else {
    for (int row = 0; row < rows; row++) {
      const uint32_t start_of_row = tile.start + row / 8 * tile.stride + row % 8 * tile.swizzle;
      for (int k = 0; k < Type::depth; k += per_piece) {
        const char* piece = shared_pointer(swizzled(start_of_row + k * Type::bytes, tile.swizzle), 16, "wgmma");
        for (int i = 0; i < per_piece; i++) values[k + i][row] = Type::value(piece + i * Type::bytes);
      }
    }
  }
}

template <class Type>
void read_registers(const ProductQueue* queues, unsigned which, float (&values)[Type::depth][64]) {
  constexpr int per_register = 4 / Type::bytes;
  for (unsigned i = 0; i < kWarpgroup; i++) {
    const char* a = reinterpret_cast<const char*>(queues[i].products[which].a_registers);
    const int row = i / 32 * 16 + i % 32 / 4, k = i % 4 * per_register;
    for (int r = 0; r < 4; r++)
      for (int e = 0; e < per_register; e++)
        values[k + e + r / 2 * (Type::depth / 2)][row + r % 2 * 8] = Type::value(a + 4 * r + e * Type::bytes);
  }
}

// Product number `which` of each thread's queue.
template <class Type, int R>
void perform_product(const ProductQueue* queues, unsigned which) {
  constexpr int columns = 2 * R;
  const Product& product = queues[0].products[which];
  float a[Type::depth][64], b[Type::depth][columns] __attribute__((aligned(64)));
  if (product.a_in_registers)
    read_registers<Type>(queues, which, a);
  else
    read_tile<Type>(Tile(product.a), product.a_transposed, a);
  read_tile<Type>(Tile(product.b), product.b_transposed, b);
  for (unsigned i = 0; i < kWarpgroup; i += 4) {  // the four threads of two rows
    const int row = i / 32 * 16 + i % 32 / 4;
    for (int j = 0; j < columns; j += 8) {
      Row sums[2] = {};
      for (int k = 0; k < Type::depth; k++)
        for (int h = 0; h < 2; h++) sums[h] += a[k][row + 8 * h] * *reinterpret_cast<const Row*>(&b[k][j]);
      for (int t = 0; t < 4; t++) {
        float* d = queues[i + t].products[which].d + j / 2;
        for (int h = 0; h < 2; h++)
          for (int e = 0; e < 2; e++)
            d[2 * h + e] = product.scale ? d[2 * h + e] + sums[h][2 * t + e] : sums[h][2 * t + e];
      }
    }
  }
}

template <class Type, int R>
void start_wgmma(float* d, const uint32_t* registers, uint64_t a, uint64_t b, int scale, bool a_transposed,
                 bool b_transposed) {
  static_assert(R % 4 == 0 && R >= 4 && R <= 128, "N = 2 R is a multiple of 8 up to 256");
  if (current->linear / kWarpgroup * kWarpgroup + kWarpgroup > thread_count)
    fault("wgmma: the warpgroup has fewer than %u threads", kWarpgroup);
  ProductQueue& queue = product_queues[current->linear];
  if (!queue.fenced) fault("wgmma without a wgmma_fence before it");
  if (queue.end == queue.capacity) {
    queue.capacity = queue.capacity ? 2 * queue.capacity : 16;
    queue.products = static_cast<Product*>(realloc(queue.products, queue.capacity * sizeof(Product)));
  }
  Product& product = queue.products[queue.end++];
  product.perform = perform_product<Type, R>;
  product.d = d;
  product.a = a;
  product.b = b;
  product.a_in_registers = registers != nullptr;
  product.a_transposed = a_transposed;
  product.b_transposed = b_transposed;
  product.scale = scale;
  product.group = queue.groups;
  if (registers) memcpy(product.a_registers, registers, sizeof product.a_registers);
}

inline bool same_product(const Product& one, const Product& other) {
  return one.perform == other.perform && one.a == other.a && one.b == other.b && !one.scale == !other.scale &&
         one.group == other.group;
}

// Does the products of all groups but the `pending` newest for a warpgroup.
inline void perform_products(ProductQueue* queues, unsigned pending) {
  activity = "wgmma";
  unsigned done = 0;
  for (; done < queues[0].end && queues[0].products[done].group + pending < queues[0].groups; done++) {
    for (unsigned i = 1; i < kWarpgroup; i++)
      if (queues[i].end <= done || !same_product(queues[0].products[done], queues[i].products[done]))
        fault("wgmma: threads 0 and %u of a warpgroup differ in their products", i);
    queues[0].products[done].perform(queues, done);
  }
  activity = nullptr;
  if (done == 0) return;  // a warpgroup that has multiplied nothing yet has no memory for products
  for (unsigned i = 0; i < kWarpgroup; i++) {
    queues[i].end -= done;
    memmove(queues[i].products, queues[i].products + done, queues[i].end * sizeof(Product));
  }
}

__attribute__((noinline)) inline void wait_wgmma(unsigned pending, Location location) {
  const unsigned first = current->linear / kWarpgroup * kWarpgroup;
  if (first + kWarpgroup > thread_count) fault("wgmma_wait: the warpgroup has fewer than %u threads", kWarpgroup);
  note_wait(Wait::warpgroup, first, pending, location);
  for (unsigned i = first; i < first + kWarpgroup; i++)
    if (waits[i] != Wait::warpgroup) return wait_for_release();
  for (unsigned i = first; i < first + kWarpgroup; i++)
    if (threads[i].wait_parity != pending) fault("wgmma_wait: threads of a warpgroup wait for different groups");
  perform_products(product_queues + first, pending);
  release_where([=](const Thread& thread) { return thread.linear / kWarpgroup * kWarpgroup == first; });
  wait_for_release();
}

}  // namespace alpha_emulation
