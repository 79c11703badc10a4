#include "training/verification/captured_step.h"

#include <utility>

#include "distributed/coordinator.h"
#include "distributed/in_process_cluster.h"
#include "platform/status_macros.h"
#include "training/graph/training_graph.h"

namespace weft {
namespace {

constexpr char kVersion[] = "verify";

// Keeps the reports of its worker, whoever else wants them.
class ReportKeeper final : public WorkerClient {
 public:
  ReportKeeper(WorkerClient& client, std::map<std::string, Tensor>& values)
      : client_(client), values_(values) {}
  std::string name() const override { return client_.name(); }
  absl::StatusOr<WorkerInfo> Join(const JobMembership& membership) override {
    return client_.Join(membership);
  }
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string& program,
                                               const Partition& partition,
                                               const std::string& data) override {
    return client_.AddProgram(program, partition, data);
  }
  absl::Status WriteVariable(const std::string& name, const Tensor& local) override {
    return client_.WriteVariable(name, local);
  }
  absl::StatusOr<Tensor> ReadVariable(const std::string& name) override {
    return client_.ReadVariable(name);
  }
  absl::Status RunSteps(const std::vector<StepRange>& ranges,
                        const std::function<void(const StepReport&)>& report) override {
    return client_.RunSteps(ranges, [&](const StepReport& step) {
      for (const auto& [name, value] : step.values) values_[name] = value;
      if (report != nullptr) report(step);
    });
  }
  absl::StatusOr<ControlReply> Answer(const ControlRequest& request) override {
    return client_.Answer(request);
  }
  void Abort(const absl::Status& reason) override { client_.Abort(reason); }

 private:
  WorkerClient& client_;
  std::map<std::string, Tensor>& values_;
};

}  // namespace

absl::StatusOr<CapturedStep> RunCapturedStep(FileSystem& files, PreparedJob& job) {
  CapturedStep step;
  job.programs.resize(1);
  for (Partition& partition : job.programs[0].partitions) {
    step.ranks.push_back({CaptureValues(partition), {}});
  }
  InProcessCluster cluster(static_cast<int>(step.ranks.size()), NewDataSetFactory(files), kVersion);
  std::vector<std::unique_ptr<WorkerClient>> keepers;
  std::vector<WorkerClient*> clients;
  for (WorkerClient* client : cluster.clients()) {
    keepers.push_back(std::make_unique<ReportKeeper>(*client, step.ranks[keepers.size()].values));
    clients.push_back(keepers.back().get());
  }
  Coordinator coordinator(clients);
  JobSpec spec;
  spec.plan = job.plan;
  WEFT_RETURN_IF_ERROR(StartJob(coordinator, job, spec, kVersion, {}));
  WEFT_RETURN_IF_ERROR(coordinator.RunSteps(
      StepRanges(*job.data, "train", 0, 1, {{kLearningRateInput, job.learning_rate}}), nullptr));
  std::vector<std::string> names;
  for (const Variable& variable : job.graph.variables()) {
    if (variable.update.valid()) names.push_back(variable.name);
  }
  WEFT_ASSIGN_OR_RETURN(step.variables, coordinator.ReadVariables(names));
  return step;
}

}  // namespace weft
