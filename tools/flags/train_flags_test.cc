#include "tools/flags/train_flags.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/cost/cluster_profile.h"
#include "placement/cost/profile_file.h"
#include "placement/files/plan_file.h"
#include "platform/cpu_info.h"
#include "platform/file_system.h"
#include "tools/console/exit_code.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// Flags of a job that is whole, and more.
class TrainFlagsTest : public ::testing::Test {
 protected:
  absl::StatusOr<TrainingSpec> Parse(std::vector<std::string> more) {
    flags_.Add(app_);
    more.insert(more.begin(), {"m.onnx", "--data", "x=x.npy"});
    app_.parse(std::vector<std::string>(more.rbegin(), more.rend()));
    return flags_.Training();
  }
  std::string Refusal(std::vector<std::string> more) {
    const absl::Status status = Parse(std::move(more)).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
    return std::string(status.message());
  }

  CLI::App app_;
  TrainFlags flags_;
};

TEST_F(TrainFlagsTest, AWholeJob) {
  const auto training = Parse({"--labels", "y.npy", "--steps", "3", "-o", "out.onnx"});
  ASSERT_TRUE(training.ok()) << training.status();
  EXPECT_FALSE(training->report_gradients);
  EXPECT_EQ(flags_.results().model, "out.onnx");
  EXPECT_EQ(flags_.results().metrics, "");
  EXPECT_TRUE(flags_.shuffles());
  EXPECT_FALSE(flags_.prints_json());
}

TEST_F(TrainFlagsTest, StatesAreCopiedEverySoManySteps) {
  const auto training =
      Parse({"--labels", "y.npy", "--steps", "3", "-o", "out.onnx", "--replicate", "every=10"});
  ASSERT_TRUE(training.ok()) << training.status();
  EXPECT_EQ(flags_.loop().replicate_every(), 10);
}

TEST_F(TrainFlagsTest, CopiesNeedANumberOfSteps) {
  EXPECT_THAT(Refusal({"--labels", "y.npy", "--steps", "3", "-o", "out.onnx", "--replicate", "10"}),
              HasSubstr("--replicate '10' says no number of steps; expected every=N"));
}

TEST_F(TrainFlagsTest, CopiesAfterNoStepAreNone) {
  EXPECT_THAT(
      Refusal({"--labels", "y.npy", "--steps", "3", "-o", "out.onnx", "--replicate", "every=0"}),
      HasSubstr("says no number of steps"));
}

TEST_F(TrainFlagsTest, GradientsThatAreSavedAreReported) {
  const auto training = Parse({"--labels", "y.npy", "--epochs", "2", "--save-gradients", "g",
                               "--no-shuffle", "--output", "json"});
  ASSERT_TRUE(training.ok()) << training.status();
  EXPECT_TRUE(training->report_gradients);
  EXPECT_EQ(flags_.results().gradients, "g");
  EXPECT_FALSE(flags_.shuffles());
  EXPECT_TRUE(flags_.prints_json());
}

TEST_F(TrainFlagsTest, WhatGpusMayRoundAndLeaveToTheHost) {
  ASSERT_TRUE(Parse({"--labels", "y", "--steps", "1", "--tf32", "--cpu-fallback", "refuse"}).ok());
  const auto spec = flags_.job().Job();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->plan.tf32);
  EXPECT_EQ(spec->cpu_fallback, CpuFallback::kRefuse);
  // A run that goes on must round as the one before did; where it computes may differ.
  const FlagRecord given = LoopFlags::GivenFlags(app_);
  EXPECT_TRUE(given.contains("--tf32"));
  EXPECT_FALSE(given.contains("--cpu-fallback"));
}

TEST_F(TrainFlagsTest, WithoutAWordGpusRoundNothing) {
  ASSERT_TRUE(Parse({"--labels", "y", "--steps", "1"}).ok());
  const auto spec = flags_.job().Job();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->plan.tf32);
  EXPECT_EQ(spec->cpu_fallback, CpuFallback::kSmallShare);
}

TEST_F(TrainFlagsTest, ARunWantsAnEnd) {
  EXPECT_THAT(Refusal({"--labels", "y.npy"}), HasSubstr("give --steps N or --epochs N"));
}

TEST_F(TrainFlagsTest, ARunWantsLabels) {
  EXPECT_EQ(Refusal({"--steps", "3", "--loss", "mse"}), "--labels is required");
}

TEST_F(TrainFlagsTest, AModelsOwnAlgorithmWantsNoneButIsNotMeasured) {
  EXPECT_THAT(Refusal({"--steps", "3", "--optimizer", "model", "--eval-every", "2"}),
              HasSubstr("goes without --eval-every and --save-gradients"));
}

TEST_F(TrainFlagsTest, AModelsOwnAlgorithmNeedsNoLabels) {
  const auto training = Parse({"--steps", "3", "--optimizer", "model"});
  ASSERT_TRUE(training.ok()) << training.status();
  EXPECT_TRUE(training->model_training_info);
}

TEST_F(TrainFlagsTest, HalfPrecisionSurvivesInfinities) {
  EXPECT_THAT(Refusal({"--labels", "y", "--steps", "3", "--precision", "fp16", "--check-numerics"}),
              HasSubstr("give one of them"));
}

TEST_F(TrainFlagsTest, ProgramsOfOneBatchChooseNone) {
  EXPECT_THAT(
      Refusal({"--labels", "y", "--steps", "3", "--batch", "auto:64", "--partitions", "dump"}),
      HasSubstr("the programs of --partitions are for one"));
}

// They were planned with the flag or without it, and train with --partitions has none.
TEST_F(TrainFlagsTest, DumpedPartitionsSayWhetherAttentionIsJoined) {
  const std::string folder = ::testing::TempDir() + "/dumped";
  ASSERT_TRUE(RealFileSystem().CreateDirectories(folder).ok());
  const std::string cluster = folder + "/gpu.yaml";
  std::ofstream(cluster) << "hosts: [{name: a, workers: [{address: 'unix:/a', device: cuda}]}]\n";
  for (const std::string choice : {"on", "off"}) {
    std::ofstream(folder + "/job.json")
        << R"({"format": "weft-partitions", "version": 1, "workers": 1, "programs": ["train/8"],)"
        << R"("flags": {"--cudnn": ")" << choice << R"("}})";
    CLI::App app;
    TrainFlags flags;
    flags.Add(app);
    std::vector<std::string> given = {"m.onnx", "--data",       "x=x.npy", "--labels",
                                      "y",      "--steps",      "1",       "--cluster",
                                      cluster,  "--partitions", folder};
    app.parse(std::vector<std::string>(given.rbegin(), given.rend()));
    const auto training = flags.Training();
    ASSERT_TRUE(training.ok()) << training.status();
    EXPECT_EQ(training->joins_attention, choice == "on") << choice;
  }
}

TEST_F(TrainFlagsTest, AveragesThatAreWrittenAreKept) {
  EXPECT_THAT(Refusal({"--labels", "y", "--steps", "3", "--ema-out", "a.onnx"}),
              HasSubstr("--ema-out needs --ema DECAY"));
}

TEST_F(TrainFlagsTest, AdaptersThatAreWrittenAreThere) {
  ASSERT_TRUE(Parse({"--labels", "y", "--steps", "3", "--adapters-out", "a.safetensors"}).ok());
  EXPECT_TRUE(flags_.CheckAdapters(true).ok());
  const absl::Status status = flags_.CheckAdapters(false);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--adapters-out needs --lora"));
}

// Five workers in two shares: two each, with the threads that each of five has.
TEST_F(TrainFlagsTest, AShareOfLocalWorkersIsAsIfItWereAlone) {
  ASSERT_TRUE(Parse({"--labels", "y", "--steps", "3", "--local", "5"}).ok());
  const auto all = flags_.job().Job();
  ASSERT_TRUE(all.ok()) << all.status();
  flags_.TakeShare({1, 2, 2});
  const auto share = flags_.job().Job();
  ASSERT_TRUE(share.ok()) << share.status();
  ASSERT_EQ(share->cluster.workers.size(), 2u);
  EXPECT_EQ(share->cluster.workers[0], all->cluster.workers[0]);
  EXPECT_EQ(share->cluster.workers[1], all->cluster.workers[1]);
  EXPECT_EQ(all->memory_per_worker, 0);
  EXPECT_GT(share->memory_per_worker, 0);
  EXPECT_EQ(share->search.host_memory, all->search.host_memory / 2);
}

TEST_F(TrainFlagsTest, AShareOfAClusterHasItsOwnWorkers) {
  const std::string file = ::testing::TempDir() + "/share.yaml";
  std::ofstream(file) << "hosts:\n"
                         "  - name: here\n"
                         "    workers:\n"
                         "      - {address: 'unix:/a', threads: 3}\n"
                         "      - {address: 'unix:/b'}\n"
                         "      - {address: 'unix:/c', threads: 5}\n"
                         "      - {address: 'unix:/d', memory: 1GiB}\n"
                         "      - {address: 'unix:/e'}\n";
  ASSERT_TRUE(Parse({"--labels", "y", "--steps", "3", "--cluster", file}).ok());
  flags_.TakeShare({1, 2, 2});
  const auto share = flags_.job().Job();
  ASSERT_TRUE(share.ok()) << share.status();
  ASSERT_EQ(share->cluster.workers.size(), 2u);
  EXPECT_EQ(share->cluster.workers[0].address, "unix:/c");
  EXPECT_EQ(share->cluster.workers[0].threads, 5);
  EXPECT_EQ(share->cluster.workers[1].address, "unix:/d");
  EXPECT_EQ(share->cluster.workers[1].threads,
            ThreadBudget(AvailableCores(RealFileSystem()), /*local_workers=*/5));
  EXPECT_EQ(share->cluster.workers[1].memory_bytes, int64_t{1} << 30);
}

// A profile of the whole cluster was refused in each share: it was made for another cluster.
TEST_F(TrainFlagsTest, AShareOfACalibratedClusterHasItsPartOfTheProfile) {
  const std::string file = ::testing::TempDir() + "/calibrated.yaml";
  const std::string text =
      "hosts:\n"
      "  - {name: a, workers: [{address: 'a:1', model: A100-80GB, device: cuda}]}\n"
      "  - {name: b, workers: [{address: 'b:1', model: V100-16GB, device: cuda}]}\n"
      "links:\n"
      "  - {from: a, to: b, bandwidth: 1GB/s}\n";
  std::ofstream(file) << text;
  const auto cluster = ParseClusterFile(text, file);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto whole = ProfileOfSpec(*cluster);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const std::string profile = ::testing::TempDir() + "/profile.yaml";
  const std::string yaml = ProfileToYaml(*whole);
  std::ofstream(profile) << yaml;
  const auto read = ParseProfileFile(yaml, profile);  // rounded, as text is
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_TRUE(
      Parse({"--labels", "y", "--steps", "3", "--cluster", file, "--calibration", profile}).ok());
  flags_.TakeShare({1, 2, 1});
  const auto share = flags_.job().Job();
  ASSERT_TRUE(share.ok()) << share.status();
  ASSERT_NE(share->costs, nullptr);
  ASSERT_EQ(share->costs->profile().num_workers(), 1);
  EXPECT_EQ(share->costs->profile().device(0), read->device(1));
  EXPECT_FALSE(read->device(0) == read->device(1));
}

}  // namespace
}  // namespace weft
