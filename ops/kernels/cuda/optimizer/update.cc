// The updates of all optimizers, LambDirection and EmaUpdate. The schema says by its names which
// operand is what (ops/defs/optimizer/update_operands.h).
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/optimizer/joined_kernel.h"
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

// One node.
struct UpdatePart {
  using Item = UpdateItem;

  std::string key;
  int num_inputs = 0;
  int num_outputs = 0;
  std::string op;
  std::string source;  // of faults
  int64_t count = 0;
  UpdateOperands operands;
  UpdateCall call;

  UpdateItem ItemOf(const void* const* inputs, void* const* outputs) const {
    const auto scalar = [&](int i) { return i < 0 ? nullptr : inputs[i]; };
    UpdateItem item;
    item.count = count;
    item.w = inputs[0];
    item.g = inputs[1];
    item.new_w = outputs[0];
    for (int s = 0; s < kMaxStates; ++s) {
      if (!call.has_state[s]) continue;
      item.state[s] = inputs[operands.state[s]];
      item.new_state[s] = outputs[operands.new_state[s]];
    }
    item.rate = scalar(operands.rate);
    item.scale = scalar(operands.scale);
    item.step = static_cast<const int64_t*>(scalar(operands.step));
    item.source = source.c_str();
    return item;
  }

  absl::Status Launch(const KernelContext& run, const UpdateItem* items, int items_count) const {
    UpdateCall now = call;
    now.fault = run.stream->fault();
    return LaunchStatus(LaunchUpdates(QueueOf(run), now, items, items_count), op);
  }
};

// All that the updates of one launch have in common. Numbers with all their digits.
std::string KeyOf(const UpdateCall& call, const std::string& op) {
  const UpdateAttributes& a = call.attributes;
  std::string key =
      absl::StrCat("CUDA update ", op, " ", std::string(DTypeName(call.dtype)), " ",
                   std::string(DTypeName(call.rate_dtype)), " ",
                   std::string(DTypeName(call.scale_dtype)), " ", a.nesterov, a.decoupled, " ");
  for (const bool has_state : call.has_state) absl::StrAppend(&key, has_state);
  for (const double number :
       {a.weight_decay, a.beta1, a.beta2, a.epsilon, a.momentum, a.dampening, a.rate_decay}) {
    absl::StrAppendFormat(&key, " %a", number);
  }
  return key;
}

KernelFactory UpdateKernel(UpdateKind kind) {
  return [kind](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    UpdatePart part;
    WEFT_ASSIGN_OR_RETURN(part.operands, OperandsOf(context));
    const auto dtype_of = [&](int i) { return i < 0 ? DType::kFloat32 : context.InputDType(i); };
    part.num_inputs = context.num_inputs();
    part.num_outputs = context.num_outputs();
    part.op = context.node().op;
    part.source = absl::StrCat(part.op, " '", context.node().name, "': step");
    part.count = context.InputShape(0).num_elements();
    UpdateCall& call = part.call;
    call.kind = kind;
    call.dtype = context.InputDType(0);
    call.attributes = AttributesOf(context, kind);
    for (int s = 0; s < kMaxStates; ++s) call.has_state[s] = part.operands.state[s] >= 0;
    call.rate_dtype = dtype_of(part.operands.rate);
    call.scale_dtype = dtype_of(part.operands.scale);
    part.key = KeyOf(call, part.op);
    return PrepareByElement(context, call.dtype, Elements<float, double>(),
                            [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                              return NewJoinedKernel(std::move(part));
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
