#include "tests/soak/soak_run.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "distributed/coordinator.h"
#include "graph/graph_builder.h"
#include "ops/testing/test_tensors.h"
#include "platform/file_system.h"
#include "platform/folders.h"
#include "platform/status_macros.h"
#include "platform/testing/fake_clock.h"
#include "platform/testing/fake_file_system.h"
#include "platform/testing/faulty_disk.h"
#include "tensor/tensor.h"
#include "tests/soak/clock_keeper.h"
#include "tests/soak/soak_workers.h"
#include "training/checkpoint/checkpoint_store.h"
#include "training/checkpoint/checkpointer.h"
#include "training/data/data_file.h"
#include "training/data/data_set.h"
#include "training/job/job.h"
#include "training/job/resume.h"
#include "training/job/trainer.h"
#include "training/recovery/job_recovery.h"

namespace weft::testing {
namespace {

constexpr char kVersion[] = "soak";
constexpr int64_t kSamples = 40;
constexpr int kFeatures = 6;
constexpr int kClasses = 3;
constexpr int kMicroBatches = 8;
constexpr double kStallSeconds = 20;
constexpr absl::Duration kLongest = absl::Minutes(3);

ValueType Floats(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

// scores [N,3] = tanh(x [N,6] times v [6,6]) times w [6,3].
absl::StatusOr<Graph> SoakModel() {
  Graph graph;
  const ValueId x = graph.AddInput("x", Floats({Dim::Symbol("N"), kFeatures}));
  const ValueId v = graph.AddVariable("v", Floats({kFeatures, kFeatures}),
                                      RandomTensor({kFeatures, kFeatures}, 1), true);
  const ValueId w = graph.AddVariable("w", Floats({kFeatures, kClasses}),
                                      RandomTensor({kFeatures, kClasses}, 2), true);
  GraphBuilder builder(graph);
  const ValueId hidden = builder.Op("Tanh", {builder.Op("MatMul", {x, v})});
  const ValueId scores = builder.Op("MatMul", {hidden, w});
  builder.Name(scores, "scores");
  WEFT_RETURN_IF_ERROR(builder.status());
  graph.AddOutput(scores);
  return graph;
}

// What a run leaves.
struct RunEnd {
  absl::Status status;
  std::map<std::string, Tensor> parameters;
  std::map<int64_t, double> losses;  // by step
  int64_t first_step = 0;
  std::vector<std::string> told;      // lines about lost workers
  std::vector<std::string> warnings;  // of checkpoints
  std::vector<std::string> notes;     // of damaged checkpoints
  std::vector<std::string> repeated;  // steps that were told twice, or not in order
  std::set<size_t> struck;
  bool hung = false;
  absl::Duration turned;
};

// One schedule's job, run once or several times.
class SoakJob {
 public:
  SoakJob() {
    char pattern[] = "/tmp/weft-soak-XXXXXX";
    root_ = mkdtemp(pattern) == nullptr ? "/tmp/weft-soak" : pattern;
    Write("x", RandomTensor({kSamples, kFeatures}, 3));
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < kSamples; ++i) labels.push_back((i * 7 + i / 5) % kClasses);
    Write("labels", Tensor::Of<int64_t>({kSamples}, labels));
    data_spec_.batch = 8;
    data_spec_.shuffle = true;
    training_.optimizer.kind = "adam";
    training_.optimizer.learning_rate = 0.01;
  }
  SoakJob(const SoakJob&) = delete;
  SoakJob& operator=(const SoakJob&) = delete;
  ~SoakJob() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  // From the newest checkpoint, if there is one.
  RunEnd Run(const FaultSchedule& schedule);

 private:
  void Write(const std::string& input, const Tensor& tensor) {
    const std::string path = absl::StrCat("/", input, ".npy");
    const absl::StatusOr<std::string> bytes = ToNpy(tensor);
    if (bytes.ok()) files_.WriteFileAtomically(path, *bytes).IgnoreError();
    data_spec_.files.push_back({input, path, 0});
  }
  absl::StatusOr<PreparedJob> Prepare(const FaultSchedule& schedule);
  absl::Status Train(const FaultSchedule& schedule, RunEnd& end);
  // Does to the disk what the schedule says, but for what comes with a step.
  void StrikeDisk(const FaultSchedule& schedule);
  // Which faults of the disk have come by now.
  void SeeDisk(const FaultSchedule& schedule, RunEnd& end);
  void TakeProgress(const FaultSchedule& schedule, const TrainProgress& progress, RunEnd& end);

  FakeFileSystem files_;
  FaultyDisk disk_;
  DataSpec data_spec_;
  TrainingSpec training_;
  JobSpec spec_;
  std::string root_;
};

absl::StatusOr<PreparedJob> SoakJob::Prepare(const FaultSchedule& schedule) {
  WEFT_ASSIGN_OR_RETURN(const Graph model, SoakModel());
  spec_ = JobSpec();
  spec_.cluster = ClusterSpec::Local(schedule.mesh.size(), 1);
  spec_.plan.strict = true;
  spec_.plan.commits = schedule.goes_on;
  spec_.plan.micro_batches = kMicroBatches;
  spec_.plan.mesh = schedule.mesh;
  spec_.checkpoints = true;
  spec_.stall_timeout_seconds = kStallSeconds;
  WEFT_ASSIGN_OR_RETURN(auto data, DataSet::Open(files_, data_spec_));
  WEFT_ASSIGN_OR_RETURN(PreparedJob job, PrepareTraining(model, training_, spec_, data));
  spec_.commits = schedule.goes_on && JobRecovery::WhyNot(job, spec_).empty();
  return job;
}

void SoakJob::StrikeDisk(const FaultSchedule& schedule) {
  disk_.FailWith(0);
  disk_.FailOnce(-1, 0);
  disk_.DieAt(-1);
  for (const SoakFault& fault : schedule.faults) {
    const auto change = static_cast<int>(fault.moment);
    if (fault.row->strike == Strike::kDiskError) disk_.FailOnce(change, EIO);
    if (fault.row->strike == Strike::kDeadDisk) disk_.DieAt(change);
  }
}

void SoakJob::SeeDisk(const FaultSchedule& schedule, RunEnd& end) {
  for (size_t i = 0; i < schedule.faults.size(); ++i) {
    const SoakFault& fault = schedule.faults[i];
    const bool is_counted =
        fault.row->strike == Strike::kDiskError || fault.row->strike == Strike::kDeadDisk;
    if (is_counted && disk_.changes() > fault.moment) end.struck.insert(i);
  }
}

void SoakJob::TakeProgress(const FaultSchedule& schedule, const TrainProgress& progress,
                           RunEnd& end) {
  const auto expected = end.first_step + static_cast<int64_t>(end.losses.size());
  if (progress.step != expected) {
    end.repeated.push_back(absl::StrCat("step ", progress.step, " is told instead of ", expected));
  }
  end.losses[progress.step] = progress.loss;
  for (size_t i = 0; i < schedule.faults.size(); ++i) {
    const SoakFault& fault = schedule.faults[i];
    if (fault.row->strike != Strike::kFullDisk || fault.moment != progress.step) continue;
    disk_.FailWith(ENOSPC);
    end.struck.insert(i);
  }
}

absl::Status SoakJob::Train(const FaultSchedule& schedule, RunEnd& end) {
  WEFT_ASSIGN_OR_RETURN(PreparedJob job, Prepare(schedule));
  WEFT_ASSIGN_OR_RETURN(const Graph model, SoakModel());
  FakeClock clock;
  SoakWorkers workers(schedule, NewDataSetFactory(files_), kVersion, disk_.files(), clock);
  ClockKeeper keeper(
      clock, [&] { return workers.activity(); }, kLongest, [&] { workers.EndAll(); });
  Coordinator coordinator(workers.clients());
  WEFT_RETURN_IF_ERROR(StartJob(coordinator, job, spec_, kVersion, {}));

  CheckpointStore store(disk_.files(), disk_.folders(), root_);
  WEFT_RETURN_IF_ERROR(store.CleanUp().status());
  WEFT_ASSIGN_OR_RETURN(const std::optional<Checkpoint> newest, store.OpenNewest(end.notes));
  TrainOptions options;
  options.steps = kSoakSteps;
  options.clock = schedule.long_stretches ? &RealClock() : &clock;
  if (newest.has_value()) {
    WEFT_RETURN_IF_ERROR(Restore(coordinator, job, *newest));
    options.first_step = end.first_step = newest->index().step;
  }
  StrikeDisk(schedule);
  Checkpointer checkpointer(store, {}, {.every_steps = schedule.checkpoint_every},
                            options.first_step, clock,
                            [&](const std::string& text) { end.warnings.push_back(text); });
  options.checkpointer = &checkpointer;
  JobRecoveryOptions recovery_options;
  recovery_options.repartition = [&](const Plan& plan) {
    return PartitionTraining(job, model, training_, plan, kTrainingSteps);
  };
  recovery_options.say = [&](const std::string& line) { end.told.push_back(line); };
  recovery_options.clock = &clock;
  JobRecovery recovery(job, recovery_options);
  if (spec_.commits) options.losses = &recovery;
  const auto result = weft::Train(coordinator, job, options, [&](const TrainProgress& progress) {
    TakeProgress(schedule, progress, end);
  });
  for (size_t i = 0; i < schedule.faults.size(); ++i) {
    if (workers.has_struck(i)) end.struck.insert(i);
  }
  SeeDisk(schedule, end);
  end.hung = keeper.has_ended_it();
  end.turned = keeper.turned();
  if (result.ok()) end.parameters = result->parameters;
  return result.status();
}

RunEnd SoakJob::Run(const FaultSchedule& schedule) {
  RunEnd end;
  end.status = Train(schedule, end);
  // What was written is what is there from here on.
  StrikeDisk(FaultSchedule());
  return end;
}

// What one worker that nobody disturbs comes to.
const RunEnd& Undisturbed() {
  static const auto* const end = new RunEnd([] {
    FaultSchedule schedule;
    schedule.checkpoint_every = kSoakSteps;
    SoakJob job;
    return job.Run(schedule);
  }());
  return *end;
}

// The job may go on after these losses: a replica is left that has lost nobody.
bool MayGoOn(const FaultSchedule& schedule, const std::set<int>& lost) {
  std::set<int> replicas;
  for (const int rank : lost) replicas.insert(schedule.mesh.CoordinateOf(RankId(rank)).data);
  return schedule.goes_on && static_cast<int>(replicas.size()) < schedule.mesh.data;
}

void CompareWithUndisturbed(const char* run, const RunEnd& end,
                            std::vector<std::string>& complaints) {
  const RunEnd& expected = Undisturbed();
  for (const auto& [name, value] : expected.parameters) {
    const auto found = end.parameters.find(name);
    if (found == end.parameters.end() || !BitwiseEqual(found->second, value)) {
      complaints.push_back(absl::StrCat(run, ": the weights '", name, "' are others"));
    }
  }
  for (const auto& [step, loss] : end.losses) {
    if (expected.losses.at(step) != loss) {
      complaints.push_back(absl::StrCat(run, ": the loss of step ", step, " is ", loss,
                                        " instead of ", expected.losses.at(step)));
      break;
    }
  }
  for (const std::string& text : end.repeated) {
    complaints.push_back(absl::StrCat(run, ": ", text));
  }
  const int64_t steps = end.first_step + static_cast<int64_t>(end.losses.size());
  if (end.repeated.empty() && steps != kSoakSteps) {
    complaints.push_back(absl::StrCat(run, ": ended after step ", steps));
  }
}

// The error says what one of the faults has done.
bool NamesAFault(const FaultSchedule& schedule, const RunEnd& end, const std::set<int>& lost) {
  const std::string text = end.status.ToString();
  for (const size_t i : end.struck) {
    const FaultRow& row = *schedule.faults[i].row;
    if (row.harm == Harm::kEndsJob && std::regex_search(text, std::regex(row.error))) return true;
  }
  if (MayGoOn(schedule, lost)) return false;
  for (const int rank : lost) {
    if (absl::StrContains(text, absl::StrCat("worker:", rank))) return true;
  }
  return false;
}

void JudgeRun(const FaultSchedule& schedule, const RunEnd& end, SoakOutcome& outcome) {
  std::vector<std::string>& complaints = outcome.complaints;
  std::set<int> lost;
  bool breaks_disk = false;
  for (const size_t i : end.struck) {
    const SoakFault& fault = schedule.faults[i];
    outcome.struck.insert(fault.row->name);
    if (fault.row->harm == Harm::kLosesRank) lost.insert(fault.rank);
    breaks_disk |= fault.row->harm == Harm::kSavesLess || fault.row->harm == Harm::kEndsSaving;
  }
  outcome.losses = static_cast<int>(end.told.size());
  outcome.turned = end.turned;
  if (end.hung) complaints.push_back("the run hung");
  if (lost.empty() && !end.told.empty()) {
    complaints.push_back(absl::StrCat("a loss without a cause: ", end.told.front()));
  }
  if (lost.empty() && !breaks_disk && !end.warnings.empty() && end.status.ok()) {
    complaints.push_back(absl::StrCat("no checkpoint, without a cause: ", end.warnings.front()));
  }
  if (end.status.ok()) return CompareWithUndisturbed("the run", end, complaints);
  outcome.error = end.status.ToString();
  if (!NamesAFault(schedule, end, lost)) {
    complaints.push_back(absl::StrCat("the run ended by: ", outcome.error));
  }
}

}  // namespace

SoakOutcome RunSchedule(const FaultSchedule& schedule) {
  SoakOutcome outcome;
  if (!Undisturbed().status.ok()) {
    outcome.complaints.push_back(
        absl::StrCat("the undisturbed run: ", Undisturbed().status.ToString()));
    return outcome;
  }
  SoakJob job;
  JudgeRun(schedule, job.Run(schedule), outcome);
  FaultSchedule calm = schedule;
  calm.faults.clear();
  const RunEnd resumed = job.Run(calm);
  outcome.resumed_from = resumed.first_step;
  if (!resumed.status.ok()) {
    outcome.complaints.push_back(absl::StrCat("the resumed run: ", resumed.status.ToString()));
    return outcome;
  }
  CompareWithUndisturbed("the resumed run", resumed, outcome.complaints);
  for (const std::string& note : resumed.notes) {
    outcome.complaints.push_back(absl::StrCat("a checkpoint that was named is damaged: ", note));
  }
  return outcome;
}

}  // namespace weft::testing
