// TopK: short lines are sorted in shared memory; of long ones the best, the best after it, and so
// on are looked for, one pass over the line each.
#ifndef WEFT_OPS_KERNELS_CUDA_REDUCTION_TOP_K_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_REDUCTION_TOP_K_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/best.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/reduction/top_k_launch.h"

namespace weft::cuda {

// What the two ways share.
template <typename T>
struct TopKOperands {
  const T* x = nullptr;
  T* values = nullptr;           // null: not wanted
  int64_t* positions = nullptr;  // null: not wanted
  TopKPlan plan;

  WEFT_GPU int64_t Start(int64_t line, int64_t size) const {
    return line / plan.stride * plan.stride * size + line % plan.stride;
  }
  // Result i of a line.
  template <class Gpu>
  WEFT_GPU void Write(Gpu& gpu, int64_t line, int64_t i, int64_t position) const {
    const int64_t to = Start(line, plan.k) + i * plan.stride;
    if (positions != nullptr) gpu.Global(positions)[to] = position;
    if (values == nullptr) return;
    const T value = gpu.Global(x)[Start(line, plan.size) + position * plan.stride];
    gpu.Global(values)[to] = value;
  }
};

// Bitonic sort of a line (Batcher, Sorting networks and their applications, 1968). A block per
// line of at most kTopKSorted elements; `padded`, a power of two, of places.
template <typename T>
struct TopKSortBody {
  TopKOperands<T> operands;
  int32_t padded = 2;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    using Wide = WideOf<T>;
    const auto values = gpu.template Shared<0, Wide, kTopKSorted>();
    const auto positions = gpu.template Shared<1, int32_t, kTopKSorted>();
    const TopKPlan& plan = operands.plan;
    const int64_t line = gpu.block();
    const auto from = gpu.Global(operands.x) + operands.Start(line, plan.size);
    for (int i = gpu.thread(); i < padded; i += gpu.threads()) {
      Wide value = Wide(0);
      if (i < plan.size) {
        const T element = from[i * plan.stride];
        value = Ranked(Wide(Widen(element)), plan.smallest != 0);
      }
      values[i] = value;
      positions[i] = i < plan.size ? i : -1;
    }
    gpu.Barrier();
    for (int run = 2; run <= padded; run *= 2) {
      for (int distance = run / 2; distance > 0; distance /= 2) {
        for (int pair = gpu.thread(); pair < padded / 2; pair += gpu.threads()) {
          const int low = pair / distance * distance * 2 + pair % distance;
          const int high = low + distance;
          const Best<Wide> a = {values[low], positions[low]};
          const Best<Wide> b = {values[high], positions[high]};
          const bool descending = (low & run) == 0;
          if (ComesBefore(a, b) != descending) {
            values[low] = b.value;
            values[high] = a.value;
            positions[low] = static_cast<int32_t>(b.position);
            positions[high] = static_cast<int32_t>(a.position);
          }
        }
        gpu.Barrier();
      }
    }
    for (int i = gpu.thread(); i < plan.k; i += gpu.threads()) {
      const int32_t position = positions[i];
      operands.Write(gpu, line, i, position);
    }
  }
};

// A block per line of any size; k passes.
template <typename T>
struct TopKSelectBody {
  TopKOperands<T> operands;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    using Wide = WideOf<T>;
    const TopKPlan& plan = operands.plan;
    const int64_t line = gpu.block();
    const auto from = gpu.Global(operands.x) + operands.Start(line, plan.size);
    const auto values = gpu.template Shared<0, Wide, kTopKThreads>();
    const auto positions = gpu.template Shared<1, int64_t, kTopKThreads>();
    Best<Wide> before = {Wide(0), -1};  // the result that was found last
    for (int64_t k = 0; k < plan.k; ++k) {
      Best<Wide> best = {Wide(0), -1};
      for (int64_t i = gpu.thread(); i < plan.size; i += gpu.threads()) {
        const T element = from[i * plan.stride];
        const Best<Wide> next = {Ranked(Wide(Widen(element)), plan.smallest != 0), i};
        if (before.position >= 0 && !ComesBefore(before, next)) continue;
        best = Better(best, next);
      }
      values[gpu.thread()] = best.value;
      positions[gpu.thread()] = best.position;
      gpu.Barrier();
      for (int half = kTopKThreads / 2; half > 0; half /= 2) {
        if (gpu.thread() < half) {
          const Best<Wide> other = {values[gpu.thread() + half], positions[gpu.thread() + half]};
          best = Better(best, other);
          values[gpu.thread()] = best.value;
          positions[gpu.thread()] = best.position;
        }
        gpu.Barrier();
      }
      before = {values[0], positions[0]};
      if (gpu.thread() == 0) operands.Write(gpu, line, k, before.position);
      gpu.Barrier();
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_REDUCTION_TOP_K_BODY_H_
