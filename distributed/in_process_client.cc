#include "distributed/in_process_client.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/partition.h"

namespace weft {
namespace {

class InProcessClient final : public WorkerClient {
 public:
  InProcessClient(Worker& worker, RankId rank) : worker_(worker), rank_(rank) {}

  std::string name() const override {
    return absl::StrCat("worker:", rank_.value, " (in this process)");
  }
  absl::StatusOr<WorkerInfo> Join(const JobMembership& membership) override {
    return worker_.Join(membership);
  }
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string& program,
                                               const Partition& partition,
                                               const std::string& data) override {
    return worker_.AddProgram(program, partition.Clone(), data);
  }
  absl::Status WriteVariable(const std::string& name, const Tensor& local) override {
    return worker_.WriteVariable(name, local);
  }
  absl::StatusOr<Tensor> ReadVariable(const std::string& name) override {
    return worker_.ReadVariable(name);
  }
  absl::Status RunSteps(const std::vector<StepRange>& ranges,
                        const std::function<void(const StepReport&)>& report) override {
    return worker_.RunSteps(ranges, report);
  }
  absl::StatusOr<WorkerTraffic> ReadTraffic() override { return worker_.ReadTraffic(); }
  absl::StatusOr<std::vector<ProgramStatistics>> ReadStatistics() override {
    return worker_.ReadStatistics();
  }
  absl::StatusOr<CheckpointWrite> PollCheckpoint(bool wait) override {
    return worker_.PollCheckpoint(wait);
  }
  absl::StatusOr<ProcessMemory> MeasureMemory() override { return worker_.MeasureMemory(); }
  void Abort(const absl::Status& reason) override { worker_.Abort(reason); }

 private:
  Worker& worker_;
  const RankId rank_;
};

}  // namespace

std::unique_ptr<WorkerClient> NewInProcessClient(Worker& worker, RankId rank) {
  return std::make_unique<InProcessClient>(worker, rank);
}

}  // namespace weft
