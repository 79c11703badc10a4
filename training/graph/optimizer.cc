#include "training/graph/optimizer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "ops/defs/optimizer/optimizer.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

constexpr char kAverageSlot[] = "ema";

absl::Status CheckRange(const std::string& name, double value, double low, double high) {
  if (value >= low && value < high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, ", expected a number in [", low, ", ", high, ")"));
}

// The names of `kind`'s options, then those of all others.
std::vector<std::string> OptionNames(const OptimizerKind& kind) {
  std::vector<std::string> names;
  for (const OptimizerOption& option : kind.options) names.push_back(option.name);
  for (const OptimizerKind* const other : AllOptimizers()) {
    for (const OptimizerOption& option : other->options) names.push_back(option.name);
  }
  return names;
}

// "; momentum, nesterov have it" or the nearest name that there is.
std::string WhoHas(const OptimizerKind& kind, const std::string& option) {
  std::vector<std::string> owners;
  for (const OptimizerKind* const other : AllOptimizers()) {
    if (other->FindOption(option) != nullptr) owners.push_back(other->name);
  }
  if (owners.empty()) return DidYouMean(option, OptionNames(kind));
  return absl::StrCat("; it belongs to: ", absl::StrJoin(owners, ", "));
}

absl::Status CheckOption(const OptimizerKind& kind, const std::string& name, double value) {
  const OptimizerOption* const option = kind.FindOption(name);
  if (option == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer '", kind.name, "' has no option '", name, "'", WhoHas(kind, name)));
  }
  return CheckRange(absl::StrReplaceAll(name, {{"-", " "}}), value, option->low, option->high);
}

}  // namespace

bool OptimizerSpec::needs_step_number() const {
  const OptimizerKind* const found = FindOptimizer(kind);
  return found != nullptr && found->ReadsStep(options);
}

std::vector<std::string> OptimizerKinds() {
  std::vector<std::string> kinds;
  for (const OptimizerKind* const kind : AllOptimizers()) kinds.push_back(kind->name);
  return kinds;
}

double UsualLearningRate(const std::string& kind) {
  const OptimizerKind* const found = FindOptimizer(kind);
  return found == nullptr ? OptimizerSpec().learning_rate : found->learning_rate;
}

absl::Status ValidateOptimizer(const OptimizerSpec& spec) {
  const OptimizerKind* const kind = FindOptimizer(spec.kind);
  if (kind == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("no optimizer '", spec.kind, "'", DidYouMean(spec.kind, OptimizerKinds()),
                     "; there are: ", absl::StrJoin(OptimizerKinds(), ", ")));
  }
  absl::Status status = CheckRange("learning rate", spec.learning_rate, 0, 1e6);
  status.Update(CheckRange("weight decay", spec.weight_decay, 0, 1e6));
  for (const auto& [name, value] : spec.options) status.Update(CheckOption(*kind, name, value));
  return status;
}

absl::Status AddUpdate(GraphBuilder& builder, const OptimizerSpec& spec,
                       const OptimizerInputs& inputs, const std::string& variable,
                       ValueId gradient) {
  const OptimizerKind* const kind = FindOptimizer(spec.kind);
  if (kind == nullptr) return ValidateOptimizer(spec);
  builder.set_name_prefix(absl::StrCat("update/", variable, "/"));
  return AddOptimizerUpdate(builder, *kind,
                            {.variable = variable,
                             .gradient = gradient,
                             .learning_rate = inputs.learning_rate,
                             .step = inputs.step,
                             .weight_decay = spec.weight_decay,
                             .options = spec.options});
}

absl::Status AddMovingAverage(GraphBuilder& builder, double decay, const std::string& variable) {
  WEFT_RETURN_IF_ERROR(CheckRange("the decay of the moving average", decay, 0, 1));
  Graph& graph = builder.graph();
  const ValueId average =
      AddSlotVariable(graph, variable, kAverageSlot, graph.FindVariable(variable)->initial);
  builder.set_name_prefix(absl::StrCat("update/", variable, "/"));
  const ValueId updated =
      builder.WeftOp("EmaUpdate", {average, graph.FindVariable(variable)->update},
                     {{"decay", static_cast<float>(decay)}});
  if (builder.status().ok()) SetSlotUpdate(graph, average, updated);
  return builder.status();
}

std::string MovingAverageOf(const Graph& graph, const std::string& variable) {
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.op != "EmaUpdate") continue;
    const Variable* const average = graph.VariableOf(node.inputs[0]);
    if (average != nullptr && average->slot_of == variable) return average->name;
  }
  return "";
}

}  // namespace weft
