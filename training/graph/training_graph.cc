#include "training/graph/training_graph.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/expansion.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "graph/step_inputs.h"
#include "ops/node_runner.h"
#include "ops/rewrites/rewrites.h"
#include "platform/status_macros.h"
#include "training/adapters/dequantization_order.h"
#include "training/graph/autodiff.h"
#include "training/graph/loss.h"
#include "training/graph/metric.h"
#include "training/graph/model_training_info.h"
#include "training/graph/training_mode.h"
#include "training/graph/training_passes.h"
#include "training/graph/update_region.h"
#include "training/quantization/quantization.h"

namespace weft {
namespace {

// A kernel runs it, and a rule differentiates it or nothing can.
bool RunsAndDifferentiates(const Node& node) {
  return RunsNode(node) && node.schema->gradient_kind() != GradientKind::kMissing;
}

// The model with types, with what exporters took apart put together again, and with the functions
// expanded that `keeps` does not know, so that what is differentiated is what runs. A node that
// cannot be expanded stays: it may be dead, or fail later. `observe` sees the graph before it is
// expanded, if it was rewritten.
absl::StatusOr<Graph> PrepareModel(const Graph& model, RewriteUse use, const RunsNodeFn& keeps,
                                   const GraphObserver& observe = nullptr) {
  Graph graph = model.Clone();
  WEFT_ASSIGN_OR_RETURN(const RewriteCounts rewritten, RewritePatterns(graph, use));
  if (!rewritten.empty() && observe != nullptr) {
    WEFT_RETURN_IF_ERROR(observe(kRewritePass, graph));
  }
  std::vector<absl::Status> refusals;
  WEFT_RETURN_IF_ERROR(ExpandFunctions(graph, keeps, &refusals).status());
  return graph;
}

// A node of the step region that has no forward counterpart.
GraphBuilder StepBuilder(Graph& graph, const std::string& prefix) {
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kUpdate);
  builder.set_name_prefix(prefix);
  return builder;
}

// The mean over the global batch, from the sums of all micro-batches. `weight` is returned
// accumulated.
struct GlobalMean {
  ValueId mean;
  ValueId weight;
};

absl::StatusOr<GlobalMean> AddGlobalMean(Graph& graph, const MeanParts& parts,
                                         const std::string& name) {
  // The model may have a value of that name: it keeps living under another.
  if (const std::optional<ValueId> taken = graph.FindValue(name)) {
    graph.RenameValue(*taken, absl::StrCat(name, "/micro_batch"));
  }
  GraphBuilder builder = StepBuilder(graph, absl::StrCat(name, "/"));
  const ValueId sum = builder.WeftOp("Accumulate", {parts.sum});
  const ValueId weight = builder.WeftOp("Accumulate", {parts.weight});
  const ValueId mean = builder.Op("Div", {sum, weight});
  builder.Name(mean, name);
  WEFT_RETURN_IF_ERROR(builder.status());
  return GlobalMean{mean, weight};
}

// The same for a list: the numbers of all samples, in the place of a mean.
absl::StatusOr<GlobalMean> AddGlobalList(Graph& graph, const MeanParts& parts,
                                         const std::string& name) {
  GraphBuilder builder = StepBuilder(graph, absl::StrCat(name, "/"));
  const ValueId list = builder.WeftOp("Accumulate", {parts.sum});
  const ValueId count = builder.WeftOp("Accumulate", {parts.weight});
  builder.Name(list, name);
  WEFT_RETURN_IF_ERROR(builder.status());
  return GlobalMean{list, count};
}

// Variables and inputs keep their names, which people and files know: none may have one of a step's
// own. (Other values of the model step aside.)
absl::Status CheckNames(const Graph& model) {
  const std::set<std::string> reserved = {kLossOutput, "accuracy", kLearningRateInput, kStepInput,
                                          kLossScale,  kGoodSteps, kSkippedSteps};
  const auto check = [&](const char* what, const std::string& name) -> absl::Status {
    const bool taken = reserved.contains(name) || (*what == 'w' && name == kLabelsInput);
    if (!taken) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the model's ", what, " '", name,
                     "' has a name that a training step uses for itself; rename it in the model"));
  };
  for (const Variable& variable : model.variables()) {
    WEFT_RETURN_IF_ERROR(check("weight", variable.name));
  }
  for (const ValueId input : model.inputs()) {
    WEFT_RETURN_IF_ERROR(check("input", model.value(input).name));
  }
  return absl::OkStatus();
}

// Of those that are named, or of all.
std::vector<ValueId> TrainableValues(const Graph& graph, const std::vector<std::string>& named) {
  const std::set<std::string> names(named.begin(), named.end());
  std::vector<ValueId> values;
  for (const Variable& variable : graph.variables()) {
    const bool is_meant = names.empty() || names.contains(variable.name);
    if (variable.trainable && is_meant) values.push_back(variable.value);
  }
  return values;
}

// The gradients of loss_sum, times `scale` if there is one.
absl::StatusOr<std::map<ValueId, ValueId>> AddBackward(Graph& graph, ValueId loss_sum,
                                                       const Variable* scale,
                                                       const std::vector<ValueId>& wanted) {
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kBackward);
  builder.set_name_prefix("grad/");
  const ValueDef& sum = graph.value(loss_sum);
  if (sum.source == ValueSource::kNode) {
    builder.set_origin({graph.node(sum.producer).name, sum.name, true});
  }
  const ValueId seed = scale != nullptr ? scale->value : builder.Scalar(sum.type.dtype, 1.0);
  WEFT_RETURN_IF_ERROR(builder.status());
  return AddGradients(graph, {{loss_sum, seed}}, wanted);
}

// Lower precision for what comes before the loss's sums.
absl::Status AddPrecision(Graph& graph, const TrainingSpec& spec, const MeanParts& parts) {
  if (spec.precision == Precision::kFloat32) return absl::OkStatus();
  const bool is_half = spec.precision == Precision::kFloat16;
  if (is_half) AddLossScale(graph, spec.loss_scale);
  return LowerPrecision(graph, is_half ? DType::kFloat16 : DType::kBfloat16,
                        {parts.sum, parts.weight}, spec.joins_attention);
}

}  // namespace

std::string_view LastExpansionPass() { return kExpandPass; }

std::vector<std::string> TrainingGraphPasses() {
  return {kRewritePass,   kExpandPass,    kTrainingModePass, kLossPass,
          kPrecisionPass, kGradientsPass, kUpdatesPass};
}

absl::Status ValidateTraining(const TrainingSpec& spec) {
  WEFT_RETURN_IF_ERROR(ValidateLossScale(spec.loss_scale));
  WEFT_RETURN_IF_ERROR(ValidateOptimizer(spec.optimizer));
  WEFT_RETURN_IF_ERROR(ValidateRateSchedule(spec.schedule));
  const auto check = [](const char* what, double value, double limit) -> absl::Status {
    if (value >= 0 && value < limit) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is ", value, ", expected a number in [0, ", limit, ")"));
  };
  WEFT_RETURN_IF_ERROR(check("the longest gradient", spec.clip_norm, 1e30));
  WEFT_RETURN_IF_ERROR(check("the largest gradient", spec.clip_value, 1e30));
  return check("the decay of the moving average", spec.average_decay, 1);
}

absl::StatusOr<Graph> BuildTrainingGraph(const Graph& model, const TrainingSpec& spec,
                                         const GraphObserver& observe) {
  const auto see = [&observe](const char* pass, const Graph& graph) {
    return observe == nullptr ? absl::OkStatus() : observe(pass, graph);
  };
  if (spec.model_training_info) {
    WEFT_RETURN_IF_ERROR(CheckNames(model));
    return BuildOwnTrainingStep(model, spec.loss, observe);
  }
  WEFT_RETURN_IF_ERROR(ValidateTraining(spec));
  WEFT_RETURN_IF_ERROR(CheckNames(model));
  const bool joins_attention = spec.joins_attention && spec.precision != Precision::kFloat32;
  const RewriteUse use =
      joins_attention ? RewriteUse::kTrainingWithAttention : RewriteUse::kTraining;
  WEFT_ASSIGN_OR_RETURN(Graph graph, PrepareModel(model, use, RunsAndDifferentiates, observe));
  WEFT_RETURN_IF_ERROR(see(kExpandPass, graph));
  const std::vector<ValueId> wanted = TrainableValues(graph, spec.updates);
  if (wanted.empty()) {
    return absl::InvalidArgumentError(
        "nothing trains: the model has no floating-point weights that reach the loss and are not "
        "frozen; `graph_runner inspect` lists them, --trainable PATTERN adds some");
  }
  WEFT_RETURN_IF_ERROR(EnterTraining(graph, spec.train_mode));
  WEFT_RETURN_IF_ERROR(AddRangeUpdates(graph));
  WEFT_RETURN_IF_ERROR(see(kTrainingModePass, graph));
  GraphBuilder builder(graph);
  builder.set_name_prefix("loss/");
  WEFT_ASSIGN_OR_RETURN(MeanParts parts, AddLoss(builder, spec.loss));
  graph.SetOutputs({});
  WEFT_RETURN_IF_ERROR(see(kLossPass, graph));
  WEFT_RETURN_IF_ERROR(AddPrecision(graph, spec, parts));
  WEFT_RETURN_IF_ERROR(see(kPrecisionPass, graph));
  WEFT_RETURN_IF_ERROR(ComputeWeightsLate(graph));
  WEFT_ASSIGN_OR_RETURN(auto gradients,
                        AddBackward(graph, parts.sum, graph.FindVariable(kLossScale), wanted));
  WEFT_RETURN_IF_ERROR(ComputeWeightsAgain(graph));
  if (gradients.empty()) {
    return absl::InvalidArgumentError(
        "nothing trains: the loss depends on none of the model's trainable weights");
  }
  WEFT_ASSIGN_OR_RETURN(GlobalMean loss, AddGlobalMean(graph, parts, kLossOutput));
  graph.SetOutputs({loss.mean});
  WEFT_RETURN_IF_ERROR(see(kGradientsPass, graph));
  WEFT_RETURN_IF_ERROR(AddUpdates(graph, spec, loss.weight, gradients));
  WEFT_RETURN_IF_ERROR(see(kUpdatesPass, graph));
  return graph;
}

absl::StatusOr<Graph> BuildEvaluationGraph(const Graph& model, const LossSpec& loss,
                                           const std::vector<std::string>& metrics, int64_t batch) {
  WEFT_RETURN_IF_ERROR(CheckNames(model));
  WEFT_ASSIGN_OR_RETURN(Graph graph, PrepareModel(model, RewriteUse::kForward, RunsNode));
  WEFT_RETURN_IF_ERROR(LeaveTraining(graph));
  std::vector<ValueId> outputs;
  std::set<std::string> done;
  for (const std::string& metric : metrics) {
    if (!done.insert(metric).second) continue;
    GraphBuilder builder(graph);
    builder.set_name_prefix(absl::StrCat(metric, "/"));
    WEFT_ASSIGN_OR_RETURN(const std::vector<MetricMean> means,
                          AddMetric(builder, loss, metric, batch));
    for (const MetricMean& part : means) {
      const auto add = part.is_list ? AddGlobalList : AddGlobalMean;
      WEFT_ASSIGN_OR_RETURN(GlobalMean mean, add(graph, part.parts, part.name));
      graph.RenameValue(mean.weight, absl::StrCat(part.name, kWeightSuffix));
      outputs.push_back(mean.mean);
      outputs.push_back(mean.weight);
    }
  }
  graph.SetOutputs(std::move(outputs));
  WEFT_RETURN_IF_ERROR(ComputeWeightsLate(graph));
  return graph;
}

}  // namespace weft
