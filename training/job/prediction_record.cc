#include "training/job/prediction_record.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_format.h"
#include "graph/node_class.h"

namespace weft {
namespace {

// Of the first steps that are left out, and the steps of which that many are.
constexpr int64_t kFirstSteps = 5;
constexpr int64_t kEnoughSteps = 20;

double Median(std::vector<double> values) {
  if (static_cast<int64_t>(values.size()) >= kEnoughSteps) {
    values.erase(values.begin(), values.begin() + kFirstSteps);
  }
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::set<std::string> CommunicationNodes(const Partition& partition) {
  std::set<std::string> names;
  const auto add = [&names](const Graph& graph) {
    for (const NodeId id : graph.node_ids()) {
      if (IsCommunication(graph.node(id))) names.insert(graph.node(id).name);
    }
  };
  add(partition.begin);
  for (const Graph& micro : partition.micro) add(micro);
  add(partition.end);
  return names;
}

// Seconds of a step that a rank's compute nodes take.
double ComputeSeconds(const Partition& partition, const ProgramStatistics& program) {
  const std::set<std::string> communication = CommunicationNodes(partition);
  int64_t nanoseconds = 0;
  for (const NodeStatistics& node : program.nodes) {
    if (!communication.contains(node.node)) nanoseconds += node.nanoseconds;
  }
  return 1e-9 * static_cast<double>(nanoseconds) /
         static_cast<double>(std::max<int64_t>(program.timed_steps, 1));
}

}  // namespace

void StepTimes::Add(const TrainProgress& done) {
  if (done.samples != shape_.batch || done.length != shape_.length) return;
  seconds_.push_back(done.seconds);
  input_seconds_.push_back(done.input_seconds);
}

double StepTimes::MedianSeconds() const { return Median(seconds_); }
double StepTimes::MedianInputSeconds() const { return Median(input_seconds_); }

RunHistoryEntry RecordOf(const PreparedJob& job, const StepTimes& steps,
                         const RunMeasurements& run) {
  const Prediction& prediction = job.plan.prediction;
  RunHistoryEntry entry;
  entry.time = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", run.ended, absl::UTCTimeZone());
  entry.model = run.model;
  entry.model_digest = job.plan.model_digest;
  entry.cluster_digest = job.plan.cluster_digest;
  entry.plan = PlanSignature(job.plan);
  entry.steps = steps.steps();
  entry.factor = run.factor;
  entry.predicted = {prediction.step_seconds, prediction.compute_seconds,
                     prediction.communication_seconds, prediction.bytes_per_step,
                     prediction.memory_bytes};
  if (entry.predicted.memory_bytes.empty()) {
    for (const WorkerMemory& memory : run.needed) {
      entry.predicted.memory_bytes.push_back(memory.requirement.total());
    }
  }
  entry.input_seconds = steps.MedianInputSeconds();
  entry.measured.step_seconds = steps.MedianSeconds();
  for (size_t rank = 0; rank < run.statistics.size(); ++rank) {
    for (const ProgramStatistics& program : run.statistics[rank]) {
      if (program.program != job.programs.front().name || program.timed_steps == 0) continue;
      entry.measured.compute_seconds =
          std::max(entry.measured.compute_seconds,
                   ComputeSeconds(job.programs.front().partitions[rank], program));
    }
  }
  if (entry.measured.compute_seconds > 0) {
    entry.measured.communication_seconds = std::max(
        0.0, entry.measured.step_seconds - entry.measured.compute_seconds - entry.input_seconds);
  }
  for (const RankTraffic& rank : run.traffic) {
    entry.measured.bytes_sent.push_back(rank.measured_bytes / std::max<int64_t>(rank.steps, 1));
  }
  for (const ProcessMemory& memory : run.memory) {
    entry.measured.memory_bytes.push_back(memory.peak_bytes);
  }
  return entry;
}

std::string ComparisonText(const RunHistoryEntry& entry) {
  const StepCosts& predicted = entry.predicted;
  const StepCosts& measured = entry.measured;
  if (!(measured.step_seconds > 0) || !(predicted.step_seconds > 0)) return "";
  const double error = predicted.step_seconds / measured.step_seconds - 1;
  std::string text = absl::StrFormat(
      "step   predicted %.3g ms, measured %.3g ms (median of %d): %+.1f %%\n",
      1e3 * predicted.step_seconds, 1e3 * measured.step_seconds, entry.steps, 100 * error);
  if (measured.compute_seconds > 0) {
    absl::StrAppendFormat(&text,
                          "       computing %.3g ms predicted, %.3g measured; communication and "
                          "waiting %.3g, %.3g; input %.3g measured\n",
                          1e3 * predicted.compute_seconds, 1e3 * measured.compute_seconds,
                          1e3 * predicted.communication_seconds,
                          1e3 * measured.communication_seconds, 1e3 * entry.input_seconds);
  }
  return text;
}

}  // namespace weft
