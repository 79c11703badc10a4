// SgdUpdate and AdamUpdate: the scalars are computed once per step, in double.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/optimizer/update_rules.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// Borders between threads: whole cache lines of any element type.
constexpr int64_t kGrain = 64;

// The scalar input i, of float32 or float64.
double ScalarInput(const KernelContext& run, int i, DType dtype) {
  return dtype == DType::kFloat64 ? *Input<double>(run, i) : *Input<float>(run, i);
}

absl::Status CheckStep(int64_t step) {
  if (step >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("input step is ", step, "; the first update is step 1"));
}

// What of the rule changes from step to step.
struct SgdScalars {
  DType rate_dtype = DType::kFloat32;
  bool has_scale = false;
  bool has_step = false;
};

template <typename T>
absl::StatusOr<SgdRule<T>> SgdRuleNow(SgdRule<T> rule, const SgdScalars& scalars,
                                      const KernelContext& run) {
  rule.learning_rate = static_cast<T>(ScalarInput(run, 2, scalars.rate_dtype));
  if (scalars.has_scale) {
    rule.scale = static_cast<T>(ScalarInput(run, 4, DTypeOf<T>::value));
  }
  if (scalars.has_step) {
    const int64_t step = *Input<int64_t>(run, 5);
    WEFT_RETURN_IF_ERROR(CheckStep(step));
    if (step == 1) rule.gradient_share = 1;
  }
  return rule;
}

template <typename T>
std::unique_ptr<Kernel> MakeSgdUpdate(const PrepareContext& context) {
  const Attributes& attributes = context.attributes();
  SgdRule<T> rule;
  rule.momentum = static_cast<T>(Hyperparameter(attributes, "momentum", 0));
  rule.gradient_share = static_cast<T>(1 - Hyperparameter(attributes, "dampening", 0));
  rule.weight_decay = static_cast<T>(Hyperparameter(attributes, "weight_decay", 0));
  rule.nesterov = attributes.Int("nesterov", 0) != 0;
  const int64_t count = context.InputShape(0).num_elements();
  const bool has_velocity = context.HasInput(3);
  const bool keeps_velocity = context.HasOutput(1);
  const SgdScalars scalars{context.InputDType(2), context.HasInput(4), context.HasInput(5)};
  return MakeKernel([=, threads = context.threads()](const KernelContext& run) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const SgdRule<T> now, SgdRuleNow(rule, scalars, run));
    const SgdArrays<T> arrays{Input<T>(run, 0), Input<T>(run, 1),
                              has_velocity ? Input<T>(run, 3) : nullptr, Output<T>(run, 0),
                              keeps_velocity ? Output<T>(run, 1) : nullptr};
    ParallelFor(threads, count, has_velocity ? 1.5 : 1.0, kGrain,
                [&](int64_t begin, int64_t end) { SgdUpdate(now, arrays, begin, end); });
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSgdUpdate(const PrepareContext& context) {
  return PrepareByDType(context, context.InputDType(0), TypeList<float, double>(),
                        [&](auto type) { return MakeSgdUpdate<decltype(type)>(context); });
}

// What AdamUpdate's attributes say.
struct AdamOptions {
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
  bool decoupled = false;
};

AdamOptions AdamOptionsOf(const Attributes& attributes) {
  return {Hyperparameter(attributes, "beta1", 0.9), Hyperparameter(attributes, "beta2", 0.999),
          Hyperparameter(attributes, "epsilon", 1e-8),
          Hyperparameter(attributes, "weight_decay", 0), attributes.Int("decoupled", 0) != 0};
}

// The rule of step t = 1, 2, ...
template <typename T>
AdamRule<T> AdamRuleOf(const AdamOptions& options, double learning_rate, int64_t step) {
  const double t = static_cast<double>(step);
  AdamRule<T> rule;
  rule.beta1 = static_cast<T>(options.beta1);
  rule.gradient_share = static_cast<T>(1 - options.beta1);
  rule.beta2 = static_cast<T>(options.beta2);
  rule.square_share = static_cast<T>(1 - options.beta2);
  rule.epsilon = static_cast<T>(options.epsilon);
  rule.step_size = static_cast<T>(learning_rate / (1 - std::pow(options.beta1, t)));
  rule.root_scale = static_cast<T>(1 / std::sqrt(1 - std::pow(options.beta2, t)));
  rule.l2_decay = static_cast<T>(options.decoupled ? 0 : options.weight_decay);
  rule.weight_scale =
      static_cast<T>(options.decoupled ? 1 - learning_rate * options.weight_decay : 1);
  return rule;
}

template <typename T>
std::unique_ptr<Kernel> MakeAdamUpdate(const PrepareContext& context) {
  const AdamOptions options = AdamOptionsOf(context.attributes());
  const int64_t count = context.InputShape(0).num_elements();
  const bool has_max = context.HasInput(6);
  return MakeKernel([=, rate_dtype = context.InputDType(2),
                     threads = context.threads()](const KernelContext& run) -> absl::Status {
    const int64_t step = *Input<int64_t>(run, 3);
    WEFT_RETURN_IF_ERROR(CheckStep(step));
    const AdamRule<T> rule = AdamRuleOf<T>(options, ScalarInput(run, 2, rate_dtype), step);
    const AdamArrays<T> arrays{Input<T>(run, 0),
                               Input<T>(run, 1),
                               Input<T>(run, 4),
                               Input<T>(run, 5),
                               Output<T>(run, 0),
                               Output<T>(run, 1),
                               Output<T>(run, 2),
                               has_max ? Input<T>(run, 6) : nullptr,
                               has_max ? Output<T>(run, 3) : nullptr};
    ParallelFor(threads, count, has_max ? 3.5 : 2.5, kGrain,
                [&](int64_t begin, int64_t end) { AdamUpdate(rule, arrays, begin, end); });
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareAdamUpdate(const PrepareContext& context) {
  for (int i = 0; i < (context.HasInput(6) ? 4 : 3); ++i) {
    if (!context.HasOutput(i)) return context.Unimplemented("all outputs must be wanted");
  }
  return PrepareByDType(context, context.InputDType(0), TypeList<float, double>(),
                        [&](auto type) { return MakeAdamUpdate<decltype(type)>(context); });
}

WEFT_REGISTER_KERNEL("ai.weft", "SgdUpdate", DeviceKind::kCpu, PrepareSgdUpdate);
WEFT_REGISTER_KERNEL("ai.weft", "AdamUpdate", DeviceKind::kCpu, PrepareAdamUpdate);

}  // namespace
}  // namespace weft::cpu
