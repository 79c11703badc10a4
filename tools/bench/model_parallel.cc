// What tensor and pipeline parallelism gain on two worker processes of one thread each, against
// one: transformer blocks of width 1024, alternately in one run: `bazel run
// //tools/bench:model_parallel`.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "graph/schedule/action_list.h"
#include "graph/schedule/schedule_simulator.h"
#include "platform/status_macros.h"
#include "tools/bench/bench_job.h"
#include "tools/bench/gpt_block.h"

namespace weft {
namespace {

constexpr int64_t kBatch = 8;
constexpr int64_t kSteps = 3;  // per round
constexpr int kRounds = 7;

// One process with the same micro-batches, and two.
struct Pair {
  std::vector<double> single;
  std::vector<double> beside;  // one process while another one, apart from it, does the same
  std::vector<double> both;
  std::vector<double> speed_up;
};

// Two jobs that share nothing but the machine: its memory, its caches and its clock.
absl::StatusOr<double> SecondsBesideEachOther(BenchJob& one, BenchJob& other) {
  absl::StatusOr<double> of_other;
  std::thread thread([&] { of_other = TrainSteps(other, kSteps); });
  const absl::StatusOr<double> of_one = TrainSteps(one, kSteps);
  thread.join();
  WEFT_RETURN_IF_ERROR(of_one.status());
  WEFT_RETURN_IF_ERROR(of_other.status());
  return (*of_one + *of_other) / 2;
}

absl::StatusOr<Pair> Compare(const Graph& model, const std::shared_ptr<const DataSet>& data,
                             const Plan& plan) {
  Plan alone;
  alone.micro_batches = plan.micro_batches;
  WEFT_ASSIGN_OR_RETURN(BenchJob one, StartBenchJob(model, data, 1, alone));
  WEFT_ASSIGN_OR_RETURN(BenchJob other, StartBenchJob(model, data, 1, alone));
  WEFT_ASSIGN_OR_RETURN(BenchJob two, StartBenchJob(model, data, 2, plan));
  WEFT_RETURN_IF_ERROR(SecondsBesideEachOther(one, other).status());
  WEFT_RETURN_IF_ERROR(TrainSteps(two, kSteps).status());
  Pair pair;
  for (int round = 0; round < kRounds; ++round) {
    WEFT_ASSIGN_OR_RETURN(const double single, TrainSteps(one, kSteps));
    WEFT_ASSIGN_OR_RETURN(const double both, TrainSteps(two, kSteps));
    WEFT_ASSIGN_OR_RETURN(const double beside, SecondsBesideEachOther(one, other));
    pair.single.push_back(single);
    pair.beside.push_back(beside);
    pair.both.push_back(both);
    pair.speed_up.push_back(single / both);
  }
  return pair;
}

absl::Status MeasureTensor(const std::string& folder) {
  const GptBlocks shape;
  WEFT_ASSIGN_OR_RETURN(const Graph model, GptModel(shape));
  WEFT_ASSIGN_OR_RETURN(const auto data, MakeGptData(shape, kBatch, kBatch, folder));
  Plan plan;
  plan.mesh.tensor = 2;
  plan.tensor_shardings = MegatronShardings();
  WEFT_ASSIGN_OR_RETURN(const Pair pair, Compare(model, data, plan));
  std::printf("tensor parallelism over one block\n");
  PrintMedian("  seconds per step, one process", pair.single);
  PrintMedian("  seconds per step, tp=2", pair.both);
  PrintMedian("  speed-up", pair.speed_up);
  return absl::OkStatus();
}

// The schedule's makespan where each of two equal stages takes half of a step of one process.
absl::StatusOr<double> CriticalPath(const Plan& plan, double single_seconds) {
  ScheduleOptions options;
  options.micro_batches = plan.micro_batches;
  const double pass = single_seconds / 2 / plan.micro_batches / 3;
  options.costs = {{0, pass, pass, pass, 0}, {0, pass, pass, pass, 0}};
  std::vector<ActionList> lists;
  for (int stage = 0; stage < 2; ++stage) {
    WEFT_ASSIGN_OR_RETURN(lists.emplace_back(),
                          MakeActions(plan.schedule, 2, stage, plan.micro_batches, true));
  }
  WEFT_ASSIGN_OR_RETURN(const ScheduleSimulation simulation, SimulateSchedule(lists, options));
  return simulation.makespan;
}

absl::Status MeasurePipeline(const std::string& schedule, const std::string& folder) {
  GptBlocks shape;
  shape.blocks = 2;
  WEFT_ASSIGN_OR_RETURN(const Graph model, GptModel(shape));
  WEFT_ASSIGN_OR_RETURN(const auto data, MakeGptData(shape, kBatch, kBatch, folder));
  Plan plan;
  plan.mesh.pipeline = 2;
  plan.micro_batches = static_cast<int>(kBatch);
  plan.schedule = schedule;
  plan.stages = {{"block0/*", 0}, {"block1/*", 1}, {"head/*", 1}};
  WEFT_ASSIGN_OR_RETURN(const Pair pair, Compare(model, data, plan));
  std::vector<double> over;
  for (size_t round = 0; round < pair.single.size(); ++round) {
    WEFT_ASSIGN_OR_RETURN(const double path, CriticalPath(plan, pair.beside[round]));
    over.push_back(pair.both[round] / path);
  }
  std::printf("pipeline of two blocks, %s, %d micro-batches\n", schedule.c_str(),
              plan.micro_batches);
  PrintMedian("  seconds per step, one process", pair.single);
  PrintMedian("  seconds per step, one process beside another", pair.beside);
  PrintMedian("  seconds per step, pp=2", pair.both);
  PrintMedian("  step / the schedule's critical path beside each other", over);
  return absl::OkStatus();
}

absl::Status Measure() {
  std::string folder = std::filesystem::temp_directory_path() / "weft-model-parallel-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("no temporary folder");
  absl::Status status = MeasureTensor(folder);
  for (const char* schedule : {"1f1b", "zero_bubble"}) {
    if (status.ok()) status = MeasurePipeline(schedule, folder);
  }
  std::filesystem::remove_all(folder);
  return status;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::BenchMain(argc, argv, weft::Measure); }
