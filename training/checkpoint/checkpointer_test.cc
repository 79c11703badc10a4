// Training jobs that are saved, killed, resumed: the end is that of a run that nobody disturbed.
#include "training/checkpoint/checkpointer.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/testing/device_cluster.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "platform/testing/fake_clock.h"
#include "platform/testing/fake_file_system.h"
#include "platform/testing/faulty_disk.h"
#include "training/data/data_file.h"
#include "training/job/periodic_evaluation.h"
#include "training/job/resume.h"
#include "training/job/trainer.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kVersion[] = "test";
constexpr int64_t kSteps = 11;

ValueType FloatType(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

// scores [N,3] = tanh(x [N,4] times v [4,6]) times w [6,3] plus b [3].
Graph Model() {
  Graph graph;
  const ValueId x = graph.AddInput("x", FloatType({Dim::Symbol("N"), 4}));
  const ValueId v =
      graph.AddVariable("v", FloatType({4, 6}), testing::RandomTensor({4, 6}, 4), true);
  const ValueId w =
      graph.AddVariable("w", FloatType({6, 3}), testing::RandomTensor({6, 3}, 1), true);
  const ValueId b = graph.AddVariable("b", FloatType({3}), testing::RandomTensor({3}, 2), true);
  GraphBuilder builder(graph);
  const ValueId hidden = builder.Op("Tanh", {builder.Op("MatMul", {x, v})});
  builder.Name(hidden, "hidden");
  const ValueId scores = builder.Op("Add", {builder.Op("MatMul", {hidden, w}), b});
  builder.Name(scores, "scores");
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  graph.AddOutput(scores);
  return graph;
}

// How a job runs: what a resumed one may have otherwise.
struct Way {
  int workers = 1;
  Plan plan = {};
};

// Counts steps, as averages over steps do.
class StepCount final : public LoopHook {
 public:
  int64_t NextCall(int64_t) const override { return std::numeric_limits<int64_t>::max(); }
  absl::StatusOr<std::string> Call(Coordinator&, int64_t) override { return std::string(); }
  void SaveState(std::map<std::string, double>& state) const override { state["steps"] = steps; }
  bool changes_in_steps() const override { return true; }

  double steps = 0;
};

TEST(CheckpointerDueTest, OneThatIsWantedIsDueBeforeItsTurn) {
  CheckpointStore store(RealFileSystem(), RealFolders(), "/nowhere");
  bool is_wanted = true;
  CheckpointOptions options = {.every_steps = 100};
  options.is_wanted = [&is_wanted] { return std::exchange(is_wanted, false); };
  Checkpointer checkpointer(store, CheckpointJob(), options, 5, RealClock(),
                            [](const std::string&) {});
  // What is saved already is not saved again: the request stays until there is something.
  EXPECT_EQ(checkpointer.Due(5, 9), std::nullopt);
  EXPECT_EQ(checkpointer.Due(7, 9), 7);
  EXPECT_EQ(checkpointer.Due(8, 9), std::nullopt);
  EXPECT_EQ(checkpointer.Due(98, 120), 100);
}

// On each device of tensor/testing/test_device.h.
class CheckpointerTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/weft-checkpointer-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    root_ = pattern;
    Write("x", testing::RandomTensor({10, 4}, 3));
    Write("labels", Tensor::Of<int64_t>({10}, {0, 1, 2, 1, 1, 0, 2, 2, 0, 1}));
    data_spec_.batch = 4;
    data_spec_.shuffle = true;
    options_.every_steps = 4;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& input, const Tensor& tensor) {
    const std::string path = absl::StrCat("/", input, ".npy");
    ASSERT_TRUE(files_.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    data_spec_.files.push_back({input, path, 0});
  }

  absl::StatusOr<PreparedJob> Prepare(const Way& way) {
    spec_.cluster = ClusterSpec::Local(way.workers, 1);
    spec_.plan = way.plan;
    spec_.checkpoints = true;
    auto data = DataSet::Open(files_, data_spec_);
    if (!data.ok()) return data.status();
    TrainingSpec training;
    training.optimizer.kind = "adam";
    training.optimizer.learning_rate = 0.05;
    training.average_decay = average_decay_;
    return PrepareTraining(Model(), training, spec_, *data);
  }

  // Trains up to `steps`, from the newest checkpoint if there is one. Checkpoints go through
  // `disk`.
  absl::StatusOr<TrainResult> TrainTo(int64_t steps, const Way& way = {}) {
    absl::StatusOr<PreparedJob> job = Prepare(way);
    if (!job.ok()) return job.status();
    testing::DeviceCluster cluster(GetParam(), way.workers, NewDataSetFactory(files_), kVersion,
                                   &disk_.files());
    Coordinator coordinator(cluster.clients());
    std::optional<PreparedJob> evaluation;
    if (evaluate_.every > 0) {
      auto prepared =
          PrepareEvaluationWithin(*job, Model(), {}, {"accuracy", "loss"}, spec_, job->data);
      if (!prepared.ok()) return prepared.status();
      evaluation = *std::move(prepared);
    }
    absl::Status status = StartJob(coordinator, *job, spec_, kVersion, {},
                                   evaluation.has_value() ? &*evaluation : nullptr);
    if (!status.ok()) return status;
    CheckpointStore store(disk_.files(), disk_.folders(), root_);
    const auto newest = store.OpenNewest(notes_);
    if (!newest.ok()) return newest.status();
    TrainOptions options;
    options.steps = steps;
    std::optional<PeriodicEvaluation> periodic;
    if (evaluation.has_value()) {
      periodic.emplace(*evaluation, evaluate_, [this](Coordinator&, const Measurement& measured) {
        measured_.push_back(measured);
        return absl::OkStatus();
      });
      options.hooks.push_back(&*periodic);
    }
    if (count_ != nullptr) options.hooks.push_back(count_);
    if (newest->has_value()) {
      status = Restore(coordinator, *job, **newest);
      if (!status.ok()) return status;
      options.first_step = (*newest)->index().step;
      if (periodic.has_value()) periodic->LoadState((*newest)->index().loop);
    }
    first_steps_.push_back(options.first_step);
    Checkpointer checkpointer(store, {}, options_, options.first_step, RealClock(),
                              [this](const std::string& text) { warnings_.push_back(text); });
    options.checkpointer = &checkpointer;
    options.stop = stop_;
    auto result = Train(coordinator, *job, options, [this](const TrainProgress&) {
      if (count_ != nullptr) ++count_->steps;
    });
    summary_ = checkpointer.summary();
    return result;
  }

  // An undisturbed run in a folder of its own.
  TrainResult Undisturbed(const Way& way = {}) {
    const std::string root = std::exchange(root_, absl::StrCat(root_, "/undisturbed"));
    const auto result = TrainTo(kSteps, way);
    std::filesystem::remove_all(std::exchange(root_, root));
    EXPECT_TRUE(result.ok()) << result.status();
    first_steps_.clear();
    warnings_.clear();
    return result.ok() ? *result : TrainResult();
  }

  static void ExpectSame(const absl::StatusOr<TrainResult>& result, const TrainResult& expected) {
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->parameters.size(), expected.parameters.size());
    for (const auto& [name, tensor] : expected.parameters) {
      EXPECT_TRUE(BitwiseEqual(result->parameters.at(name), tensor)) << name;
    }
    ASSERT_EQ(result->averages.size(), expected.averages.size());
    for (const auto& [name, tensor] : expected.averages) {
      EXPECT_TRUE(BitwiseEqual(result->averages.at(name), tensor)) << name;
    }
  }

  // From one change to the disk to the next one that is disturbed: each on the CPU, some on other
  // devices, which take much longer for a run.
  static int Stride() { return GetParam() == testing::kOnCpu ? 1 : 5; }

  std::vector<int64_t> Saved() {
    return *CheckpointStore(RealFileSystem(), RealFolders(), root_).Steps();
  }

  testing::FakeFileSystem files_;
  testing::FaultyDisk disk_;
  DataSpec data_spec_;
  JobSpec spec_;
  CheckpointOptions options_;
  EvaluationOptions evaluate_;
  double average_decay_ = 0;
  std::function<bool()> stop_;
  StepCount* count_ = nullptr;  // borrowed
  std::string root_;
  std::vector<std::string> notes_;
  std::vector<std::string> warnings_;
  std::vector<int64_t> first_steps_;
  std::vector<Measurement> measured_;
  CheckpointSummary summary_;
};

INSTANTIATE_TEST_SUITE_P(Devices, CheckpointerTest, testing::JobDevices(), testing::JobDeviceName);

TEST_P(CheckpointerTest, SavesWhenItIsDueAndAtTheEnd) {
  ASSERT_TRUE(TrainTo(kSteps).ok());
  EXPECT_THAT(Saved(), ElementsAre(4, 8, 11));
  EXPECT_EQ(summary_.written, 3);
  EXPECT_EQ(summary_.failed, 0);
  EXPECT_EQ(summary_.last_step, 11);
  EXPECT_GT(summary_.bytes, 0);
  EXPECT_THAT(warnings_, IsEmpty());
}

// Before it begins one, and once all parts of one are there.
TEST_P(CheckpointerTest, ARunThatHasASuccessorWritesNothingMore) {
  for (const int allowed : {2, 3}) {
    SCOPED_TRACE(allowed);
    std::atomic<int> asked{0};
    options_.may_write = [&asked, allowed] {
      return ++asked > allowed ? absl::PermissionDeniedError("another has the folder")
                               : absl::OkStatus();
    };
    const absl::Status ended = TrainTo(kSteps).status();
    EXPECT_EQ(ended.code(), absl::StatusCode::kPermissionDenied) << ended;
    EXPECT_THAT(Saved(), ElementsAre(4));
    EXPECT_THAT(warnings_, IsEmpty());
    const auto left = RealFileSystem().ListDirectory(root_);
    ASSERT_TRUE(left.ok()) << left.status();
    EXPECT_THAT(*left, ElementsAre("step-00000004"));
    std::filesystem::remove_all(root_ + "/step-00000004");
  }
}

TEST_P(CheckpointerTest, KeepsAsManyAsAsked) {
  options_.every_steps = 1;
  options_.keep = 2;
  ASSERT_TRUE(TrainTo(kSteps).ok());
  EXPECT_THAT(Saved(), ElementsAre(10, 11));
  EXPECT_EQ(summary_.written, 11);
}

// The record of a step has the state after that step, and not that of where a stretch began.
TEST_P(CheckpointerTest, WhatStepsChangeIsSavedAsItIsAtTheirEnd) {
  StepCount count;
  count_ = &count;
  options_.keep = 3;
  ASSERT_TRUE(TrainTo(kSteps).ok());
  ASSERT_THAT(Saved(), ElementsAre(4, 8, 11));
  CheckpointStore store(RealFileSystem(), RealFolders(), root_);
  for (const int64_t step : {4, 8, 11}) {
    const auto saved = Checkpoint::Open(RealFileSystem(), store.PathOf(step));
    ASSERT_TRUE(saved.ok()) << saved.status();
    EXPECT_EQ(saved->index().loop.at("steps"), static_cast<double>(step));
  }
}

// The fifth step is in the second epoch: the order of its samples is that of the run as a whole.
TEST_P(CheckpointerTest, AResumedRunEndsWithTheSameBits) {
  Plan split;
  split.zero = 2;
  for (const Way& way : {Way{1, {}}, Way{2, {}}, Way{2, split}}) {
    SCOPED_TRACE(absl::StrCat(way.workers, " workers, zero=", way.plan.zero));
    const TrainResult expected = Undisturbed(way);
    for (const int64_t steps : {3, 5, 9}) ASSERT_TRUE(TrainTo(steps, way).ok());
    ExpectSame(TrainTo(kSteps, way), expected);
    EXPECT_THAT(first_steps_, ElementsAre(0, 3, 5, 9));
    TearDown();
    std::filesystem::create_directory(root_);
  }
}

TEST_P(CheckpointerTest, FourWorkersAreResumedByOneTwoAndThree) {
  Plan strict;
  strict.strict = true;
  strict.micro_batches = 4;
  const TrainResult expected = Undisturbed({1, strict});
  for (const int workers : {1, 2, 3}) {
    SCOPED_TRACE(workers);
    ASSERT_TRUE(TrainTo(6, {4, strict}).ok());
    ExpectSame(TrainTo(kSteps, {workers, strict}), expected);
    TearDown();
    std::filesystem::create_directory(root_);
    first_steps_.clear();
  }
}

// What is split otherwise is cut anew: by columns over two, whole on one, by rows over three.
TEST_P(CheckpointerTest, SplitTensorsAreCutAnew) {
  Plan tensor;
  tensor.mesh.tensor = 2;
  tensor.tensor_shardings = {{"v", AxisSharding::Split(1)}, {"w", AxisSharding::Split(0)}};
  Plan rows;
  rows.zero = 3;
  ASSERT_TRUE(TrainTo(4, {2, tensor}).ok());
  const auto saved = Checkpoint::Open(RealFileSystem(), absl::StrCat(root_, "/step-00000004"));
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->index().Find("v")->parts.size(), 2u);
  int states = 0;
  for (const CheckpointTensor& tensor : saved->index().tensors) {
    if (tensor.slot_of != "v") continue;
    ++states;
    EXPECT_EQ(tensor.parts.size(), 2u) << tensor.name;
  }
  EXPECT_EQ(states, 2) << "both moments of Adam";
  EXPECT_EQ(saved->index().Find("b")->parts.size(), 1u) << "replicated: written once";
  const std::vector<Way> ways = {{1, {}}, {3, rows}, {2, tensor}};
  for (const Way& way : ways) {
    // No step is left: the weights are those of the checkpoint.
    const auto restored = TrainTo(4, way);
    ASSERT_TRUE(restored.ok()) << restored.status();
    for (const auto& [name, value] : restored->parameters) {
      EXPECT_TRUE(BitwiseEqual(value, *saved->Read(name))) << name << " on " << way.workers;
    }
    ASSERT_TRUE(TrainTo(5, way).ok());
    std::filesystem::remove_all(absl::StrCat(root_, "/step-00000005"));
  }
}

TEST_P(CheckpointerTest, ACheckpointOfAnotherJobIsRefused) {
  ASSERT_TRUE(TrainTo(4).ok());
  const std::string path = absl::StrCat(root_, "/step-00000004/index.json");
  auto index = CheckpointIndex::FromJson(*RealFileSystem().ReadFile(path), path);
  ASSERT_TRUE(index.ok());
  index->tensors.erase(index->tensors.begin());  // b
  ASSERT_TRUE(RealFileSystem().WriteFileAtomically(path, index->ToJson()).ok());
  const auto result = TrainTo(5);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("it lacks 'b'"));
}

// A kill at any change to the disk, of the process and its workers at once: what is left resumes.
TEST_P(CheckpointerTest, WhereverARunIsKilledTheResumedOneEndsWithTheSameBits) {
  const Way way{2, {}};
  const TrainResult expected = Undisturbed(way);
  int kills = 0;
  for (bool undisturbed = false; !undisturbed; kills += Stride()) {
    SCOPED_TRACE(kills);
    TearDown();
    std::filesystem::create_directory(root_);
    disk_.DieAt(kills);
    // It goes on to its end, as far as it can: nothing it does reaches the disk any more.
    ASSERT_TRUE(TrainTo(9, way).ok());
    undisturbed = disk_.changes() <= kills;
    disk_.DieAt(-1);
    CheckpointStore store(RealFileSystem(), RealFolders(), root_);
    ASSERT_TRUE(store.CleanUp().ok());
    ExpectSame(TrainTo(kSteps, way), expected);
    EXPECT_THAT(notes_, IsEmpty()) << "a checkpoint that was named is whole";
  }
  EXPECT_GT(kills, 15);
}

TEST_P(CheckpointerTest, AFullDiskStopsNothingButTheCheckpoint) {
  const TrainResult expected = Undisturbed();
  disk_.FailWith(ENOSPC);
  ExpectSame(TrainTo(kSteps), expected);
  EXPECT_EQ(summary_.written, 0);
  // Three are due; on a slow machine some are tried again.
  EXPECT_GE(summary_.failed, 3);
  ASSERT_GE(warnings_.size(), 3u);
  EXPECT_THAT(warnings_[0], AllOf(HasSubstr("no checkpoint of step 4"), HasSubstr("No space left"),
                                  HasSubstr("training goes on")));
  EXPECT_THAT(Saved(), IsEmpty());
}

// One change to the disk fails, and later ones do not: the run ends as if nothing had been, and so
// does one that goes on from what was saved.
TEST_P(CheckpointerTest, AnErrorAtAnyChangeCostsACheckpointAndNoStep) {
  const Way way{2, {}};
  const TrainResult expected = Undisturbed(way);
  int change = 0;
  for (bool untouched = false; !untouched; change += Stride()) {
    SCOPED_TRACE(change);
    TearDown();
    std::filesystem::create_directory(root_);
    disk_.FailOnce(change, change % 2 == 0 ? EIO : ENOSPC);
    warnings_.clear();
    ASSERT_TRUE(TrainTo(9, way).ok());
    untouched = disk_.changes() <= change;
    EXPECT_EQ(warnings_.empty(), untouched);
    disk_.FailOnce(-1, 0);
    ExpectSame(TrainTo(kSteps, way), expected);
    EXPECT_THAT(notes_, IsEmpty()) << "a checkpoint that was named is whole";
  }
  EXPECT_GT(change, 15);
}

// Any bit of any file of a checkpoint that a job has written, ten thousand of them.
TEST_P(CheckpointerTest, OfTenThousandFlippedBitsEachIsFound) {
  ASSERT_TRUE(TrainTo(4, {2, {}}).ok());
  const std::string folder = absl::StrCat(root_, "/step-00000004");
  std::vector<std::pair<std::string, std::string>> files;
  const std::vector<std::string> names = RealFileSystem().ListDirectory(folder).value();
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(folder, "/", name);
    files.emplace_back(path, *RealFileSystem().ReadFile(path));
  }
  ASSERT_GE(files.size(), 2u);
  std::mt19937_64 random(24);
  const int flips = GetParam() == testing::kOnCpu ? 10000 : 100;
  int found = 0;
  for (int flip = 0; flip < flips; ++flip) {
    const auto& [path, bytes] = files[random() % files.size()];
    const size_t at = random() % bytes.size();
    const char damaged = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at)).write(&damaged, 1).flush();
    const auto checkpoint = Checkpoint::Open(RealFileSystem(), folder);
    const absl::Status status = checkpoint.ok() ? checkpoint->Verify() : checkpoint.status();
    if (absl::IsDataLoss(status)) ++found;
    file.seekp(static_cast<std::streamoff>(at)).write(&bytes[at], 1).flush();
    ASSERT_TRUE(file.good());
  }
  EXPECT_EQ(found, flips);
  const auto whole = Checkpoint::Open(RealFileSystem(), folder);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(whole->Verify().ok());
}

TEST_P(CheckpointerTest, WhatCouldNotBeWrittenIsTriedAgainAfterLongerAndLonger) {
  testing::FakeClock clock;
  Coordinator nobody(std::vector<WorkerClient*>{});
  CheckpointStore store(disk_.files(), disk_.folders(), root_);
  options_.every_steps = 100;
  Checkpointer checkpointer(store, {}, options_, 0, clock,
                            [this](const std::string& text) { warnings_.push_back(text); });
  ASSERT_EQ(checkpointer.Due(100, 150), 100);
  disk_.FailWith(ENOSPC);
  int64_t step = 100;
  for (const int64_t seconds : {10, 20, 40, 80, 160, 300, 300}) {
    const auto folder = checkpointer.Begin(nobody, step, {});
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_EQ(*folder, "");
    EXPECT_THAT(warnings_.back(), HasSubstr(absl::StrCat("tried again in ", seconds, " s")));
    clock.Advance(absl::Seconds(seconds) - absl::Milliseconds(1));
    EXPECT_EQ(checkpointer.Due(step + 1, 200), std::nullopt) << seconds;
    clock.Advance(absl::Milliseconds(1));
    EXPECT_EQ(checkpointer.Due(step, 200), std::nullopt) << "nothing has changed since";
    EXPECT_EQ(checkpointer.Due(step + 1, 200), step + 1) << seconds;
    ++step;
  }
  EXPECT_EQ(checkpointer.summary().failed, 7);
  disk_.FailWith(0);
  const auto folder = checkpointer.Begin(nobody, step, {});
  ASSERT_TRUE(folder.ok());
  EXPECT_TRUE(std::filesystem::exists(*folder));
  clock.Advance(absl::Seconds(1000));
  EXPECT_EQ(checkpointer.Due(step + 1, 200), std::nullopt) << "it is being written";
}

TEST_P(CheckpointerTest, ADamagedCheckpointIsPassedOver) {
  const TrainResult expected = Undisturbed();
  ASSERT_TRUE(TrainTo(9).ok());
  EXPECT_THAT(Saved(), ElementsAre(4, 8, 9));
  for (const char* step : {"8", "9"}) {
    const std::string path = absl::StrCat(root_, "/step-0000000", step, "/rank-00000.safetensors");
    std::string bytes = *RealFileSystem().ReadFile(path);
    bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 4);
    ASSERT_TRUE(RealFileSystem().WriteFileAtomically(path, bytes).ok());
  }
  ExpectSame(TrainTo(kSteps), expected);
  EXPECT_THAT(first_steps_, ElementsAre(0, 4));
  EXPECT_EQ(notes_.size(), 2u);
}

TEST_P(CheckpointerTest, AStopSavesAndEnds) {
  int asked = 0;
  stop_ = [&asked] { return ++asked > 1; };
  const TrainResult expected = Undisturbed();
  asked = 0;
  const auto stopped = TrainTo(kSteps);
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  EXPECT_TRUE(stopped->stopped);
  EXPECT_GT(stopped->steps, 0);
  EXPECT_LT(stopped->steps, kSteps);
  EXPECT_EQ(Saved().back(), stopped->steps);
  EXPECT_EQ(expected.steps, stopped->steps) << "the first stretch is one step";
}

TEST_P(CheckpointerTest, SaysWhatDiffers) {
  CheckpointJob saved;
  saved.data = R"({"batch":4,"files":[{"checksum":1,"path":"a"}]})";
  saved.flags = {{"--lr", "0.1"}, {"--beta1", "0.8"}, {"--optimizer", "adam"}};
  CheckpointJob now = saved;
  now.data = R"({"batch":8,"files":[{"checksum":1,"path":"b"}]})";
  now.flags = {{"--lr", "0.2"}, {"--loss", "mse"}, {"--optimizer", "adam"}};
  now.model_checksum = 1;
  now.workers = 4;
  EXPECT_THAT(JobDifferences(saved, now),
              ElementsAre("the model file has changed", "the data's batch was 4, is 8",
                          "--beta1 was 0.8, is not given", "--loss was not given, is mse",
                          "--lr was 0.1, is 0.2"));
  EXPECT_THAT(JobDifferences(saved, saved), IsEmpty());
}

// Reading ahead changes no sample, so a job may go on with more threads than it began with.
TEST_P(CheckpointerTest, HowDataAreReadAheadMayDiffer) {
  CheckpointJob saved;
  saved.data = R"({"batch":4,"prefetch":-1,"reader_threads":2})";
  CheckpointJob now;
  now.data = R"({"batch":4,"prefetch":8,"reader_threads":1})";
  EXPECT_THAT(JobDifferences(saved, now), IsEmpty());
}

TEST_P(CheckpointerTest, AveragesGoOnWhereTheyWere) {
  average_decay_ = 0.9;
  const TrainResult expected = Undisturbed();
  ASSERT_EQ(expected.averages.size(), expected.parameters.size());
  EXPECT_FALSE(BitwiseEqual(expected.averages.at("w"), expected.parameters.at("w")));
  ASSERT_TRUE(TrainTo(6).ok());
  ExpectSame(TrainTo(kSteps), expected);
  EXPECT_THAT(first_steps_, ElementsAre(0, 6));
}

TEST_P(CheckpointerTest, EvaluationsWithinARunChangeNoBit) {
  const Way way{2, {}};
  const TrainResult expected = Undisturbed(way);
  evaluate_.every = 3;
  evaluate_.metric = "accuracy";
  ExpectSame(TrainTo(kSteps, way), expected);
  ASSERT_EQ(measured_.size(), 3u);
  EXPECT_EQ(measured_[1].step, 6);
  EXPECT_TRUE(measured_[0].is_best);
  EXPECT_GT(measured_[2].metrics.at("loss"), 0);
}

TEST_P(CheckpointerTest, ARuleEndsTheRun) {
  evaluate_.every = 2;
  evaluate_.metric = "loss";
  evaluate_.until = *ParseStopRule("loss<1000");
  const auto result = TrainTo(kSteps);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->steps, 2);
  EXPECT_THAT(result->end, HasSubstr("loss<1000: it is "));
  EXPECT_THAT(Saved(), ElementsAre(2));
}

// Patience is counted over a resume: the loop's state is in the checkpoint.
TEST_P(CheckpointerTest, PatienceOutlivesAKill) {
  evaluate_.every = 2;
  evaluate_.metric = "accuracy";
  evaluate_.patience = 2;
  options_.every_steps = 2;
  const auto whole = TrainTo(kSteps);
  ASSERT_TRUE(whole.ok());
  const std::vector<Measurement> all = std::exchange(measured_, {});
  const int64_t end = whole->steps;
  TearDown();
  std::filesystem::create_directory(root_);
  for (int64_t steps = 2; steps < end; steps += 2) ASSERT_TRUE(TrainTo(steps).ok());
  const auto resumed = TrainTo(kSteps);
  ASSERT_TRUE(resumed.ok());
  EXPECT_EQ(resumed->steps, end);
  ASSERT_EQ(measured_.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].is_best, measured_[i].is_best) << i;
    EXPECT_EQ(all[i].metrics, measured_[i].metrics) << i;
  }
}

TEST(StopRuleText, IsParsed) {
  const auto rule = ParseStopRule("accuracy>=0.95");
  ASSERT_TRUE(rule.ok());
  EXPECT_EQ(rule->ToString(), "accuracy>=0.95");
  EXPECT_TRUE(rule->Holds(0.95));
  EXPECT_FALSE(rule->Holds(0.9499));
  EXPECT_FALSE(ParseStopRule("loss<0.1")->Holds(0.1));
  EXPECT_TRUE(ParseStopRule("loss<=0.1")->Holds(0.1));
  for (const char* bad : {"", "accuracy", ">=1", "loss<", "loss<x", "loss=1", "loss<nan"}) {
    const auto status = ParseStopRule(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr("like accuracy>=0.95"));
  }
}

}  // namespace
}  // namespace weft
