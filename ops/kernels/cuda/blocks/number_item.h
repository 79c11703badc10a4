// V neighbours of a tensor as numbers to compute with.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_NUMBER_ITEM_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_NUMBER_ITEM_H_

#include <cstdint>

#include "ops/kernels/cuda/language/packet.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

template <typename T, int V>
struct NumberItem {
  Compute<T> values[V];
};

// Elements i to i + V. REQUIRES: as Gpu::Load.
template <int V, class Gpu, typename T>
WEFT_GPU NumberItem<T, V> LoadNumbers(Gpu& gpu, const T* from, int64_t i) {
  const Packet<T, V> packet = gpu.template Load<V>(gpu.Global(from), i);
  NumberItem<T, V> item;
  WEFT_UNROLL
  for (int v = 0; v < V; ++v) item.values[v] = Widen(packet.values[v]);
  return item;
}

template <int V, class Gpu, typename T>
WEFT_GPU void StoreNumbers(Gpu& gpu, T* to, int64_t i, const NumberItem<T, V>& item) {
  Packet<T, V> packet;
  WEFT_UNROLL
  for (int v = 0; v < V; ++v) packet.values[v] = Narrow<T>(item.values[v]);
  gpu.template Store<V>(gpu.Global(to), i, packet);
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_NUMBER_ITEM_H_
