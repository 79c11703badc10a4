#include "onnx_import/parameters/trainable.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/parameters/forward_walk.h"
#include "onnx_import/parameters/gradient_uses.h"
#include "onnx_import/parameters/parameter_names.h"
#include "onnx_import/parameters/rules.h"
#include "onnx_import/parameters/variable_names.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// By the variable's value: the first of the patterns that means it.
using PatternOfValue = std::map<ValueId, std::string>;

absl::StatusOr<PatternOfValue> ApplyPatterns(const Graph& graph,
                                             const std::vector<std::string>& patterns,
                                             const char* flag) {
  std::vector<const Variable*> variables;
  for (const Variable& variable : graph.variables()) variables.push_back(&variable);
  PatternOfValue found;
  for (const std::string& pattern : patterns) {
    auto called = VariablesCalled(pattern, variables);
    if (!called.ok()) return Annotate(called.status(), absl::StrCat("--", flag));
    for (const Variable* const variable : *called) found.emplace(variable->value, pattern);
    if (!called->empty()) continue;
    const std::string example =
        variables.empty() ? "" : absl::StrCat(" (such as ", Quoted(variables[0]->name), ")");
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, " ", Quoted(pattern), " matches none of the model's ", variables.size(),
        " float tensors", example, "; graph_runner inspect lists them"));
  }
  return found;
}

absl::StatusOr<std::vector<ValueId>> LossValues(const Graph& graph, const std::string& loss) {
  if (loss.empty()) return graph.outputs();
  const std::optional<ValueId> value = graph.FindValue(loss);
  if (value) return std::vector<ValueId>{*value};
  std::string outputs;
  for (const ValueId output : graph.outputs()) {
    absl::StrAppend(&outputs, outputs.empty() ? "" : ", ", Quoted(graph.value(output).name));
  }
  return absl::InvalidArgumentError(absl::StrCat("the loss ", Quoted(loss),
                                                 " is no value of the model, expected one of its "
                                                 "outputs: ",
                                                 outputs));
}

// Why a tensor does not train that a name asks for, and the way out.
std::string WhyNot(const Verdict& verdict) {
  switch (verdict.kind) {
    case DecisionKind::kFrozen:
      return absl::StrCat("is ", verdict.reason, "; take it out of --freeze, or do not ask for it");
    case DecisionKind::kUnused:
      return absl::StrCat(verdict.reason,
                          "; it cannot train. Leave it out, or take a loss that depends on it");
    case DecisionKind::kTable:
      return absl::StrCat(verdict.reason, "; it cannot train. Give it finite values first");
    default:
      return absl::StrCat(verdict.reason, "; it cannot train. Leave it out");
  }
}

// A pattern may match a tensor that never trains among others; a name asks for it.
absl::Status CheckNotNamed(const Candidate& candidate, const Verdict& verdict) {
  if (!candidate.added_by.has_value() || verdict.kind == DecisionKind::kTrains) {
    return absl::OkStatus();
  }
  const std::string& asked = *candidate.added_by;
  if (asked.find_first_of("*?") != std::string::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--trainable ", Quoted(asked), ": the tensor ", WhyNot(verdict)));
}

Verdict Judge(const Candidate& candidate) {
  for (const Rule& rule : TrainableRules()) {
    std::optional<Verdict> verdict = rule.function(candidate);
    if (verdict.has_value()) return *std::move(verdict);
  }
  return {DecisionKind::kConstant, false, "no rule decides"};  // the last rule always does
}

// The modules, and those they are in, of parameters that no tensor of the file is called by: a
// reader in the module of a transposed or merged one calls it by its name.
std::set<std::string> ModulesOfLost(const Graph& graph, const ExporterMetadata& metadata) {
  std::set<std::string> lost = metadata.lost_parameters;
  for (const Variable& variable : graph.variables()) {
    for (const std::string& name : variable.other_names) lost.erase(name);
  }
  std::set<std::string> modules;
  for (std::string path : lost) {
    for (int level = 0; level < 2; ++level) {
      const size_t dot = path.rfind('.');
      if (dot == std::string::npos) break;
      path.resize(dot);
      modules.insert(path);
    }
  }
  return modules;
}

std::optional<std::string> PatternOf(const PatternOfValue& patterns, ValueId value) {
  const auto found = patterns.find(value);
  if (found == patterns.end()) return std::nullopt;
  return found->second;
}

}  // namespace

absl::StatusOr<std::vector<ParameterDecision>> MarkTrainable(Graph& graph,
                                                             const TrainableOptions& options,
                                                             const ExporterMetadata& metadata) {
  const ForwardWalk forward(graph);
  const ParameterNames names(graph, forward, metadata);
  names.Give(graph);
  WEFT_ASSIGN_OR_RETURN(const PatternOfValue frozen,
                        ApplyPatterns(graph, options.freeze, "freeze"));
  WEFT_ASSIGN_OR_RETURN(const PatternOfValue added,
                        ApplyPatterns(graph, options.trainable, "trainable"));
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValueId> losses, LossValues(graph, options.loss));
  const GradientUses gradients(graph, losses);
  const std::set<std::string> modules_of_lost = ModulesOfLost(graph, metadata);
  std::vector<ParameterDecision> decisions;
  std::vector<std::pair<ValueId, Tensor>> constants;
  for (Variable& variable : graph.mutable_variables()) {
    if (!variable.slot_of.empty()) continue;
    const Candidate candidate = {graph,
                                 variable,
                                 gradients,
                                 forward,
                                 names,
                                 metadata,
                                 modules_of_lost,
                                 PatternOf(frozen, variable.value),
                                 PatternOf(added, variable.value),
                                 gradients.Best(variable.value)};
    const Verdict verdict = Judge(candidate);
    WEFT_RETURN_IF_ERROR(CheckNotNamed(candidate, verdict));
    variable.trainable = verdict.kind == DecisionKind::kTrains;
    decisions.push_back({variable.name, ShownName(variable), candidate.type(), variable.trainable,
                         verdict.kind, verdict.reason});
    const bool is_updated = variable.update.valid() || !variable.initial.valid();
    if (verdict.is_constant && !is_updated) {
      constants.emplace_back(variable.value, variable.initial);
    }
  }
  // From the back, so that few variables move up each time.
  std::reverse(constants.begin(), constants.end());
  for (auto& [value, tensor] : constants) graph.MakeConstant(value, std::move(tensor));
  return decisions;
}

absl::StatusOr<std::vector<ParameterDecision>> MarkTrainable(ImportedModel& model,
                                                             const TrainableOptions& options) {
  return MarkTrainable(model.graph, options, ReadExporterMetadata(model.file));
}

}  // namespace weft
