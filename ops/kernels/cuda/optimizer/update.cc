// The updates of all optimizers, LambDirection and EmaUpdate. The schema says by its names which
// operand is what (ops/defs/optimizer/update_operands.h).
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/optimizer/update_calls.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// Where the operands are; -1 = there is none.
struct UpdateOperands {
  int rate = -1;
  int step = -1;
  int scale = -1;
  int state[kMaxStates] = {-1, -1, -1, -1};
  int new_state[kMaxStates] = {-1, -1, -1, -1};
};

int NewStateOf(const PrepareContext& context, const std::string& state) {
  for (int o = 0; o < context.num_outputs(); ++o) {
    if (context.node().schema->FormalOutput(o)->name == absl::StrCat("new_", state)) return o;
  }
  return -1;
}

absl::StatusOr<UpdateOperands> OperandsOf(const PrepareContext& context) {
  UpdateOperands operands;
  if (!context.HasOutput(0)) return context.Unimplemented("output 0 must be wanted");
  int place = 0;
  for (int i = 2; i < context.num_inputs(); ++i) {
    const std::string& name = context.node().schema->FormalInput(i)->name;
    const int here = context.HasInput(i) ? i : -1;
    if (name == "learning_rate") operands.rate = here;
    if (name == "step") operands.step = here;
    if (name == "scale") operands.scale = here;
    if (IsUpdateScalar(name)) continue;
    if (place == kMaxStates) return context.Unimplemented("the op has too many states");
    operands.state[place] = here;
    operands.new_state[place] = NewStateOf(context, name);
    const int output = operands.new_state[place++];
    if (here >= 0 && (output < 0 || !context.HasOutput(output))) {
      return context.Unimplemented("the new value of each state must be wanted");
    }
  }
  return operands;
}

UpdateAttributes AttributesOf(const PrepareContext& context, UpdateKind kind) {
  const auto number = [&](const char* name) { return Hyperparameter(context.attributes(), name); };
  UpdateAttributes attributes;
  attributes.weight_decay = number("weight_decay");
  attributes.beta1 = number(kind == UpdateKind::kRmsprop    ? "alpha"
                            : kind == UpdateKind::kAdadelta ? "rho"
                            : kind == UpdateKind::kEma      ? "decay"
                                                            : "beta1");
  attributes.beta2 = number("beta2");
  attributes.epsilon = number("epsilon");
  attributes.momentum = number("momentum");
  attributes.dampening = number("dampening");
  attributes.rate_decay = number("rate_decay");
  attributes.nesterov = context.attributes().Int("nesterov", 0) != 0;
  attributes.decoupled = context.attributes().Int("decoupled", 0) != 0;
  return attributes;
}

RealInput ScalarOf(const KernelContext& run, int i, DType dtype) {
  return i < 0 ? RealInput() : RealInput{run.inputs[i], dtype};
}

KernelFactory UpdateKernel(UpdateKind kind) {
  return [kind](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    WEFT_ASSIGN_OR_RETURN(const UpdateOperands operands, OperandsOf(context));
    const auto dtype_of = [&](int i) { return i < 0 ? DType::kFloat32 : context.InputDType(i); };
    UpdateCall call;
    call.kind = kind;
    call.dtype = context.InputDType(0);
    call.attributes = AttributesOf(context, kind);
    call.count = context.InputShape(0).num_elements();
    call.report.low = 1;
    call.report.high = std::numeric_limits<int64_t>::max();
    const DType rate_dtype = dtype_of(operands.rate);
    const DType scale_dtype = dtype_of(operands.scale);
    const std::string op = context.node().op;
    const std::string source = absl::StrCat(op, " '", context.node().name, "': step");
    return PrepareByElement(context, call.dtype, Elements<float, double>(),
                            [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                              return MakeKernel([=](const KernelContext& run) mutable {
                                call.w = run.inputs[0];
                                call.g = run.inputs[1];
                                call.new_w = run.outputs[0];
                                for (int s = 0; s < kMaxStates; ++s) {
                                  if (operands.state[s] < 0) continue;
                                  call.state[s] = run.inputs[operands.state[s]];
                                  call.new_state[s] = run.outputs[operands.new_state[s]];
                                }
                                call.rate = ScalarOf(run, operands.rate, rate_dtype);
                                call.scale = ScalarOf(run, operands.scale, scale_dtype);
                                if (operands.step >= 0) call.step = In<int64_t>(run, operands.step);
                                call.report.fault = run.stream->fault();
                                call.report.source = source.c_str();
                                return LaunchStatus(LaunchUpdate(QueueOf(run), call), op);
                              });
                            });
  };
}

WEFT_REGISTER_KERNEL("ai.weft", "SgdUpdate", DeviceKind::kCuda, UpdateKernel(UpdateKind::kSgd));
WEFT_REGISTER_KERNEL("ai.weft", "AdamUpdate", DeviceKind::kCuda, UpdateKernel(UpdateKind::kAdam));
WEFT_REGISTER_KERNEL("ai.weft", "LionUpdate", DeviceKind::kCuda, UpdateKernel(UpdateKind::kLion));
WEFT_REGISTER_KERNEL("ai.weft", "RmspropUpdate", DeviceKind::kCuda,
                     UpdateKernel(UpdateKind::kRmsprop));
WEFT_REGISTER_KERNEL("ai.weft", "AdadeltaUpdate", DeviceKind::kCuda,
                     UpdateKernel(UpdateKind::kAdadelta));
WEFT_REGISTER_KERNEL("ai.weft", "AdagradUpdate", DeviceKind::kCuda,
                     UpdateKernel(UpdateKind::kAdagrad));
WEFT_REGISTER_KERNEL("ai.weft", "RadamUpdate", DeviceKind::kCuda, UpdateKernel(UpdateKind::kRadam));
WEFT_REGISTER_KERNEL("ai.weft", "LambDirection", DeviceKind::kCuda,
                     UpdateKernel(UpdateKind::kLamb));
WEFT_REGISTER_KERNEL("ai.weft", "EmaUpdate", DeviceKind::kCuda, UpdateKernel(UpdateKind::kEma));

}  // namespace
}  // namespace weft::cuda
