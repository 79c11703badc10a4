// Scale and AddN.
#include <algorithm>

#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/widened.h"

namespace weft::cpu {
namespace {

constexpr int64_t kGrain = 64;
constexpr double kNanosecondsPerElement = 0.5;

template <typename T>
std::unique_ptr<Kernel> MakeScale(const PrepareContext& context) {
  const int64_t count = context.InputShape(0).num_elements();
  return MakeKernel([count, threads = context.threads()](const KernelContext& run) {
    const T* x = Input<T>(run, 0);
    T* y = Output<T>(run, 0);
    const ComputeType<T> scale = Load(*Input<T>(run, 1));
    ParallelFor(threads, count, kNanosecondsPerElement, kGrain, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) y[i] = Store<T>(Load(x[i]) * scale);
    });
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareScale(const PrepareContext& context) {
  return PrepareByDType(context, context.InputDType(0), FloatTypes(),
                        [&](auto type) { return MakeScale<decltype(type)>(context); });
}

// Elements of partial sums that stay in the first-level cache while input after input is added.
constexpr int64_t kSumBlock = 2048;

// y[begin, end) = ((x0 + x1) + x2) + ..., by blocks. The sums of 16-bit floats are kept in float32.
template <typename T>
void AddBlocks(const void* const* inputs, int num_inputs, T* y, int64_t begin, int64_t end) {
  ComputeType<T> sums[kSumBlock];
  for (; begin < end; begin += kSumBlock) {
    const int64_t count = std::min(kSumBlock, end - begin);
    const T* first = static_cast<const T*>(inputs[0]) + begin;
    for (int64_t i = 0; i < count; ++i) sums[i] = Load(first[i]);
    for (int k = 1; k < num_inputs; ++k) {
      const T* x = static_cast<const T*>(inputs[k]) + begin;
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        sums[i] = static_cast<ComputeType<T>>(sums[i] + Load(x[i]));
      }
    }
    for (int64_t i = 0; i < count; ++i) y[begin + i] = Store<T>(sums[i]);
  }
}

template <typename T>
std::unique_ptr<Kernel> MakeAddN(const PrepareContext& context) {
  const int64_t count = context.OutputShape(0).num_elements();
  const int num_inputs = context.num_inputs();
  return MakeKernel([=, threads = context.threads()](const KernelContext& run) {
    ParallelFor(threads, count, kNanosecondsPerElement * num_inputs, kGrain,
                [&](int64_t begin, int64_t end) {
                  AddBlocks<T>(run.inputs, num_inputs, Output<T>(run, 0), begin, end);
                });
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareAddN(const PrepareContext& context) {
  return PrepareByDType(context, context.OutputDType(0), NumericTypes(),
                        [&](auto type) { return MakeAddN<decltype(type)>(context); });
}

WEFT_REGISTER_KERNEL("ai.weft", "Scale", DeviceKind::kCpu, PrepareScale);
WEFT_REGISTER_KERNEL("ai.weft", "AddN", DeviceKind::kCpu, Widened(PrepareAddN));

}  // namespace
}  // namespace weft::cpu
