// TopK: short lines are sorted in shared memory; of long ones the best, the best after it, and so
// on are looked for, one pass over the line each.
#ifndef WEFT_OPS_KERNELS_CUDA_REDUCTION_TOP_K_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_REDUCTION_TOP_K_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/best.h"
#include "ops/kernels/cuda/reduction/ranked_number.h"
#include "ops/kernels/cuda/reduction/top_k_launch.h"

namespace weft::cuda {

// What the two ways share.
struct TopKOperands {
  const void* x = nullptr;
  DType dtype = DType::kInvalid;
  void* values = nullptr;        // null: not wanted
  int64_t* positions = nullptr;  // null: not wanted
  TopKPlan plan;

  WEFT_GPU int64_t Start(int64_t line, int64_t size) const {
    return line / plan.stride * plan.stride * size + line % plan.stride;
  }
  template <typename Rank, class Gpu>
  WEFT_GPU Rank Read(Gpu& gpu, int64_t i) const {
    return ReadRanked<Rank>(gpu, x, dtype, i, plan.smallest != 0);
  }
  // Result i of a line.
  template <class Gpu>
  WEFT_GPU void Write(Gpu& gpu, int64_t line, int64_t i, int64_t position) const {
    const int64_t to = Start(line, plan.k) + i * plan.stride;
    if (positions != nullptr) gpu.Global(positions)[to] = position;
    if (values == nullptr) return;
    const int64_t from = Start(line, plan.size) + position * plan.stride;
    switch (dtype) {
      case DType::kFloat64:
      case DType::kInt64:
      case DType::kUint64:
        Copy<uint64_t>(gpu, from, to);
        break;
      case DType::kFloat16:
      case DType::kBfloat16:
      case DType::kInt16:
      case DType::kUint16:
        Copy<uint16_t>(gpu, from, to);
        break;
      case DType::kInt8:
      case DType::kUint8:
        Copy<uint8_t>(gpu, from, to);
        break;
      default:
        Copy<uint32_t>(gpu, from, to);
    }
  }

 private:
  template <typename Bits, class Gpu>
  WEFT_GPU void Copy(Gpu& gpu, int64_t from, int64_t to) const {
    const Bits value = gpu.Global(static_cast<const Bits*>(x))[from];
    gpu.Global(static_cast<Bits*>(values))[to] = value;
  }
};

// Bitonic sort of a line (Batcher, Sorting networks and their applications, 1968). A block per
// line of at most kTopKSorted elements; 2^log_padded places.
template <typename Rank>
struct TopKSortBody {
  TopKOperands operands;
  int32_t log_padded = 1;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int padded = 1 << log_padded;
    const auto values = gpu.template Shared<0, Rank, kTopKSorted>();
    const auto positions = gpu.template Shared<1, int32_t, kTopKSorted>();
    const TopKPlan& plan = operands.plan;
    const int64_t line = gpu.block();
    const int64_t start = operands.Start(line, plan.size);
    for (int i = gpu.thread(); i < padded; i += gpu.threads()) {
      Rank value = Rank(0);
      if (i < plan.size) value = operands.Read<Rank>(gpu, start + i * plan.stride);
      values[i] = value;
      positions[i] = i < plan.size ? i : -1;
    }
    gpu.Barrier();
    for (int run = 2; run <= padded; run *= 2) {
      for (int distance = run / 2; distance > 0; distance /= 2) {
        for (int pair = gpu.thread(); pair < padded / 2; pair += gpu.threads()) {
          // A distance is a power of two.
          const int low = 2 * pair - (pair & (distance - 1));
          const int high = low + distance;
          const Best<Rank> a = {values[low], positions[low]};
          const Best<Rank> b = {values[high], positions[high]};
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
template <typename Rank>
struct TopKSelectBody {
  TopKOperands operands;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const TopKPlan& plan = operands.plan;
    const int64_t line = gpu.block();
    const int64_t start = operands.Start(line, plan.size);
    const auto values = gpu.template Shared<0, Rank, kTopKThreads>();
    const auto positions = gpu.template Shared<1, int64_t, kTopKThreads>();
    Best<Rank> before = {Rank(0), -1};  // the result that was found last
    for (int64_t k = 0; k < plan.k; ++k) {
      Best<Rank> best = {Rank(0), -1};
      for (int64_t i = gpu.thread(); i < plan.size; i += gpu.threads()) {
        const Best<Rank> next = {operands.Read<Rank>(gpu, start + i * plan.stride), i};
        if (before.position >= 0 && !ComesBefore(before, next)) continue;
        best = Better(best, next);
      }
      values[gpu.thread()] = best.value;
      positions[gpu.thread()] = best.position;
      gpu.Barrier();
      for (int half = kTopKThreads / 2; half > 0; half /= 2) {
        if (gpu.thread() < half) {
          const Best<Rank> other = {values[gpu.thread() + half], positions[gpu.thread() + half]};
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
