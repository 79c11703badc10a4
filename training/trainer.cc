#include "training/trainer.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "training/metric.h"

namespace weft {
namespace {

constexpr char kGradientPrefix[] = "gradient/";

double ScalarOf(const StepReport& report, const std::string& name) {
  const auto value = report.values.find(name);
  if (value == report.values.end()) return 0;
  const absl::StatusOr<std::vector<double>> numbers = ToDoubles(value->second);
  return numbers.ok() && !numbers->empty() ? numbers->front() : 0;
}

TrainProgress ProgressOf(const StepReport& report, const DataSet& data) {
  return {report.step, ScalarOf(report, kLossOutput), data.batch_of(report.step), report.seconds,
          report.input_seconds};
}

std::vector<std::string> TrainedNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const Variable& variable : graph.variables()) {
    if (variable.update.valid() && variable.slot_of.empty()) names.push_back(variable.name);
  }
  return names;
}

}  // namespace

absl::StatusOr<TrainResult> Train(Coordinator& coordinator, const PreparedJob& job,
                                  const TrainOptions& options,
                                  const std::function<void(const TrainProgress&)>& progress) {
  const std::map<std::string, double> scalars = {{kLearningRateInput, options.learning_rate}};
  const int64_t reporting = options.report_gradients && options.steps > 0 ? 1 : 0;
  std::vector<StepRange> ranges = StepRanges(*job.data, "gradients", 0, reporting, scalars);
  for (StepRange& range : StepRanges(*job.data, "train", reporting, options.steps, scalars)) {
    ranges.push_back(std::move(range));
  }
  TrainResult result;
  WEFT_RETURN_IF_ERROR(coordinator.RunSteps(ranges, [&](const StepReport& report) {
    const TrainProgress done = ProgressOf(report, *job.data);
    result.last_loss = done.loss;
    for (const auto& [name, value] : report.values) {
      if (absl::StartsWith(name, kGradientPrefix)) {
        result.gradients[name.substr(sizeof(kGradientPrefix) - 1)] = value;
      }
    }
    progress(done);
  }));
  WEFT_ASSIGN_OR_RETURN(result.memory, coordinator.MeasureMemory());
  WEFT_ASSIGN_OR_RETURN(result.parameters, coordinator.ReadVariables(TrainedNames(job.graph)));
  return result;
}

absl::StatusOr<std::map<std::string, double>> Evaluate(
    Coordinator& coordinator, const PreparedJob& job,
    const std::function<void(const TrainProgress&)>& progress) {
  MetricTotals totals;
  const std::vector<StepRange> ranges =
      StepRanges(*job.data, "evaluate", 0, job.data->steps_per_epoch(), {});
  WEFT_RETURN_IF_ERROR(coordinator.RunSteps(ranges, [&](const StepReport& report) {
    totals.Add(report.values);
    progress(ProgressOf(report, *job.data));
  }));
  return totals.Values();
}

}  // namespace weft
