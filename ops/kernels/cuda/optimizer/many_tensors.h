// One launch over many tensors. A body has a table of items in its parameters; each item has blocks
// of its own. For the bodies and .cu files of this folder.
#ifndef WEFT_OPS_KERNELS_CUDA_OPTIMIZER_MANY_TENSORS_H_
#define WEFT_OPS_KERNELS_CUDA_OPTIMIZER_MANY_TENSORS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "ops/kernels/cuda/optimizer/update_grid.h"

namespace weft::cuda {

// What an item has beside its pointers.
struct TensorItem {
  int64_t count;        // elements, at least 1
  int64_t packets;      // that are read and written as a whole; the rest is done one by one
  int64_t first_block;  // ascending over the items of a launch
};

// Of parameters, which are at most 4 KiB, after `taken` bytes.
template <class Item>
constexpr int ItemsOfALaunch(size_t taken) {
  return static_cast<int>((4096 - taken) / sizeof(Item));
}

// The threads that work on one item.
struct ItemThreads {
  int item;
  int64_t index;   // of this thread
  int64_t stride;  // how many there are
};

// `items`: `count` of them, derived from TensorItem; the first begins at block 0.
template <class Gpu, class Item>
WEFT_GPU ItemThreads ThreadsOf(Gpu& gpu, const Item* items, int count) {
  const int64_t block = gpu.block();
  int low = 0;
  int high = count;  // the item is one of [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (items[middle].first_block <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int64_t end = low + 1 < count ? items[low + 1].first_block : gpu.blocks();
  const int64_t first = items[low].first_block;
  return {low, (block - first) * gpu.threads() + gpu.thread(), (end - first) * gpu.threads()};
}

// items[own], for work on its element or packet i, which is below 2^62. A compiler cannot tell that
// it is the same item for each i, so it reads the item's addresses again for each, from the cache
// of parameters. Else a loop over i keeps all of them in registers: 14 for Adam.
template <class Item>
WEFT_GPU const Item& ItemFor(const Item* items, int own, int64_t i) {
  return items[own + static_cast<int>(i >> 62)];
}

// Runs `body` over tensors 0 to `count`, Body::kItems in a launch. make(i, item) makes an item
// but for its first block; those without elements are left out. A launch fills the GPU about twice,
// and a block works on one item alone. 0, or CUDA's error number.
template <class Body, class MakeItem>
int LaunchOverTensors(LaunchQueue queue, Body body, int count, MakeItem&& make) {
  static_assert(Body::kItems >= 1);
  for (int next = 0; next < count;) {
    body.used = 0;
    int64_t threads = 0;
    const auto threads_of = [](const TensorItem& item) {
      return std::max(item.packets, item.count - item.packets * Body::kWidth);
    };
    for (; next < count && body.used < Body::kItems; ++next) {
      auto& item = body.items[body.used];
      make(next, item);
      if (item.count == 0) continue;
      threads += threads_of(item);
      ++body.used;
    }
    const int64_t rounds = (threads + kUpdateThreads * kUpdateBlocks - 1) /
                           (kUpdateThreads * kUpdateBlocks);  // of a thread
    int64_t blocks = 0;
    for (int i = 0; i < body.used; ++i) {
      body.items[i].first_block = blocks;
      const int64_t per_block = kUpdateThreads * rounds;
      blocks += (threads_of(body.items[i]) + per_block - 1) / per_block;
    }
    const int code =
        Launch<kUpdateThreads>(queue, {.blocks = blocks, .threads = kUpdateThreads}, body);
    if (code != 0) return code;
  }
  return 0;
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_OPTIMIZER_MANY_TENSORS_H_
