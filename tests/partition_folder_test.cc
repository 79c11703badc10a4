// Folders of partitions (training/job/partition_folder.h): what is read is what was written, for
// any plan, and what does not go together is refused by name.
#include "training/job/partition_folder.h"

#include <cerrno>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "distributed/grpc/partition_wire.h"
#include "executor/program/planned_memory.h"
#include "gmock/gmock.h"
#include "graph/cluster_spec.h"
#include "gtest/gtest.h"
#include "onnx_import/testing/mutate.h"
#include "ops/node_runner.h"
#include "placement/completion/plan_completion.h"
#include "placement/cost/cost_model.h"
#include "placement/files/plan_file.h"
#include "placement/partition/partition_summary.h"
#include "placement/partition/partitioner.h"
#include "placement/simulation/plan_prediction.h"
#include "platform/status_macros.h"
#include "platform/testing/fake_file_system.h"
#include "tensor/device.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/random_plan.h"
#include "training/graph/training_graph.h"
#include "training/verification/value_capture.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kBatch = 13;
constexpr int64_t kLastBatch = 5;

// The programs of a training job of the model under a plan as a person gives it.
absl::StatusOr<StoredPrograms> ProgramsOf(const std::string& name, Plan plan) {
  WEFT_ASSIGN_OR_RETURN(const EquivalenceModel model, BuildEquivalenceModel(name, kBatch));
  WEFT_ASSIGN_OR_RETURN(const Graph graph, BuildTrainingGraph(model.graph, TrainingSpec()));
  StoredPrograms programs;
  programs.workers = plan.mesh.size();
  WEFT_ASSIGN_OR_RETURN(programs.plan, CompletePlan(graph, ClusterSpec::Local(programs.workers, 1),
                                                    std::move(plan), kBatch));
  programs.flags = {{"--optimizer", "sgd"}};
  for (const int64_t batch : {kBatch, kLastBatch}) {
    WEFT_ASSIGN_OR_RETURN(
        std::vector<Partition> partitions,
        PartitionStep(graph, programs.plan, {/*training=*/true, batch}, CpuNodeEvaluator()));
    programs.programs.push_back(
        {ProgramName(kTrainingSteps, {batch, 0}), {batch, 0}, std::move(partitions)});
  }
  return programs;
}

// The bytes of the partition as a worker has it that got it by wire.
std::string Sent(const Partition& partition) {
  const auto received = DecodePartition(EncodePartition(partition).value());
  EXPECT_TRUE(received.ok()) << received.status();
  return received.ok() ? EncodePartition(*received).value() : "";
}

void ExpectSame(const StoredPrograms& a, const StoredPrograms& b) {
  EXPECT_EQ(a.workers, b.workers);
  EXPECT_TRUE(FlagDifferences(a.flags, b.flags).empty());
  EXPECT_EQ(PlanToYaml(a.plan), PlanToYaml(b.plan));
  ASSERT_EQ(a.programs.size(), b.programs.size());
  for (size_t i = 0; i < a.programs.size(); ++i) {
    EXPECT_EQ(a.programs[i].name, b.programs[i].name);
    EXPECT_EQ(a.programs[i].shape, b.programs[i].shape);
    ASSERT_EQ(a.programs[i].partitions.size(), b.programs[i].partitions.size());
    for (size_t rank = 0; rank < a.programs[i].partitions.size(); ++rank) {
      const Partition& x = a.programs[i].partitions[rank];
      const Partition& y = b.programs[i].partitions[rank];
      // What a worker gets by wire: ids of values ascend with their nodes from then on.
      EXPECT_TRUE(Sent(x) == Sent(y)) << "rank " << rank;
      EXPECT_EQ(x.begin.DebugString(), y.begin.DebugString());
      EXPECT_EQ(x.end.DebugString(), y.end.DebugString());
      ASSERT_EQ(x.micro.size(), y.micro.size());
      for (size_t graph = 0; graph < x.micro.size(); ++graph) {
        EXPECT_EQ(x.micro[graph].DebugString(), y.micro[graph].DebugString());
      }
    }
  }
}

void ExpectComesBack(const StoredPrograms& programs) {
  FakeFileSystem files;
  const auto written = WritePartitionFolder(files, "/dump", programs);
  ASSERT_TRUE(written.ok()) << written.status();
  const auto back = ReadPartitionFolder(files, "/dump");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->folder, "/dump");
  ExpectSame(*back, programs);
}

class GivenPlans : public ::testing::TestWithParam<const char*> {};

TEST_P(GivenPlans, ComeBackTheSame) {
  const auto plan = ParseParallel(GetParam());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto programs = ProgramsOf("mlp", *plan);
  ASSERT_TRUE(programs.ok()) << programs.status();
  ExpectComesBack(*programs);
}

INSTANTIATE_TEST_SUITE_P(All, GivenPlans,
                         ::testing::Values("dp=1", "dp=2", "dp=3,zero=3", "pp=2,micro=4",
                                           "pp=2,micro=4,schedule=1f1b", "dp=2,recompute=2"));

TEST(StrictPlan, ComesBackTheSame) {
  Plan plan;
  plan.mesh.data = 2;
  plan.strict = true;
  plan.micro_batches = 4;
  const auto programs = ProgramsOf("lenet", std::move(plan));
  ASSERT_TRUE(programs.ok()) << programs.status();
  ExpectComesBack(*programs);
}

class DrawnPlans : public ::testing::TestWithParam<int> {};

TEST_P(DrawnPlans, ComeBackTheSame) {
  const std::vector<std::string> names = EquivalenceModelNames();
  const std::string& name = names[static_cast<size_t>(GetParam()) % names.size()];
  const auto model = BuildEquivalenceModel(name, kBatch);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto programs =
      ProgramsOf(name, RandomPlan(model->graph, static_cast<uint64_t>(GetParam())));
  ASSERT_TRUE(programs.ok()) << programs.status();
  ExpectComesBack(*programs);
}

INSTANTIATE_TEST_SUITE_P(Seeds, DrawnPlans, ::testing::Range(0, 24));

// Another number in one to three places.
std::string MutateNumbers(std::string text, std::mt19937& random) {
  const char* const numbers[] = {"-1", "0", "1", "2", "7", "2147483647", "4611686018427387904"};
  for (uint32_t count = 1 + random() % 3; count > 0; --count) {
    const size_t begin = text.find_first_of("0123456789", random() % text.size());
    if (begin == std::string::npos) continue;
    const size_t end = text.find_first_not_of("0123456789", begin);
    text.replace(begin, end - begin, numbers[random() % std::size(numbers)]);
  }
  return text;
}

// What a job does with partitions before any worker sees them, and what a worker does first.
void Exercise(StoredPrograms& stored) {
  for (const JobProgram& program : stored.programs) {
    const auto costs = CostModel::OfSpec(ClusterSpec::Local(stored.workers, 1));
    ASSERT_TRUE(costs.ok()) << costs.status();
    PredictPlan(program.partitions, *costs, stored.plan).IgnoreError();
    for (const Partition& partition : program.partitions) {
      Summarize(partition).status().IgnoreError();
      PlanProgram(partition, CpuDevice(), int64_t{1} << 30).status().IgnoreError();
      Partition capturing = partition.Clone();
      CaptureValues(capturing);
    }
  }
}

class PartitionFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Plan plan;
    plan.mesh.data = 2;
    auto programs = ProgramsOf("mlp", plan);
    ASSERT_TRUE(programs.ok()) << programs.status();
    programs_ = *std::move(programs);
    Write();
  }
  void Write() { ASSERT_TRUE(WritePartitionFolder(files_, "/dump", programs_).ok()); }
  void Replace(const std::string& path, const std::string& old_text, const std::string& new_text) {
    const std::string text = files_.ReadFile(path).value();
    ASSERT_THAT(text, HasSubstr(old_text));
    ASSERT_TRUE(
        files_.WriteFileAtomically(path, absl::StrReplaceAll(text, {{old_text, new_text}})).ok());
  }
  std::string Error() {
    const auto read = ReadPartitionFolder(files_, "/dump");
    EXPECT_FALSE(read.ok());
    return std::string(read.status().message());
  }

  FakeFileSystem files_;
  StoredPrograms programs_;
};

TEST_F(PartitionFolderTest, AMissingFileIsNamed) {
  ASSERT_TRUE(files_.RemoveFile("/dump/train-5/rank-1/partition.textproto").ok());
  EXPECT_THAT(Error(), HasSubstr("/dump/train-5/rank-1/partition.textproto"));
  Write();
  ASSERT_TRUE(files_.RemoveFile("/dump/job.json").ok());
  EXPECT_THAT(Error(), HasSubstr("/dump/job.json"));
}

TEST_F(PartitionFolderTest, RanksAreThoseOfThePlan) {
  Replace("/dump/plan.yaml", "data: 2", "data: 3");
  Replace("/dump/plan.yaml", "workers: [0, 1]", "workers: [0, 1, 2]");
  EXPECT_THAT(Error(), AllOf(HasSubstr("/dump/plan.yaml: 'workers'"), HasSubstr("2 workers")));
  Replace("/dump/job.json", "\"workers\": 2", "\"workers\": 3");
  EXPECT_THAT(Error(), HasSubstr("/dump/train-13/rank-2 is missing: the plan dp=3"));
  Write();
  ASSERT_TRUE(files_.CreateDirectories("/dump/train-5/rank-2").ok());
  EXPECT_THAT(Error(), HasSubstr("/dump/train-5 has folders of 3 ranks, the plan dp=2"));
}

TEST_F(PartitionFolderTest, PartitionsAreOfTheirFolder) {
  const std::string text = "/dump/train-13/rank-1/partition.textproto";
  Replace(text, "\nrank: 1\n", "\nrank: 0\n");
  EXPECT_THAT(Error(), HasSubstr(text + ": its rank is 0, expected 1, as the folder"));
  Write();
  Replace(text, "global_batch: 13", "global_batch: 14");
  EXPECT_THAT(Error(), HasSubstr("its global_batch is 14, expected 13, as the program"));
  Write();
  Replace(text, "training: true", "training: false");
  EXPECT_THAT(Error(), HasSubstr("its training is false"));
}

TEST_F(PartitionFolderTest, ADamagedIndexIsNamed) {
  const std::vector<std::pair<std::string, std::string>> edits = {
      {"\"weft-partitions\"", "\"other\""},
      {"\"version\": 1", "\"version\": 2"},
      {"\"workers\": 2", "\"workers\": -2"},
      {"\"train/13\"", "\"train/../../etc\""},
      {"\"train/13\"", "\"train/013\""},
      {"\"train/13\"", "\"train/5\""},
      {"\"sgd\"", "7"},
      {"{", "["}};
  for (const auto& [old_text, new_text] : edits) {
    Write();
    Replace("/dump/job.json", old_text, new_text);
    EXPECT_THAT(Error(), HasSubstr("/dump/job.json: ")) << new_text;
  }
}

TEST_F(PartitionFolderTest, AnEarlierDumpIsReplacedAndABrokenOneIsNone) {
  files_.InjectError(FakeFileSystem::Operation::kWrite, ENOSPC, /*after=*/4);
  EXPECT_FALSE(WritePartitionFolder(files_, "/dump", programs_).ok());
  EXPECT_THAT(Error(), HasSubstr("/dump/job.json"));
  ExpectComesBack(programs_);
}

TEST_F(PartitionFolderTest, RanksGoTogether) {
  const std::string text = "/dump/train-13/rank-1/partition.textproto";
  Replace(text, "kind: update", "kind: begin");
  EXPECT_THAT(Error(), HasSubstr("/dump/train-13/rank-1: law 7"));
  Write();
  Replace(text, "actions { kind: forward micro_batch: 0", "actions { kind: forward micro_batch: 9");
  EXPECT_THAT(Error(), HasSubstr("/dump/train-13/rank-1: law 7"));
  Write();
  Replace(text, "samples: 6", "samples: 60");
  EXPECT_THAT(Error(), AllOf(HasSubstr("/dump/train-13/rank-1: law 2"),
                             HasSubstr("has 60 samples from 7 on")));
}

TEST_F(PartitionFolderTest, ChannelsAreTheSameAtBothEnds) {
  Plan pipeline;
  pipeline.mesh.pipeline = 2;
  auto programs = ProgramsOf("mlp", pipeline);
  ASSERT_TRUE(programs.ok()) << programs.status();
  programs_ = *std::move(programs);
  Write();
  Replace("/dump/train-13/rank-0/partition.textproto", " to: 1 value: \"", " to: 1 value: \"x");
  EXPECT_THAT(Error(), AllOf(HasSubstr("/dump/train-13"), HasSubstr("channel "),
                             HasSubstr("from rank 0 to 1 is not the same at both ends")));
}

// A damaged folder is refused, or is one that can be predicted, counted and compiled. Run it under
// asan, too.
TEST_F(PartitionFolderTest, WhatIsReadOfDamagedFilesNeverCrashes) {
  Plan pipeline;
  pipeline.mesh.pipeline = 2;
  pipeline.micro_batches = 3;
  auto programs = ProgramsOf("mlp", pipeline);
  ASSERT_TRUE(programs.ok()) << programs.status();
  programs_ = *std::move(programs);
  std::mt19937 random(7);
  int read = 0;
  for (const char* const name : {"job.json", "plan.yaml", "train-13/rank-0/partition.textproto",
                                 "train-13/rank-1/partition.textproto",
                                 "train-13/rank-1/micro-0.onnx", "train-5/rank-0/end.onnx"}) {
    Write();
    const std::string path = absl::StrCat("/dump/", name);
    const std::string whole = files_.ReadFile(path).value();
    for (int round = 0; round < 100; ++round) {
      const std::string damaged =
          round % 2 == 0 ? MutateBytes(whole, random) : MutateNumbers(whole, random);
      ASSERT_TRUE(files_.WriteFileAtomically(path, damaged).ok());
      auto stored = ReadPartitionFolder(files_, "/dump");
      if (!stored.ok()) continue;
      ++read;
      if (stored->workers > 64) continue;  // of a cluster that is large, and not wrong
      Exercise(*stored);
    }
  }
  EXPECT_GT(read, 20);
}

TEST(ProgramNameTest, ComesBackOrIsRefused) {
  for (const BatchShape& shape : {BatchShape{128, 0}, BatchShape{1, 64}}) {
    const auto key = ParseProgramName(ProgramName(kEvaluationSteps, shape));
    ASSERT_TRUE(key.ok()) << key.status();
    EXPECT_EQ(key->kind, kEvaluationSteps);
    EXPECT_EQ(key->shape, shape);
  }
  for (const char* const wrong : {"", "train", "train/", "train/0", "train/-1", "train/1x", "x/1",
                                  "train/1x2x3", "train/1x0", "train/99999999999999999999"}) {
    EXPECT_FALSE(ParseProgramName(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace weft::testing
