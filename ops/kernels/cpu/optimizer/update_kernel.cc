#include "ops/kernels/cpu/optimizer/update_kernel.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"

namespace weft::cpu {
namespace {

// Borders between threads: whole cache lines of any element type.
constexpr int64_t kGrain = 64;

struct State {
  int input = -1;
  int output = -1;
};

// Where the operands are; -1 = there is none.
struct Operands {
  int rate = -1;
  int step = -1;
  int scale = -1;
  std::array<State, kMaxStates> states = {};  // absent ones keep their place
  int num_states = 0;                         // those that are there
};

int OutputOf(const PrepareContext& context, const std::string& state) {
  for (int o = 0; o < context.num_outputs(); ++o) {
    if (context.node().schema->FormalOutput(o)->name == absl::StrCat("new_", state)) return o;
  }
  return -1;
}

absl::StatusOr<Operands> FindOperands(const PrepareContext& context) {
  Operands operands;
  int place = 0;
  if (!context.HasOutput(0)) return context.Unimplemented("output 0 must be wanted");
  for (int i = 2; i < context.num_inputs(); ++i) {
    const std::string& name = context.node().schema->FormalInput(i)->name;
    const int here = context.HasInput(i) ? i : -1;
    if (name == "learning_rate") operands.rate = here;
    if (name == "step") operands.step = here;
    if (name == "scale") operands.scale = here;
    if (IsUpdateScalar(name)) continue;
    if (place == kMaxStates) return context.Unimplemented("the op has too many states");
    State& state = operands.states[place++];
    if (here < 0) continue;
    state = {here, OutputOf(context, name)};
    ++operands.num_states;
    if (state.output >= 0 && context.HasOutput(state.output)) continue;
    return context.Unimplemented("the new value of each state must be wanted");
  }
  return operands;
}

// Scalars need not have the type of the parameter.
DType DTypeOfScalar(const PrepareContext& context, int i) {
  return i < 0 ? DType::kInvalid : context.InputDType(i);
}

// The scalar input i, of float32 or float64.
double Scalar(const KernelContext& run, int i, DType dtype) {
  return dtype == DType::kFloat64 ? *Input<double>(run, i) : *Input<float>(run, i);
}

template <typename T>
class Update final : public Kernel {
 public:
  Update(const PrepareContext& context, const Operands& operands, const UpdateTime& time,
         std::unique_ptr<UpdateRule> rule)
      : operands_(operands),
        rule_(std::move(rule)),
        count_(context.InputShape(0).num_elements()),
        nanoseconds_(time.nanoseconds + operands.num_states * time.more_per_state),
        rate_dtype_(DTypeOfScalar(context, operands.rate)),
        scale_dtype_(DTypeOfScalar(context, operands.scale)),
        threads_(context.threads()) {}

  absl::Status Run(const KernelContext& run) override {
    UpdateScalars now;
    if (operands_.rate >= 0) now.learning_rate = Scalar(run, operands_.rate, rate_dtype_);
    if (operands_.scale >= 0) now.scale = Scalar(run, operands_.scale, scale_dtype_);
    if (operands_.step >= 0) {
      const int64_t step = *Input<int64_t>(run, operands_.step);
      if (step < 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("input step is ", step, "; the first update is step 1"));
      }
      now.step = static_cast<double>(step);
    }
    UpdateArrays<T> arrays{Input<T>(run, 0), Input<T>(run, 1), {}, Output<T>(run, 0), {}};
    for (int i = 0; i < kMaxStates; ++i) {
      const State& state = operands_.states[i];
      if (state.input < 0) continue;
      arrays.state[i] = Input<T>(run, state.input);
      arrays.new_state[i] = Output<T>(run, state.output);
    }
    ParallelFor(threads_, count_, nanoseconds_, kGrain,
                [&](int64_t begin, int64_t end) { rule_->Run(now, arrays, begin, end); });
    return absl::OkStatus();
  }

 private:
  const Operands operands_;
  const std::unique_ptr<UpdateRule> rule_;
  const int64_t count_;
  const double nanoseconds_;
  const DType rate_dtype_;
  const DType scale_dtype_;
  const int threads_;
};

}  // namespace

KernelFactory UpdateKernel(
    UpdateTime time, std::function<std::unique_ptr<UpdateRule>(const Attributes&)> make_rule) {
  return [time, make_rule = std::move(make_rule)](
             const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    const absl::StatusOr<Operands> operands = FindOperands(context);
    if (!operands.ok()) return operands.status();
    return PrepareByDType(context, context.InputDType(0), TypeList<float, double>(),
                          [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return std::make_unique<Update<decltype(zero)>>(
                                context, *operands, time, make_rule(context.attributes()));
                          });
  };
}

}  // namespace weft::cpu
