#include "tools/jobs/training_trial.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"
#include "tools/console/exit_code.h"
#include "tools/reports/model_check.h"
#include "training/graph/training_graph.h"
#include "training/job/job.h"

namespace weft {
namespace {

// Sizes of dimensions that nobody gave, in the order in which they are tried: of a short sequence,
// and of an image that deep networks take.
constexpr int64_t kAssumedSizes[] = {16, 224};

// The samples that the model was exported for, 0 where any number will do.
int64_t FixedBatch(const Graph& model) {
  for (const ValueId id : model.inputs()) {
    const SymbolicShape& shape = model.value(id).type.shape;
    const bool is_fixed = model.input_role(id) == InputRole::kData && shape.has_rank() &&
                          shape.rank() > 0 && shape.dim(0).is_known();
    if (is_fixed) return shape.dim(0).size();
  }
  return 0;
}

absl::Status TryStep(const Graph& model, const TrainingSpec& training, int64_t batch,
                     const ShapeInputsFn& shape_inputs) {
  WEFT_ASSIGN_OR_RETURN(const Graph graph, MakeTrainingGraph(model, training, shape_inputs));
  return ExplainedByOperators(model, CheckStepRuns(graph, model, batch));
}

absl::Status TryOnData(const Graph& model, const TrainingSpec& training, const DataSet& data) {
  const ShapeInputsFn shape = [&data](Graph& graph) { return BindInputs(graph, data); };
  WEFT_ASSIGN_OR_RETURN(Graph graph, MakeTrainingGraph(model, training, shape));
  WEFT_RETURN_IF_ERROR(CheckDataFitsGraph(graph.Clone(), data));
  return ExplainedByOperators(model, CheckStepRuns(graph, model, data.batch_of(0)));
}

// The first data input without a shape, "" if there is none.
std::string InputWithoutShape(const Graph& model) {
  for (const ValueId id : model.inputs()) {
    const SymbolicShape& shape = model.value(id).type.shape;
    const bool is_open = !shape.has_rank() || shape.rank() == 0;
    if (is_open && model.input_role(id) == InputRole::kData) return model.value(id).name;
  }
  return "";
}

void TryOnSizes(const Graph& model, const TrainingSpec& training, const JobFlags& flags,
                const TrialSizes& given, TrainingTrial& trial) {
  if (const std::string input = InputWithoutShape(model); !input.empty()) {
    trial.not_tried = absl::StrCat("input '", input, "' has no shape with an axis for samples");
    return;
  }
  const int64_t fixed = given.batch_given ? 0 : FixedBatch(model);
  const int64_t batch = fixed > 0 ? fixed : flags.batch();
  std::optional<TrainingTrial> first;  // what failed with the first sizes is told
  for (const int64_t other : kAssumedSizes) {
    trial = TrainingTrial();
    const ShapeInputsFn shape = [&](Graph& graph) {
      return BindInputs(graph, InputSizes{given.by_name, other}, &trial.assumed);
    };
    trial.refusal = TryStep(model, training, batch, shape);
    if (trial.refusal.ok() || trial.assumed.empty()) break;
    if (!first.has_value()) first = trial;
  }
  if (!trial.refusal.ok() && first.has_value()) trial = *std::move(first);
  if (given.batch_given) return;
  trial.assumed.insert(trial.assumed.begin(), absl::StrCat("batch = ", batch));
}

}  // namespace

absl::Status ExplainedByOperators(const Graph& model, absl::Status error) {
  if (error.ok() || absl::IsCancelled(error)) return error;
  const auto obstacles = FindObstacles(model);
  if (!obstacles.ok() || obstacles->empty()) return error;
  std::vector<std::string> texts;
  bool is_cause = false;
  for (const CheckFinding& obstacle : *obstacles) {
    texts.push_back(FindingText(obstacle));
    is_cause = is_cause || Explains(obstacle, std::string(error.message()));
  }
  const std::string text = absl::StrJoin(texts, "; ");
  if (is_cause) return WithExitCode(absl::InvalidArgumentError(text), ExitCode::kModel);
  // The loss may not need what nothing runs: then the error is another.
  absl::Status both(error.code(), absl::StrCat(error.message(), "; besides, ", text));
  error.ForEachPayload(
      [&both](absl::string_view url, const absl::Cord& payload) { both.SetPayload(url, payload); });
  return both;
}

absl::StatusOr<Graph> MakeTrainingGraph(const Graph& model, const TrainingSpec& training,
                                        const ShapeInputsFn& shape_inputs, PhaseDump* dump) {
  const GraphObserver observe = dump == nullptr ? nullptr : dump->observer();
  const auto finish = [dump](StepPhase phase, const Graph& graph) {
    return dump == nullptr ? absl::OkStatus() : dump->Finish(phase, graph);
  };
  WEFT_RETURN_IF_ERROR(finish(StepPhase::kImport, model));
  Graph bound = model.Clone();
  WEFT_RETURN_IF_ERROR(WithExitCode(shape_inputs(bound), ExitCode::kData));
  WEFT_RETURN_IF_ERROR(finish(StepPhase::kSimplify, bound));
  auto graph = BuildTrainingGraph(bound, training, observe);
  if (!graph.ok()) {
    return WithExitCode(ExplainedByOperators(model, graph.status()), ExitCode::kModel);
  }
  WEFT_RETURN_IF_ERROR(WithExitCode(shape_inputs(*graph), ExitCode::kData));
  WEFT_RETURN_IF_ERROR(finish(StepPhase::kDifferentiate, *graph));
  return graph;
}

absl::StatusOr<TrainingTrial> TryTraining(const TrainFlags& flags, const TrialSizes& sizes) {
  std::shared_ptr<const DataSet> data;
  if (flags.job().has_data()) {
    WEFT_ASSIGN_OR_RETURN(data, flags.job().OpenData(flags.shuffles()));
  }
  WEFT_ASSIGN_OR_RETURN(TrainingSpec training, flags.PlannedTraining(data.get()));
  WEFT_ASSIGN_OR_RETURN(const ImportedModel model, flags.job().LoadModel());
  WEFT_RETURN_IF_ERROR(flags.job().TakeLoss(model.graph, training.loss));
  // Only a run says how long it is.
  const bool is_open = training.schedule.needs_total() && training.schedule.total == 0;
  if (is_open) training.schedule.total = training.schedule.warmup + 1000;
  TrainingTrial trial;
  if (data != nullptr) {
    trial.refusal = TryOnData(model.graph, training, *data);
  } else {
    TryOnSizes(model.graph, training, flags.job(), sizes, trial);
  }
  return trial;
}

absl::Status CheckModelAndData(const Graph& model, const TrainingSpec& training,
                               const DataSet& data) {
  const ShapeInputsFn shape = [&data](Graph& graph) { return BindInputs(graph, data); };
  WEFT_ASSIGN_OR_RETURN(Graph graph, MakeTrainingGraph(model, training, shape));
  return CheckDataFitsGraph(std::move(graph), data);
}

}  // namespace weft
