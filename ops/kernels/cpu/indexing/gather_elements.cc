// GatherElements and GatherElementsGrad: one index per element.
#include <algorithm>

#include "ops/kernels/cpu/blocks/element_walk.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/wide_element.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// Gathering only moves elements: by their size, not their type.
template <typename T, typename L>
std::unique_ptr<Kernel> MakeGather(const ElementWalk& walk) {
  return MakeKernel([walk](const KernelContext& run) {
    const T* data = Input<T>(run, 0);
    T* out = Output<T>(run, 0);
    return walk.ForEach(Input<L>(run, 1), [&](int64_t i, int64_t from) { out[i] = data[from]; });
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGatherElements(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ElementWalk walk, ElementWalk::Make(context, context.InputShape(0)));
  return PrepareByDType(context, context.InputDType(1), IndexTypes(),
                        [&](auto index) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using L = decltype(index);
                          return PrepareByWidth(context, context.InputDType(0), [&](auto element) {
                            return MakeGather<decltype(element), L>(walk);
                          });
                        });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGatherElementsGrad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ElementWalk walk, ElementWalk::Make(context, context.OutputShape(0)));
  const int64_t elements = context.OutputShape(0).num_elements();
  return PrepareByDType(context, context.InputDType(0), FloatTypes(), [&](auto zero) {
    using T = decltype(zero);
    return PrepareByDType(context, context.InputDType(1), IndexTypes(),
                          [&](auto index) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            using L = decltype(index);
                            return MakeKernel([walk, elements](const KernelContext& run) {
                              const T* dy = Input<T>(run, 0);
                              T* out = Output<T>(run, 0);
                              std::fill(out, out + elements, T{});
                              return walk.ForEach(Input<L>(run, 1), [&](int64_t i, int64_t to) {
                                out[to] = Store<T>(Load(out[to]) + Load(dy[i]));
                              });
                            });
                          });
  });
}

WEFT_REGISTER_KERNEL("", "GatherElements", DeviceKind::kCpu, PrepareGatherElements);
WEFT_REGISTER_KERNEL(kWeftDomain, "GatherElementsGrad", DeviceKind::kCpu,
                     PrepareGatherElementsGrad);

}  // namespace
}  // namespace weft::cpu
