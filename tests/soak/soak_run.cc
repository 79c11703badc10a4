#include "tests/soak/soak_run.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
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
#include "distributed/worker_client.h"
#include "graph/graph_builder.h"
#include "graph/sharding.h"
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
#include "training/checkpoint/state_source.h"
#include "training/data/data_file.h"
#include "training/data/data_set.h"
#include "training/job/job.h"
#include "training/job/replication.h"
#include "training/job/resume.h"
#include "training/job/trainer.h"
#include "training/recovery/job_recovery.h"
#include "training/recovery/replica_check.h"

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

// Flips a bit of a variable of one rank between two steps, where replicas have copies of it.
class FlippingHook final : public LoopHook {
 public:
  FlippingHook(const PreparedJob& job, const SoakFault& fault) : job_(job), fault_(fault) {}
  bool has_struck() const { return has_struck_; }

  int64_t NextCall(int64_t step) const override {
    return step < fault_.moment ? fault_.moment : std::numeric_limits<int64_t>::max();
  }
  absl::StatusOr<std::string> Call(Coordinator& coordinator, int64_t step) override {
    if (step != fault_.moment || job_.plan.mesh.data < 2 || job_.plan.zero > 0) return "";
    constexpr int kByte = 2;
    const std::vector<WorkerClient*>& workers = coordinator.clients();
    WorkerClient& worker = *workers[static_cast<size_t>(fault_.rank) % workers.size()];
    // A stage has one of them alone.
    for (const char* const name : {"w", "v"}) {
      absl::StatusOr<Tensor> value = worker.ReadVariable(name);
      if (!value.ok()) continue;
      static_cast<uint8_t*>(value->raw_data())[kByte] ^= 0x10;
      // A worker that is lost meanwhile keeps nothing; the step that comes finds that.
      has_struck_ = worker.WriteVariable(name, *value).ok();
      break;
    }
    return "";
  }

 private:
  const PreparedJob& job_;
  const SoakFault& fault_;
  bool has_struck_ = false;
};

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
  bool may_go_on = false;  // from the same step, where a whole replica is left, as the job said
  std::vector<int32_t> keepers;  // of each rank as the job begins; empty: there are no copies
  bool stopped = false;          // because a worker left
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
  // Where no replica is whole, it goes back to copies or to what is saved, if there is any yet.
  bool GoesBack(const FaultSchedule& schedule, const PreparedJob& job) const {
    return schedule.goes_on && JobRecovery::WhyNotFromState(job, spec_).empty();
  }
  absl::Status Train(const FaultSchedule& schedule, RunEnd& end);
  // Does to the disk what the schedule says, but for what comes with a step.
  void StrikeDisk(const FaultSchedule& schedule);
  // Which faults of the disk have come by now.
  void SeeDisk(const FaultSchedule& schedule, RunEnd& end);
  void TakeProgress(const FaultSchedule& schedule, const TrainProgress& progress,
                    SoakWorkers& workers, RunEnd& end);

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
  // Copies are on other hosts, where there are several: the hosts of Struck::kHost.
  for (size_t i = 0; schedule.replicate_every > 0 && i < spec_.cluster.workers.size(); ++i) {
    spec_.cluster.workers[i].host = absl::StrCat("h", i / 2);
  }
  spec_.plan.strict = true;
  spec_.plan.commits = schedule.goes_on;
  spec_.plan.micro_batches = kMicroBatches;
  spec_.plan.mesh = schedule.mesh;
  spec_.plan.zero = schedule.zero;
  if (schedule.mesh.tensor > 1) {
    spec_.plan.tensor_shardings = {{"v", AxisSharding::Split(1)}, {"w", AxisSharding::Split(0)}};
  }
  spec_.checkpoints = true;
  spec_.stall_timeout_seconds = kStallSeconds;
  WEFT_ASSIGN_OR_RETURN(auto data, DataSet::Open(files_, data_spec_));
  WEFT_ASSIGN_OR_RETURN(PreparedJob job, PrepareTraining(model, training_, spec_, data));
  spec_.commits = schedule.goes_on && JobRecovery::WhyNot(job, spec_).empty();
  if (GoesBack(schedule, job)) spec_.replicate_every = schedule.replicate_every;
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
                           SoakWorkers& workers, RunEnd& end) {
  const auto expected = end.first_step + static_cast<int64_t>(end.losses.size());
  if (progress.step != expected) {
    end.repeated.push_back(absl::StrCat("step ", progress.step, " is told instead of ", expected));
  }
  end.losses[progress.step] = progress.loss;
  for (size_t i = 0; i < schedule.faults.size(); ++i) {
    const SoakFault& fault = schedule.faults[i];
    if (fault.moment != progress.step) continue;
    if (fault.row->strike == Strike::kFullDisk) {
      disk_.FailWith(ENOSPC);
    } else if (fault.row->strike == Strike::kLeave) {
      workers.Leave(fault.rank);
    } else if (fault.row->strike == Strike::kEnd) {
      workers.EndAll();
    } else {
      continue;
    }
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
  recovery_options.source = &workers.source();
  if (schedule.waits) recovery_options.wait = absl::Seconds(60);
  recovery_options.commits = spec_.commits;
  recovery_options.replicate_every = spec_.replicate_every;
  recovery_options.begins_anew = !newest.has_value();
  recovery_options.checkpoint = [&](int64_t after) -> absl::StatusOr<std::unique_ptr<StateSource>> {
    checkpointer.GiveUp("a worker that had a part of it is lost");
    std::vector<std::string> notes;
    WEFT_ASSIGN_OR_RETURN(std::optional<Checkpoint> saved, store.OpenNewest(notes));
    if (!saved.has_value() || saved->index().step <= after) return std::unique_ptr<StateSource>();
    return std::unique_ptr<StateSource>(std::make_unique<CheckpointSource>(*std::move(saved)));
  };
  JobRecovery recovery(job, recovery_options);
  end.may_go_on = spec_.commits;
  if (spec_.replicate_every > 0) end.keepers = KeepersOf(job.plan);
  if (spec_.commits || GoesBack(schedule, job)) options.losses = &recovery;
  // Replicas are compared after each step, where a bit flips.
  std::vector<std::unique_ptr<FlippingHook>> flips;
  std::map<size_t, const FlippingHook*> flip_of;  // by fault
  for (size_t i = 0; i < schedule.faults.size(); ++i) {
    if (schedule.faults[i].row->strike != Strike::kFlip) continue;
    flips.push_back(std::make_unique<FlippingHook>(job, schedule.faults[i]));
    flip_of[i] = flips.back().get();
    options.hooks.push_back(flips.back().get());
  }
  ReplicaCheckOptions check_options;
  check_options.every = 1;
  check_options.say = [](const std::string&) {};
  check_options.clock = &clock;
  ReplicaCheck check(job, options.first_step, check_options);
  if (!flips.empty()) options.hooks.push_back(&check);
  const auto result = weft::Train(coordinator, job, options, [&](const TrainProgress& progress) {
    TakeProgress(schedule, progress, workers, end);
  });
  for (const auto& [fault, flip] : flip_of) {
    if (flip->has_struck()) end.struck.insert(fault);
  }
  for (size_t i = 0; i < schedule.faults.size(); ++i) {
    if (workers.has_struck(i)) end.struck.insert(i);
  }
  SeeDisk(schedule, end);
  end.hung = keeper.has_ended_it();
  end.turned = keeper.turned();
  if (result.ok()) {
    end.parameters = result->parameters;
    end.stopped = result->stopped;
  }
  return result.status();
}

RunEnd SoakJob::Run(const FaultSchedule& schedule) {
  RunEnd end;
  end.status = Train(schedule, end);
  // What was written is what is there from here on.
  StrikeDisk(FaultSchedule());
  return end;
}

// What one replica of one stage that nobody disturbs comes to. Shards of a tensor split sums, so
// they have bits of their own.
const RunEnd& Undisturbed(int tensor) {
  static auto* const ends = new std::map<int, RunEnd>;
  const auto found = ends->find(tensor);
  if (found != ends->end()) return found->second;
  FaultSchedule schedule;
  schedule.mesh.tensor = tensor;
  schedule.checkpoint_every = kSoakSteps;
  SoakJob job;
  return ends->emplace(tensor, job.Run(schedule)).first->second;
}

// One fault has taken these ranks, at one moment, and others keep copies of all that they had. No
// copy was changed on its way: the first of all may be needed.
bool HasCopiesOf(const FaultSchedule& schedule, const RunEnd& end, const std::set<int>& lost) {
  if (end.keepers.empty()) return false;
  int losses = 0;
  for (const size_t i : end.struck) {
    const FaultRow& row = *schedule.faults[i].row;
    const bool changes_copy = row.strike == Strike::kMessage && row.of_copies;
    if (row.harm == Harm::kLeaves || changes_copy) return false;
    losses += row.harm == Harm::kLosesRank ? 1 : 0;
  }
  for (const int rank : lost) {
    if (lost.contains(end.keepers[static_cast<size_t>(rank)])) return false;
  }
  // A strict job keeps its shards.
  return losses == 1 &&
         schedule.mesh.size() - static_cast<int>(lost.size()) >= schedule.mesh.tensor;
}

// The job goes on after these losses: a replica is left that has lost nobody, or copies are.
bool MayGoOn(const FaultSchedule& schedule, const RunEnd& end, const std::set<int>& lost) {
  if (HasCopiesOf(schedule, end, lost)) return true;
  std::set<int> replicas;
  for (const int rank : lost) replicas.insert(schedule.mesh.CoordinateOf(RankId(rank)).data);
  return end.may_go_on && static_cast<int>(replicas.size()) < schedule.mesh.data;
}

void CompareWithUndisturbed(const char* run, const FaultSchedule& schedule, const RunEnd& end,
                            std::vector<std::string>& complaints) {
  const RunEnd& expected = Undisturbed(schedule.mesh.tensor);
  for (const auto& [name, value] : expected.parameters) {
    if (end.stopped) break;  // its steps are compared, and what is resumed from it
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
  if (end.repeated.empty() && !end.stopped && steps != kSoakSteps) {
    complaints.push_back(absl::StrCat(run, ": ended after step ", steps));
  }
}

// The error has the words of a fault that struck and may do this harm.
bool HasWordsOf(Harm harm, const FaultSchedule& schedule, const RunEnd& end) {
  const std::string text = end.status.ToString();
  return std::any_of(end.struck.begin(), end.struck.end(), [&](size_t i) {
    const FaultRow& row = *schedule.faults[i].row;
    return row.harm == harm && std::regex_search(text, std::regex(row.error));
  });
}

// The error says what one of the faults has done.
bool NamesAFault(const FaultSchedule& schedule, const RunEnd& end, const std::set<int>& lost) {
  const std::string text = end.status.ToString();
  if (HasWordsOf(Harm::kEndsJob, schedule, end) || HasWordsOf(Harm::kDiverges, schedule, end)) {
    return true;
  }
  if (MayGoOn(schedule, end, lost)) return false;
  // Who has come for one of them is another worker by name, and is lost with all.
  const bool ends_all = std::any_of(end.struck.begin(), end.struck.end(), [&](size_t i) {
    return schedule.faults[i].row->harm == Harm::kEndsRun;
  });
  if (ends_all && absl::StrContains(text, "all workers of the job are lost")) return true;
  for (const int rank : lost) {
    if (absl::StrContains(text, absl::StrCat("worker:", rank))) return true;
  }
  return false;
}

void JudgeRun(const FaultSchedule& schedule, const RunEnd& end, SoakOutcome& outcome) {
  std::vector<std::string>& complaints = outcome.complaints;
  std::set<int> lost;
  bool breaks_disk = false;
  bool leaves = false;
  bool diverges = false;
  for (const size_t i : end.struck) {
    const SoakFault& fault = schedule.faults[i];
    outcome.struck.insert(fault.row->name);
    if (fault.row->harm == Harm::kLosesRank) {
      lost.insert(fault.rank);
      if (fault.other_rank >= 0) lost.insert(fault.other_rank);
    }
    for (int rank = 0; fault.row->harm == Harm::kEndsRun && rank < schedule.mesh.size(); ++rank) {
      lost.insert(rank);
    }
    leaves |= fault.row->harm == Harm::kLeaves;
    diverges |= fault.row->harm == Harm::kDiverges;
    breaks_disk |= fault.row->harm == Harm::kSavesLess || fault.row->harm == Harm::kEndsSaving;
  }
  std::string first_loss;
  for (const std::string& line : end.told) {
    outcome.joins += absl::StartsWith(line, "joined ") || absl::StrContains(line, " in its place");
    if (!absl::StartsWith(line, "lost ")) continue;
    if (outcome.losses++ == 0) first_loss = line;
    // What is left of several replicas is held as copies are.
    outcome.from_copies += !end.keepers.empty() && !end.may_go_on &&
                           absl::StrContains(line, " from copies in the memory of ");
  }
  outcome.turned = end.turned;
  if (end.hung) complaints.push_back("the run hung");
  outcome.stopped = end.stopped;
  if (lost.empty() && !first_loss.empty()) {
    complaints.push_back(absl::StrCat("a loss without a cause: ", first_loss));
  }
  if (end.stopped && !leaves) complaints.push_back("it stopped, and nobody left");
  if (diverges && lost.empty() && !leaves && schedule.mesh.data > 2 && !end.status.ok() &&
      absl::IsDataLoss(end.status) && !HasWordsOf(Harm::kEndsJob, schedule, end)) {
    complaints.push_back(absl::StrCat("a flip was not repaired, though most copies were equal: ",
                                      end.status.ToString()));
  }
  if (lost.empty() && !breaks_disk && !end.warnings.empty() && end.status.ok()) {
    complaints.push_back(absl::StrCat("no checkpoint, without a cause: ", end.warnings.front()));
  }
  if (end.status.ok()) return CompareWithUndisturbed("the run", schedule, end, complaints);
  outcome.error = end.status.ToString();
  if (!NamesAFault(schedule, end, lost)) {
    complaints.push_back(absl::StrCat("the run ended by: ", outcome.error));
  }
}

}  // namespace

SoakOutcome RunSchedule(const FaultSchedule& schedule) {
  SoakOutcome outcome;
  const RunEnd& undisturbed = Undisturbed(schedule.mesh.tensor);
  if (!undisturbed.status.ok()) {
    outcome.complaints.push_back(
        absl::StrCat("the undisturbed run: ", undisturbed.status.ToString()));
    return outcome;
  }
  SoakJob job;
  const RunEnd end = job.Run(schedule);
  JudgeRun(schedule, end, outcome);
  FaultSchedule calm = schedule;
  calm.faults.clear();
  const RunEnd resumed = job.Run(calm);
  outcome.resumed_from = resumed.first_step;
  if (!resumed.status.ok()) {
    outcome.complaints.push_back(absl::StrCat("the resumed run: ", resumed.status.ToString()));
    return outcome;
  }
  CompareWithUndisturbed("the resumed run", schedule, resumed, outcome.complaints);
  const auto done = static_cast<int64_t>(end.losses.size());
  if (end.stopped && end.warnings.empty() && resumed.first_step != done) {
    outcome.complaints.push_back(
        absl::StrCat("it stopped after step ", done, ", and resumed from ", resumed.first_step));
  }
  for (const std::string& note : resumed.notes) {
    outcome.complaints.push_back(absl::StrCat("a checkpoint that was named is damaged: ", note));
  }
  return outcome;
}

}  // namespace weft::testing
