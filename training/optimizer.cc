#include "training/optimizer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "placement/nearest_name.h"

namespace weft {
namespace {

absl::Status CheckRange(const char* name, double value, double low, double high) {
  if (value >= low && value < high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, ", expected a number in [", low, ", ", high, ")"));
}

// State of a variable, in its dtype and shape, zero before the first step. The slot's name has a
// suffix when the model has a value of that name.
ValueId AddSlot(Graph& graph, const std::string& variable, const std::string& slot) {
  const ValueType type = graph.value(graph.FindVariable(variable)->value).type;
  const ValueId value =
      graph.AddVariable(absl::StrCat(variable, "/", slot), type, Tensor(), /*trainable=*/false);
  graph.mutable_variables().back().slot_of = variable;
  return value;
}

void SetSlotUpdate(Graph& graph, ValueId slot, ValueId updated) {
  const std::string name = graph.VariableOf(slot)->name;
  graph.SetVariableUpdate(name, updated);
}

void AddSgd(GraphBuilder& builder, const OptimizerSpec& spec, const OptimizerInputs& inputs,
            const std::string& variable, ValueId gradient) {
  Graph& graph = builder.graph();
  const bool has_velocity = spec.kind != "sgd" && spec.momentum > 0;
  Attributes attributes = {{"weight_decay", static_cast<float>(spec.weight_decay)}};
  std::vector<ValueId> operands = {graph.FindVariable(variable)->value, gradient,
                                   inputs.learning_rate};
  ValueId velocity;
  if (has_velocity) {
    velocity = AddSlot(graph, variable, "velocity");
    attributes.Set("momentum", static_cast<float>(spec.momentum));
    attributes.Set("nesterov", int64_t{spec.kind == "nesterov"});
    operands.push_back(velocity);
  }
  const std::vector<ValueId> updated =
      builder.Ops(std::string(kWeftDomain), "SgdUpdate", std::move(operands), std::move(attributes),
                  {true, has_velocity});
  if (!builder.status().ok()) return;
  graph.SetVariableUpdate(variable, updated[0]);
  if (has_velocity) SetSlotUpdate(graph, velocity, updated[1]);
}

void AddAdam(GraphBuilder& builder, const OptimizerSpec& spec, const OptimizerInputs& inputs,
             const std::string& variable, ValueId gradient) {
  Graph& graph = builder.graph();
  const ValueId m = AddSlot(graph, variable, "m");
  const ValueId v = AddSlot(graph, variable, "v");
  Attributes attributes = {{"beta1", static_cast<float>(spec.beta1)},
                           {"beta2", static_cast<float>(spec.beta2)},
                           {"epsilon", static_cast<float>(spec.epsilon)},
                           {"weight_decay", static_cast<float>(spec.weight_decay)},
                           {"decoupled", int64_t{spec.kind == "adamw"}}};
  const std::vector<ValueId> updated = builder.Ops(
      std::string(kWeftDomain), "AdamUpdate",
      {graph.FindVariable(variable)->value, gradient, inputs.learning_rate, inputs.step, m, v},
      std::move(attributes), {true, true, true});
  if (!builder.status().ok()) return;
  graph.SetVariableUpdate(variable, updated[0]);
  SetSlotUpdate(graph, m, updated[1]);
  SetSlotUpdate(graph, v, updated[2]);
}

using AddFn = void (*)(GraphBuilder&, const OptimizerSpec&, const OptimizerInputs&,
                       const std::string&, ValueId);
const std::map<std::string, AddFn>& Optimizers() {
  static const auto* const kOptimizers = new std::map<std::string, AddFn>{
      {"adam", AddAdam},    {"adamw", AddAdam}, {"momentum", AddSgd},
      {"nesterov", AddSgd}, {"sgd", AddSgd},
  };
  return *kOptimizers;
}

}  // namespace

std::vector<std::string> OptimizerKinds() {
  std::vector<std::string> kinds;
  for (const auto& [kind, add] : Optimizers()) kinds.push_back(kind);
  return kinds;
}

absl::Status ValidateOptimizer(const OptimizerSpec& spec) {
  if (!Optimizers().contains(spec.kind)) {
    return absl::InvalidArgumentError(
        absl::StrCat("no optimizer '", spec.kind, "'", DidYouMean(spec.kind, OptimizerKinds()),
                     "; there are: ", absl::StrJoin(OptimizerKinds(), ", ")));
  }
  absl::Status status = CheckRange("learning rate", spec.learning_rate, 0, 1e6);
  status.Update(CheckRange("momentum", spec.momentum, 0, 1));
  status.Update(CheckRange("weight decay", spec.weight_decay, 0, 1e6));
  status.Update(CheckRange("beta1", spec.beta1, 0, 1));
  status.Update(CheckRange("beta2", spec.beta2, 0, 1));
  status.Update(CheckRange("epsilon", spec.epsilon, 0, 1e6));
  return status;
}

absl::Status AddUpdate(GraphBuilder& builder, const OptimizerSpec& spec,
                       const OptimizerInputs& inputs, const std::string& variable,
                       ValueId gradient) {
  const auto add = Optimizers().find(spec.kind);
  if (add == Optimizers().end()) return ValidateOptimizer(spec);
  builder.set_name_prefix(absl::StrCat("update/", variable, "/"));
  add->second(builder, spec, inputs, variable, gradient);
  return builder.status();
}

}  // namespace weft
