// Comparisons, Not and Where.
#include <array>

#include "ops/kernels/cpu/blocks/elementwise_loop.h"
#include "ops/kernels/cpu/blocks/operand.h"

namespace weft::cpu {
namespace {

enum class Comparison : uint8_t { kEqual, kLess, kGreater, kLessOrEqual, kGreaterOrEqual };

template <Comparison comparison, typename C>
bool Compare(C a, C b) {
  if constexpr (comparison == Comparison::kEqual) return a == b;
  if constexpr (comparison == Comparison::kLess) return a < b;
  if constexpr (comparison == Comparison::kLessOrEqual) return a <= b;
  if constexpr (comparison == Comparison::kGreaterOrEqual) return a >= b;
  return a > b;
}

template <Comparison comparison, typename T>
std::unique_ptr<Kernel> MakeComparison(BroadcastPlan plan, int threads) {
  return MakeKernel([=, plan = std::move(plan)](const KernelContext& context) {
    const T* a = Input<T>(context, 0);
    const T* b = Input<T>(context, 1);
    bool* out = Output<bool>(context, 0);
    const int64_t a_step = plan.inner_strides[0];
    const int64_t b_step = plan.inner_strides[1];
    ForEachRun(
        plan, threads, 0.5, [&](const BroadcastPlan::Strides& offsets, int64_t to, int64_t count) {
          const T* x = a + offsets[0];
          const T* y = b + offsets[1];
          for (int64_t i = 0; i < count; ++i) {
            out[to + i] =
                Compare<comparison, ComputeType<T>>(Load(x[i * a_step]), Load(y[i * b_step]));
          }
        });
    return absl::OkStatus();
  });
}

template <Comparison comparison, typename Types>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareComparison(const PrepareContext& context) {
  BroadcastPlan plan =
      BroadcastPlan::Make(context.OutputShape(0), {context.InputShape(0), context.InputShape(1)});
  return PrepareByDType(context, context.InputDType(0), Types(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return MakeComparison<comparison, decltype(zero)>(std::move(plan),
                                                                            context.threads());
                        });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareNot(const PrepareContext& context) {
  const int64_t elements = context.OutputShape(0).num_elements();
  return MakeKernel([elements](const KernelContext& run) {
    const bool* x = Input<bool>(run, 0);
    bool* out = Output<bool>(run, 0);
    for (int64_t i = 0; i < elements; ++i) out[i] = !x[i];
    return absl::OkStatus();
  });
}

// Where only moves elements: by their size, not their type.
template <typename T>
std::unique_ptr<Kernel> MakeWhere(BroadcastPlan plan, int threads) {
  return MakeKernel([=, plan = std::move(plan)](const KernelContext& context) {
    const bool* condition = Input<bool>(context, 0);
    const T* x = Input<T>(context, 1);
    const T* y = Input<T>(context, 2);
    T* out = Output<T>(context, 0);
    const BroadcastPlan::Strides step = plan.inner_strides;
    ForEachRun(plan, threads, 0.5,
               [&](const BroadcastPlan::Strides& offsets, int64_t to, int64_t count) {
                 const bool* c = condition + offsets[0];
                 const T* a = x + offsets[1];
                 const T* b = y + offsets[2];
                 for (int64_t i = 0; i < count; ++i) {
                   out[to + i] = c[i * step[0]] ? a[i * step[1]] : b[i * step[2]];
                 }
               });
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareWhere(const PrepareContext& context) {
  BroadcastPlan plan =
      BroadcastPlan::Make(context.OutputShape(0),
                          {context.InputShape(0), context.InputShape(1), context.InputShape(2)});
  const int threads = context.threads();
  switch (DTypeBits(context.InputDType(1))) {
    case 8:
      return MakeWhere<uint8_t>(std::move(plan), threads);
    case 16:
      return MakeWhere<uint16_t>(std::move(plan), threads);
    case 32:
      return MakeWhere<uint32_t>(std::move(plan), threads);
    case 64:
      return MakeWhere<uint64_t>(std::move(plan), threads);
    case 128:
      return MakeWhere<std::array<uint64_t, 2>>(std::move(plan), threads);
    default:
      return context.Unimplemented("no kernel for elements of this size");
  }
}

WEFT_REGISTER_KERNEL("", "Equal", DeviceKind::kCpu,
                     (PrepareComparison<Comparison::kEqual, RealTypes>));
WEFT_REGISTER_KERNEL("", "Less", DeviceKind::kCpu,
                     (PrepareComparison<Comparison::kLess, NumericTypes>));
WEFT_REGISTER_KERNEL("", "Greater", DeviceKind::kCpu,
                     (PrepareComparison<Comparison::kGreater, NumericTypes>));
WEFT_REGISTER_KERNEL("", "LessOrEqual", DeviceKind::kCpu,
                     (PrepareComparison<Comparison::kLessOrEqual, NumericTypes>));
WEFT_REGISTER_KERNEL("", "GreaterOrEqual", DeviceKind::kCpu,
                     (PrepareComparison<Comparison::kGreaterOrEqual, NumericTypes>));
WEFT_REGISTER_KERNEL("", "Not", DeviceKind::kCpu, PrepareNot);
WEFT_REGISTER_KERNEL("", "Where", DeviceKind::kCpu, PrepareWhere);

}  // namespace
}  // namespace weft::cpu
