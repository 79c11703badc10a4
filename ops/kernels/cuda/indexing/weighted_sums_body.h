// Bodies of sums with weights whose terms are in the order of their keys.
#ifndef WEFT_OPS_KERNELS_CUDA_INDEXING_WEIGHTED_SUMS_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_INDEXING_WEIGHTED_SUMS_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/indexing/weighted_sums_launch.h"
#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

// starts[k] = the number of keys below k, for k from 0 to `limit`.
struct KeyStartsBody {
  const uint32_t* keys;
  uint32_t* starts;
  int64_t count;
  int64_t limit;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto all = gpu.Global(keys);
    for (int64_t k = gpu.index(); k <= limit; k += gpu.stride()) {
      int64_t low = 0;
      int64_t high = count;
      while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const uint32_t key = all[middle];
        if (key < k) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      gpu.Global(starts)[k] = static_cast<uint32_t>(low);
    }
  }
};

// A thread for each element of y. Added in double.
template <typename W>
struct WeightedSumsBody {
  const uint32_t* starts;
  const uint32_t* order;
  const W* weights;
  RealInput x;
  RealOutput y;
  WeightedSums of;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t count = of.groups * of.channels * of.elements;
    const auto start_of = gpu.Global(starts);
    const auto term_at = gpu.Global(order);
    const auto weight_of = gpu.Global(weights);
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const int64_t line = i / of.elements;  // group and channel
      const int64_t group = line / of.channels;
      const int64_t key = group * of.elements + i % of.elements;
      const uint32_t begin = start_of[key];
      const uint32_t end = start_of[key + 1];
      // Sources are numbered through all groups.
      const int64_t base = (line - group) * of.sources;
      double sum = 0;
      for (uint32_t p = begin; p < end; ++p) {
        const uint32_t term = term_at[p];
        const W weight = weight_of[term];
        const int64_t source = term / static_cast<uint32_t>(of.parts);
        sum += static_cast<double>(weight) * ReadReal(gpu, x, base + source);
      }
      WriteReal(gpu, y, i, sum);
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_INDEXING_WEIGHTED_SUMS_BODY_H_
