#include "ops/kernels/cuda/recurrent/recurrent_plan.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/activation.h"
#include "ops/kernels/cuda/blocks/workspace_layout.h"
#include "ops/kernels/cuda/recurrent/recurrent_operands.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

CellFunction FunctionOf(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kRelu:
      return CellFunction::kRelu;
    case ActivationKind::kTanh:
      return CellFunction::kTanh;
    case ActivationKind::kSigmoid:
      return CellFunction::kSigmoid;
    case ActivationKind::kAffine:
      return CellFunction::kAffine;
    case ActivationKind::kLeakyRelu:
      return CellFunction::kLeakyRelu;
    case ActivationKind::kThresholdedRelu:
      return CellFunction::kThresholdedRelu;
    case ActivationKind::kScaledTanh:
      return CellFunction::kScaledTanh;
    case ActivationKind::kHardSigmoid:
      return CellFunction::kHardSigmoid;
    case ActivationKind::kElu:
      return CellFunction::kElu;
    case ActivationKind::kSoftsign:
      return CellFunction::kSoftsign;
    case ActivationKind::kSoftplus:
      return CellFunction::kSoftplus;
  }
  return CellFunction::kTanh;
}

std::vector<std::string> DefaultActivations(int32_t gates) {
  if (gates == 4) return {"Sigmoid", "Tanh", "Tanh"};
  if (gates == 3) return {"Sigmoid", "Tanh"};
  return {"Tanh"};
}

// Whether the gradient gets what the gates of activation `i` became. An LSTM keeps all gates of a
// direction in one way, others each activation's in its own.
bool KeepsValue(const std::vector<Activation>& activations, size_t i, int32_t gates, float clip) {
  const auto is = [&](size_t which, ActivationKind kind) {
    return activations[which].kind == kind;
  };
  if (clip > 0) return false;
  if (gates != 4) return is(i, ActivationKind::kSigmoid) || is(i, ActivationKind::kTanh);
  const size_t first = i / 3 * 3;
  return is(first, ActivationKind::kSigmoid) && is(first + 1, ActivationKind::kTanh) &&
         is(first + 2, ActivationKind::kTanh);
}

absl::Status ReadCellActivations(const PrepareContext& context, RecurrentPlan& plan) {
  Attributes attributes = context.attributes();
  const std::vector<std::string> fallback = DefaultActivations(plan.steps.gates);
  std::vector<std::string> names = attributes.Strings("activations");
  const size_t wanted = fallback.size() * static_cast<size_t>(plan.steps.directions);
  // RNN's default in ONNX names two, whatever the number of directions.
  if (fallback.size() == 1 && names.size() > wanted) {
    names.resize(wanted);
    attributes.Set("activations", names);
  }
  const auto activations = ReadActivations(attributes, fallback, plan.steps.directions);
  if (!activations.ok()) {
    return context.InvalidArgument(std::string(activations.status().message()));
  }
  for (size_t i = 0; i < activations->size(); ++i) {
    const Activation& activation = (*activations)[i];
    CellActivation& own = plan.activations.emplace_back();
    own.function = FunctionOf(activation.kind);
    own.keeps_value = KeepsValue(*activations, i, plan.steps.gates, plan.clip) ? 1 : 0;
    own.alpha = activation.alpha;
    own.beta = activation.beta;
  }
  return absl::OkStatus();
}

// The rest of a plan whose sizes are known.
absl::Status FinishPlan(const PrepareContext& context, RecurrentPlan& plan) {
  RecurrentSteps& steps = plan.steps;
  steps.reverse = context.attributes().String("direction", "forward") == "reverse" ? 1 : 0;
  plan.clip = context.attributes().Float("clip", 0.0f);
  plan.tf32 = plan.dtype == DType::kFloat32 && context.tf32();
  plan.lengths_source =
      absl::StrCat(context.node().op, " '", context.node().name, "': sequence_lens");
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  if (steps.batch > 0 && steps.directions * steps.hidden > kLargest / steps.batch) {
    return context.Unimplemented(absl::StrCat("the state has ", steps.directions, " x ",
                                              steps.batch, " x ", steps.hidden,
                                              " elements; CUDA kernels take less than 2^31"));
  }
  if (steps.elements() > 0) {
    steps.by_hidden = FastDivisor<int32_t>(static_cast<int32_t>(steps.hidden));
    steps.by_batch = FastDivisor<int32_t>(static_cast<int32_t>(steps.batch));
  }
  return ReadCellActivations(context, plan);
}

}  // namespace

void RecurrentPlan::CopyActivations(int i, CellActivation (&to)[kMaxDirections]) const {
  const size_t own = activations.size() / static_cast<size_t>(steps.directions);
  for (int32_t d = 0; d < steps.directions; ++d) {
    to[d] = activations[static_cast<size_t>(d) * own + static_cast<size_t>(i)];
  }
}

absl::StatusOr<RecurrentPlan> PlanRecurrent(const PrepareContext& context, int32_t gates) {
  const Shape& x = context.InputShape(kRecurrentX);
  const Shape& r = context.InputShape(kRecurrentR);
  RecurrentPlan plan;
  plan.dtype = context.InputDType(kRecurrentR);
  plan.input = x.dim(2);
  RecurrentSteps& steps = plan.steps;
  steps.batch_first = context.attributes().Int("layout", 0) == 1 ? 1 : 0;
  steps.time = x.dim(steps.batch_first != 0 ? 1 : 0);
  steps.batch = x.dim(steps.batch_first != 0 ? 0 : 1);
  steps.hidden = r.dim(2);
  steps.directions = static_cast<int32_t>(r.dim(0));
  steps.gates = gates;
  WEFT_RETURN_IF_ERROR(FinishPlan(context, plan));
  return plan;
}

absl::StatusOr<RecurrentPlan> PlanRecurrentGrad(const PrepareContext& context, int32_t gates) {
  const Shape& rows = context.InputShape(kGradGates);
  RecurrentPlan plan;
  plan.dtype = context.InputDType(kGradR);
  RecurrentSteps& steps = plan.steps;
  steps.batch_first = context.attributes().Int("layout", 0) == 1 ? 1 : 0;
  steps.time = rows.dim(steps.batch_first != 0 ? 2 : 1);
  steps.batch = rows.dim(steps.batch_first != 0 ? 1 : 2);
  steps.hidden = context.InputShape(kGradR).dim(2);
  steps.directions = static_cast<int32_t>(rows.dim(0));
  steps.gates = gates;
  WEFT_RETURN_IF_ERROR(FinishPlan(context, plan));
  return plan;
}

absl::StatusOr<GateProduct> GateProduct::Create(const PrepareContext& context,
                                                const RecurrentPlan& plan,
                                                const GateProductSizes& sizes) {
  WEFT_ASSIGN_OR_RETURN(BlasLt * library, BlasLtOf(context.device()));
  const int64_t width = DTypeBytes(plan.dtype, 1);
  BatchedProductSpec spec;
  MatrixProductSpec& matrix = spec.matrix;
  matrix.dtype = plan.dtype;
  matrix.y_dtype = plan.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  matrix.tf32 = plan.tf32;
  matrix.m = sizes.m;
  matrix.n = sizes.n;
  matrix.k = sizes.k;
  matrix.trans_b = sizes.trans_b;
  matrix.a_row = sizes.k;
  matrix.b_row = sizes.trans_b ? sizes.k : sizes.n;
  matrix.y_row = sizes.n;
  matrix.b_alignment = AlignmentOf({sizes.b_begin * width});
  spec.axes = {{.size = sizes.directions,
                .a = sizes.m * sizes.k,
                .b = sizes.b_direction,
                .y = sizes.m * sizes.n}};
  absl::StatusOr<std::unique_ptr<BatchedProduct>> made = BatchedProduct::Create(*library, spec);
  if (absl::IsUnimplemented(made.status())) {
    return context.Unimplemented(std::string(made.status().message()));
  }
  WEFT_RETURN_IF_ERROR(made.status());
  GateProduct product;
  product.product_ = *std::move(made);
  product.b_begin_ = static_cast<size_t>(sizes.b_begin * width);
  return product;
}

absl::Status GateProduct::Run(const void* a, const void* b, void* y, void* workspace,
                              LaunchQueue queue) {
  ProductOperands operands;
  operands.a = a;
  operands.b = At(b, b_begin_);
  operands.y = y;
  return product_->Run(operands, workspace, queue);
}

}  // namespace weft::cuda
