// TrustRatio: ops/defs/optimizer/trust_ratio.cc has the formula.
#include <cmath>

#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/operand.h"

namespace weft::cpu {
namespace {

template <typename T>
std::unique_ptr<Kernel> MakeTrustRatio(const PrepareContext& context) {
  const Attributes& attributes = context.attributes();
  const double coefficient = Hyperparameter(attributes, "coefficient", 1);
  const double weight_decay = Hyperparameter(attributes, "weight_decay");
  const double epsilon = Hyperparameter(attributes, "epsilon");
  const int64_t count = context.OutputShape(0).num_elements();
  return MakeKernel([=](const KernelContext& run) {
    for (int64_t i = 0; i < count; ++i) {
      const double w = std::sqrt(static_cast<double>(Input<T>(run, 0)[i]));
      const double u = std::sqrt(static_cast<double>(Input<T>(run, 1)[i]));
      const bool is_known = w != 0 && u != 0;
      const double ratio = is_known ? coefficient * w / (u + weight_decay * w + epsilon) : 1;
      Output<T>(run, 0)[i] = static_cast<T>(ratio);
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTrustRatio(const PrepareContext& context) {
  if (context.InputShape(0) != context.InputShape(1)) {
    return context.InvalidArgument("both norms must have one shape");
  }
  return PrepareByDType(context, context.InputDType(0), TypeList<float, double>(),
                        [&](auto zero) { return MakeTrustRatio<decltype(zero)>(context); });
}

WEFT_REGISTER_KERNEL("ai.weft", "TrustRatio", DeviceKind::kCpu, PrepareTrustRatio);

}  // namespace
}  // namespace weft::cpu
