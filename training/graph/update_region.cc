#include "training/graph/update_region.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/step_inputs.h"
#include "platform/status_macros.h"
#include "training/graph/optimizer.h"
#include "training/scaling/noise_nodes.h"

namespace weft {
namespace {

// PyTorch's clip_grad_norm_ adds it to the norm.
constexpr double kNormEpsilon = 1e-6;

class UpdateRegion {
 public:
  UpdateRegion(Graph& graph, const TrainingSpec& spec)
      : graph_(graph), spec_(spec), builder_(graph) {
    builder_.set_phase(Phase::kUpdate);
    builder_.set_name_prefix("update/");
  }

  absl::Status Run(ValueId weight, const std::map<ValueId, ValueId>& gradients) {
    WEFT_RETURN_IF_ERROR(CheckGroups(gradients));
    AddInputs();
    for (const auto& [value, gradient] : gradients) {
      Begin(value, gradient);
      sums_.push_back({value, gradient, builder_.WeftOp("Accumulate", {gradient})});
    }
    BeginStep();
    const Variable* const loss_scale = graph_.FindVariable(kLossScale);
    const bool is_scaled = loss_scale != nullptr;
    const ValueId divisor = is_scaled ? builder_.Op("Mul", {weight, loss_scale->value}) : weight;
    const ValueId scale = builder_.Op("Reciprocal", {divisor});
    const bool needs_squares = is_scaled || spec_.clip_norm > 0 || spec_.measure_noise;
    const ValueId squares = needs_squares ? SumOfSquares() : kNoValue;
    const ValueId clipped = spec_.clip_norm > 0 ? ClippedScale(scale, squares) : scale;
    for (const Sum& sum : sums_) WEFT_RETURN_IF_ERROR(Update(sum, scale, clipped));
    WEFT_RETURN_IF_ERROR(builder_.status());
    if (spec_.measure_noise) {
      WEFT_RETURN_IF_ERROR(AddNoiseSums(graph_, weight, gradients, squares));
    }
    return is_scaled ? SkipOverflows(builder_, spec_.loss_scale, squares) : builder_.status();
  }

 private:
  struct Sum {
    ValueId value;
    ValueId gradient;
    ValueId total;  // over the micro-batches, not divided yet
  };

  std::string NameOf(ValueId value) const { return graph_.value(value).name; }
  // Nodes added from now on belong to the update of one variable, or to the step.
  void Begin(ValueId value, ValueId gradient);
  void BeginStep();
  absl::Status CheckGroups(const std::map<ValueId, ValueId>& gradients) const;
  void AddInputs();
  ValueId RateOf(double learning_rate);
  ValueId SumOfSquares();
  ValueId ClippedScale(ValueId scale, ValueId squares);
  ValueId ClippedValue(ValueId mean);
  absl::Status Update(const Sum& sum, ValueId scale, ValueId clipped);

  Graph& graph_;
  const TrainingSpec& spec_;
  GraphBuilder builder_;
  OptimizerInputs inputs_;
  std::vector<Sum> sums_;
  std::map<double, ValueId> rates_;  // by learning rate
};

void UpdateRegion::Begin(ValueId value, ValueId gradient) {
  builder_.set_origin({graph_.value(gradient).origin.forward_node, NameOf(value), true});
  builder_.set_name_prefix(absl::StrCat("update/", NameOf(value), "/"));
}

void UpdateRegion::BeginStep() {
  builder_.set_origin({});
  builder_.set_name_prefix("update/");
}

absl::Status UpdateRegion::CheckGroups(const std::map<ValueId, ValueId>& gradients) const {
  std::vector<const Variable*> parameters;
  for (const auto& [value, gradient] : gradients) {
    if (const Variable* const variable = graph_.VariableOf(value)) parameters.push_back(variable);
  }
  return CheckParameterGroups(spec_.groups, parameters);
}

void UpdateRegion::AddInputs() {
  const auto scalar = [&](const char* name, DType dtype) {
    return graph_.AddInput(name, {ValueKind::kTensor, dtype, Shape{}}, InputRole::kStep);
  };
  inputs_.learning_rate = scalar(kLearningRateInput, DType::kFloat32);
  if (spec_.optimizer.needs_step_number() || !spec_.schedule.is_constant()) {
    inputs_.step = scalar(kStepInput, DType::kInt64);
  }
  const ValueId step = inputs_.step;
  if (const Variable* const skipped = graph_.FindVariable(kSkippedSteps);
      skipped != nullptr && spec_.optimizer.needs_step_number()) {
    // For the optimizer a step that was skipped has not been.
    inputs_.step = builder_.Op("Sub", {step, skipped->value});
  }
  ValueId rate = inputs_.learning_rate;
  if (!spec_.schedule.is_constant()) {
    const ValueId factor = builder_.WeftOp("RateFactor", {step}, ToAttributes(spec_.schedule));
    rate = builder_.Op("Mul", {rate, factor});
  }
  rates_[spec_.optimizer.learning_rate] = rate;
}

// The rate of this step for parameters with this base rate. The step's input is that of the
// optimizer.
ValueId UpdateRegion::RateOf(double learning_rate) {
  const auto [known, is_new] = rates_.try_emplace(learning_rate);
  if (!is_new) return known->second;
  const double base = spec_.optimizer.learning_rate;
  const ValueId factor = builder_.Float(static_cast<float>(base > 0 ? learning_rate / base : 0));
  known->second = builder_.Op("Mul", {rates_.at(base), factor});
  return known->second;
}

// Of all sums together. One number per gradient crosses ranks.
ValueId UpdateRegion::SumOfSquares() {
  std::vector<ValueId> squares;
  for (const Sum& sum : sums_) {
    Begin(sum.value, sum.gradient);
    squares.push_back(builder_.Op("ReduceSumSquare", {sum.total}, {{"keepdims", int64_t{0}}}));
  }
  BeginStep();
  return builder_.WeftOp("AddN", squares);
}

// What the sums are multiplied with so that the norm of all mean gradients together is at most
// clip_norm: scale min(1, clip_norm / (norm + epsilon)).
ValueId UpdateRegion::ClippedScale(ValueId scale, ValueId squares) {
  const DType dtype = builder_.type(scale).dtype;
  const ValueId norm = builder_.Op("Mul", {builder_.Op("Sqrt", {squares}), scale});
  const ValueId longest = builder_.Scalar(dtype, spec_.clip_norm);
  const ValueId below = builder_.Op("Add", {norm, builder_.Scalar(dtype, kNormEpsilon)});
  const ValueId share = builder_.Op("Div", {longest, below});
  return builder_.Op("Mul", {scale, builder_.Op("Min", {share, builder_.Scalar(dtype, 1)})});
}

ValueId UpdateRegion::ClippedValue(ValueId mean) {
  const DType dtype = builder_.type(mean).dtype;
  return builder_.Op("Clip", {mean, builder_.Scalar(dtype, -spec_.clip_value),
                              builder_.Scalar(dtype, spec_.clip_value)});
}

absl::Status UpdateRegion::Update(const Sum& sum, ValueId scale, ValueId clipped) {
  const std::string name = NameOf(sum.value);
  const Variable* const parameter = graph_.VariableOf(sum.value);
  if (parameter == nullptr) {
    return absl::InternalError(absl::StrCat("'", name, "' has a gradient and is no variable"));
  }
  const OptimizerSpec optimizer =
      OptimizerOf(*parameter, builder_.type(sum.value).shape.rank(), spec_.optimizer, spec_.groups);
  BeginStep();
  OptimizerInputs inputs = inputs_;
  inputs.learning_rate = RateOf(optimizer.learning_rate);
  Begin(sum.value, sum.gradient);
  ValueId mean = builder_.WeftOp("Scale", {sum.total, clipped});
  WEFT_RETURN_IF_ERROR(builder_.status());
  if (spec_.report_gradients) {
    const ValueId whole = clipped == scale ? mean : builder_.WeftOp("Scale", {sum.total, scale});
    builder_.Name(whole, absl::StrCat("gradient/", name));
    graph_.AddOutput(whole);
  }
  if (spec_.clip_value > 0) mean = ClippedValue(mean);
  WEFT_RETURN_IF_ERROR(AddUpdate(builder_, optimizer, inputs, name, mean));
  if (spec_.average_decay > 0) {
    return AddMovingAverage(builder_, spec_.average_decay, name);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddUpdates(Graph& graph, const TrainingSpec& spec, ValueId weight,
                        const std::map<ValueId, ValueId>& gradients) {
  return UpdateRegion(graph, spec).Run(weight, gradients);
}

}  // namespace weft
