// Adagrad, Adadelta, RMSprop, Lion, LAMB's direction and averages of weights; and the scalars of a
// step. What is the same for all elements is computed once per step, in double.
#include <array>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/defs/optimizer/rate_schedule.h"
#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/optimizer/adaptive_rules.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// Borders between threads: whole cache lines of any element type.
constexpr int64_t kGrain = 64;

// Which operands of an update are what; -1 = none. Absent state is skipped.
struct UpdateOperands {
  int rate = 2;
  int step = -1;
  int first_state = 3;
  double nanoseconds_per_element = 2;
};

// `make_rule(learning rate, t)` gives the rule of step t = 1, 2, ...
template <typename T, typename MakeRule>
std::unique_ptr<Kernel> MakeUpdate(const PrepareContext& context, const UpdateOperands& operands,
                                   MakeRule make_rule) {
  struct State {
    int input;
    int output;
  };
  std::array<State, 3> states = {};
  int num_states = 0;
  for (int i = operands.first_state; i < context.num_inputs(); ++i) {
    if (context.HasInput(i)) states[num_states++] = {i, 1 + i - operands.first_state};
  }
  const int64_t count = context.InputShape(0).num_elements();
  const DType rate_dtype = operands.rate < 0 ? DType::kFloat32 : context.InputDType(operands.rate);
  return MakeKernel([=, threads = context.threads()](const KernelContext& run) -> absl::Status {
    double rate = 0;
    if (operands.rate >= 0) {
      rate = rate_dtype == DType::kFloat64 ? *Input<double>(run, operands.rate)
                                           : *Input<float>(run, operands.rate);
    }
    const int64_t step = operands.step < 0 ? 1 : *Input<int64_t>(run, operands.step);
    if (step < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("input step is ", step, "; the first update is step 1"));
    }
    AdaptiveArrays<T> arrays{Input<T>(run, 0), Input<T>(run, 1), {}, Output<T>(run, 0), {}};
    for (int i = 0; i < num_states; ++i) {
      arrays.state[i] = Input<T>(run, states[i].input);
      arrays.new_state[i] = Output<T>(run, states[i].output);
    }
    const AdaptiveRule<T> rule = make_rule(rate, static_cast<double>(step));
    ParallelFor(threads, count, operands.nanoseconds_per_element, kGrain,
                [&](int64_t begin, int64_t end) { AdaptiveUpdate(rule, arrays, begin, end); });
    return absl::OkStatus();
  });
}

// A factory for float and double of `make(T{}, context)`, for nodes that want the new value of
// every state they have.
template <typename Make>
KernelFactory UpdateFactory(int first_state, Make make) {
  return [first_state,
          make](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    bool wanted = context.HasOutput(0);
    for (int i = first_state; i < context.num_inputs(); ++i) {
      wanted &= !context.HasInput(i) || context.HasOutput(1 + i - first_state);
    }
    if (!wanted) return context.Unimplemented("the new value of each state must be wanted");
    return PrepareByDType(context, context.InputDType(0), TypeList<float, double>(),
                          [&](auto zero) { return make(zero, context); });
  };
}

const auto kAdagrad = [](auto zero, const PrepareContext& context) {
  using T = decltype(zero);
  const Attributes& attributes = context.attributes();
  AdagradRule<T> rule;
  rule.l2_decay = static_cast<T>(Hyperparameter(attributes, "weight_decay", 0));
  rule.epsilon = static_cast<T>(Hyperparameter(attributes, "epsilon", 1e-10));
  const double rate_decay = Hyperparameter(attributes, "rate_decay", 0);
  return MakeUpdate<T>(context, {.step = 3, .first_state = 4},
                       [=](double rate, double step) -> AdaptiveRule<T> {
                         AdagradRule<T> now = rule;
                         now.step_size = static_cast<T>(rate / (1 + (step - 1) * rate_decay));
                         return now;
                       });
};

const auto kAdadelta = [](auto zero, const PrepareContext& context) {
  using T = decltype(zero);
  const Attributes& attributes = context.attributes();
  const double rho = Hyperparameter(attributes, "rho", 0.9);
  AdadeltaRule<T> rule;
  rule.l2_decay = static_cast<T>(Hyperparameter(attributes, "weight_decay", 0));
  rule.rho = static_cast<T>(rho);
  rule.square_share = static_cast<T>(1 - rho);
  rule.epsilon = static_cast<T>(Hyperparameter(attributes, "epsilon", 1e-6));
  return MakeUpdate<T>(context, {.nanoseconds_per_element = 4},
                       [=](double rate, double) -> AdaptiveRule<T> {
                         AdadeltaRule<T> now = rule;
                         now.learning_rate = static_cast<T>(rate);
                         return now;
                       });
};

const auto kRmsprop = [](auto zero, const PrepareContext& context) {
  using T = decltype(zero);
  const Attributes& attributes = context.attributes();
  const double alpha = Hyperparameter(attributes, "alpha", 0.99);
  RmspropRule<T> rule;
  rule.l2_decay = static_cast<T>(Hyperparameter(attributes, "weight_decay", 0));
  rule.alpha = static_cast<T>(alpha);
  rule.square_share = static_cast<T>(1 - alpha);
  rule.epsilon = static_cast<T>(Hyperparameter(attributes, "epsilon", 1e-8));
  rule.momentum = static_cast<T>(Hyperparameter(attributes, "momentum", 0));
  rule.centered = context.HasInput(4);
  rule.has_velocity = context.HasInput(5);
  return MakeUpdate<T>(context, {.nanoseconds_per_element = 3},
                       [=](double rate, double) -> AdaptiveRule<T> {
                         RmspropRule<T> now = rule;
                         now.learning_rate = static_cast<T>(rate);
                         return now;
                       });
};

const auto kLion = [](auto zero, const PrepareContext& context) {
  using T = decltype(zero);
  const Attributes& attributes = context.attributes();
  const double beta1 = Hyperparameter(attributes, "beta1", 0.9);
  const double beta2 = Hyperparameter(attributes, "beta2", 0.99);
  const double weight_decay = Hyperparameter(attributes, "weight_decay", 0);
  return MakeUpdate<T>(context, {}, [=](double rate, double) -> AdaptiveRule<T> {
    return LionRule<T>{static_cast<T>(rate),  static_cast<T>(1 - rate * weight_decay),
                       static_cast<T>(beta1), static_cast<T>(1 - beta1),
                       static_cast<T>(beta2), static_cast<T>(1 - beta2)};
  });
};

const auto kLamb = [](auto zero, const PrepareContext& context) {
  using T = decltype(zero);
  const Attributes& attributes = context.attributes();
  const double beta1 = Hyperparameter(attributes, "beta1", 0.9);
  const double beta2 = Hyperparameter(attributes, "beta2", 0.999);
  LambRule<T> rule;
  rule.beta1 = static_cast<T>(beta1);
  rule.gradient_share = static_cast<T>(1 - beta1);
  rule.beta2 = static_cast<T>(beta2);
  rule.square_share = static_cast<T>(1 - beta2);
  rule.epsilon = static_cast<T>(Hyperparameter(attributes, "epsilon", 1e-6));
  rule.weight_decay = static_cast<T>(Hyperparameter(attributes, "weight_decay", 0));
  return MakeUpdate<T>(context,
                       {.rate = -1, .step = 2, .first_state = 3, .nanoseconds_per_element = 2.5},
                       [=](double, double step) -> AdaptiveRule<T> {
                         LambRule<T> now = rule;
                         now.mean_scale = static_cast<T>(1 / (1 - std::pow(beta1, step)));
                         now.root_scale = static_cast<T>(1 / std::sqrt(1 - std::pow(beta2, step)));
                         return now;
                       });
};

const auto kEma = [](auto zero, const PrepareContext& context) {
  using T = decltype(zero);
  const double decay = Hyperparameter(context.attributes(), "decay", 0);
  const EmaRule<T> rule{static_cast<T>(decay), static_cast<T>(1 - decay)};
  return MakeUpdate<T>(context, {.rate = -1, .first_state = 2, .nanoseconds_per_element = 1},
                       [=](double, double) -> AdaptiveRule<T> { return rule; });
};

// ---- What is computed once per step.

template <typename T>
std::unique_ptr<Kernel> MakeTrustRatio(const PrepareContext& context) {
  const Attributes& attributes = context.attributes();
  const double coefficient = Hyperparameter(attributes, "coefficient", 1);
  const double weight_decay = Hyperparameter(attributes, "weight_decay", 0);
  const double epsilon = Hyperparameter(attributes, "epsilon", 0);
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

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRateFactor(const PrepareContext& context) {
  const RateSchedule schedule = RateScheduleOf(context.attributes());
  if (const absl::Status status = ValidateRateSchedule(schedule); !status.ok()) {
    return context.InvalidArgument(std::string(status.message()));
  }
  const int64_t count = context.OutputShape(0).num_elements();
  return MakeKernel([schedule, count](const KernelContext& run) {
    for (int64_t i = 0; i < count; ++i) {
      const double factor = RateFactor(schedule, Input<int64_t>(run, 0)[i] - 1);
      Output<float>(run, 0)[i] = static_cast<float>(factor);
    }
    return absl::OkStatus();
  });
}

WEFT_REGISTER_KERNEL("ai.weft", "AdagradUpdate", DeviceKind::kCpu, UpdateFactory(4, kAdagrad));
WEFT_REGISTER_KERNEL("ai.weft", "AdadeltaUpdate", DeviceKind::kCpu, UpdateFactory(3, kAdadelta));
WEFT_REGISTER_KERNEL("ai.weft", "RmspropUpdate", DeviceKind::kCpu, UpdateFactory(3, kRmsprop));
WEFT_REGISTER_KERNEL("ai.weft", "LionUpdate", DeviceKind::kCpu, UpdateFactory(3, kLion));
WEFT_REGISTER_KERNEL("ai.weft", "LambDirection", DeviceKind::kCpu, UpdateFactory(3, kLamb));
WEFT_REGISTER_KERNEL("ai.weft", "EmaUpdate", DeviceKind::kCpu, UpdateFactory(2, kEma));
WEFT_REGISTER_KERNEL("ai.weft", "TrustRatio", DeviceKind::kCpu, PrepareTrustRatio);
WEFT_REGISTER_KERNEL("ai.weft", "RateFactor", DeviceKind::kCpu, PrepareRateFactor);

}  // namespace
}  // namespace weft::cpu
