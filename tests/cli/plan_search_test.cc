// `graph_runner plan` where the plan is left to it.
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "placement/files/plan_file.h"
#include "platform/file_system.h"
#include "tensor/tensor.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Mlp() {
  const std::string path = TestPath("mlp.onnx");
  EXPECT_EQ(RunCommand({"example", "mlp", "-o", path}).exit_code, 0);
  return path;
}

CommandResult PlanMlp(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"plan", Mlp(), "--batch", "256"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunCommand(arguments);
}

TEST(PlanSearchCommand, WithoutAWordIsAsAuto) {
  const CommandResult said = PlanMlp({"--local", "2", "--parallel", "auto", "--output", "json"});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  EXPECT_EQ(PlanMlp({"--local", "2", "--output", "json"}).out, said.out);
}

TEST(PlanSearchCommand, MayLeaveWorkersOutUnlessAllAreAskedFor) {
  const std::string path = TestPath("plan.yaml");
  const std::vector<std::string> flags = {
      "--local",  "4",    "--what-if", "nodes=4,workers=1,link=10Mbit,latency=10ms",
      "--output", "json", "-o",        path};
  const CommandResult slow = PlanMlp(flags);
  ASSERT_EQ(slow.exit_code, 0) << slow.err;
  EXPECT_EQ(nlohmann::json::parse(slow.out)["ranks"].size(), 1u);
  EXPECT_THAT(RealFileSystem().ReadFile(path).value(), HasSubstr("workers: [0]"));
  std::vector<std::string> all = flags;
  all.insert(all.end(), {"--parallel", "all"});
  const CommandResult four = PlanMlp(all);
  ASSERT_EQ(four.exit_code, 0) << four.err;
  EXPECT_EQ(nlohmann::json::parse(four.out)["ranks"].size(), 4u);
  EXPECT_THAT(four.err, HasSubstr("1 of 4 workers would be "));
  EXPECT_THAT(four.err,
              HasSubstr("times as fast (predicted; uncalibrated: steps took 0.83 to 40 "));
  EXPECT_THAT(ReadTestFile(path), HasSubstr("calibrated: false"));
}

TEST(PlanSearchCommand, ExplainSaysTimeMemoryAndWhatWasRejected) {
  const CommandResult plan = PlanMlp({"--local", "4", "--explain"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("found      --parallel dp="), HasSubstr("step       "),
                              HasSubstr("exposed communication "), HasSubstr("bubble "),
                              HasSubstr("memory     "), HasSubstr("\nrejected\n"),
                              HasSubstr(" times slower: ")));
}

TEST(PlanSearchCommand, ExplainAsJsonHasAReasonForEachRejectedPlan) {
  const CommandResult plan = PlanMlp({"--local", "4", "--explain", "--output", "json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const auto explanation = nlohmann::json::parse(plan.out)["explanation"];
  const auto& chosen = explanation["chosen"];
  const double parts = chosen["compute_seconds"].get<double>() +
                       chosen["exposed_communication_seconds"].get<double>() +
                       chosen["bubble_seconds"].get<double>();
  EXPECT_NEAR(parts, chosen["step_seconds"].get<double>(), 1e-6 + 0.05 * parts);
  ASSERT_GT(explanation["rejected"].size(), 1u);
  for (const auto& other : explanation["rejected"]) {
    EXPECT_FALSE(other["reason"].get<std::string>().empty());
  }
}

// What the search counts of the process.
constexpr int64_t kProcessBytes = int64_t{16} << 20;

// Two figures with their names: the explanation has an arena as estimated, the plan file and the
// table of ranks have it as compiled. The variables and the process are exact in all. The file once
// had the estimate, without workspaces and sums of gradients.
TEST(PlanSearchCommand, TheExplainedMemoryIsThatOfTheFullestRank) {
  for (const char* const workers : {"1", "2"}) {
    SCOPED_TRACE(workers);
    const std::string path = TestPath("plan.yaml");
    const CommandResult plan =
        PlanMlp({"--local", workers, "--explain", "--output", "json", "-o", path});
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    const auto json = nlohmann::json::parse(plan.out);
    const int64_t explained =
        json["explanation"]["chosen"]["memory_bytes"].get<int64_t>() - kProcessBytes;
    const auto file = ParsePlanFile(ReadTestFile(path), "plan.yaml");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_EQ(file->prediction.memory_bytes.size(), json["ranks"].size());
    int64_t weights = 0;  // of the fullest rank: floats, and there is no other state
    int64_t arena = 0;
    for (size_t i = 0; i < json["ranks"].size(); ++i) {
      const auto& rank = json["ranks"][i];
      // The file's figure has the few constants of the step, too.
      const int64_t compiled =
          rank["variable_bytes"].get<int64_t>() + rank["arena_bytes"].get<int64_t>();
      EXPECT_GE(file->prediction.memory_bytes[i], compiled);
      EXPECT_LE(file->prediction.memory_bytes[i], compiled + compiled / 100);
      const int64_t bytes = 4 * rank["parameters"].get<int64_t>();
      // Each weight and bias of the three layers is rounded up to 64 bytes.
      EXPECT_GE(rank["variable_bytes"].get<int64_t>(), bytes);
      EXPECT_LT(rank["variable_bytes"].get<int64_t>(), bytes + 6 * 64);
      if (bytes + rank["arena_bytes"].get<int64_t>() <= weights + arena) continue;
      weights = bytes;
      arena = rank["arena_bytes"].get<int64_t>();
    }
    const auto estimated = static_cast<double>(explained - weights);
    EXPECT_GT(estimated, 0.5 * static_cast<double>(arena));
    EXPECT_LT(estimated, 2.0 * static_cast<double>(arena));
  }
  EXPECT_THAT(
      PlanMlp({"--local", "2", "--explain"}).out,
      AllOf(HasSubstr(": variables, 16 MiB of process, and an arena estimated without workspaces"),
            HasSubstr("; the table of ranks has the compiled arena")));
}

TEST(PlanSearchCommand, TrainRequiresThePlansMemoryAndNamesTheRest) {
  const std::string path = TestPath("plan.yaml");
  const std::string images = TestPath("x.npy");
  const std::string labels = TestPath("y.npy");
  WriteTestFile(images, ToNpy(Tensor::Zeros(DType::kFloat32, {256, 1, 28, 28}).value()).value());
  WriteTestFile(labels, ToNpy(Tensor::Zeros(DType::kInt64, {256}).value()).value());
  const std::vector<std::string> data = {"--data", "x=" + images, "--labels",
                                         labels,   "--output",    "json"};
  std::vector<std::string> planning = {"--explain", "-o", path};
  planning.insert(planning.end(), data.begin(), data.end());
  const CommandResult plan = PlanMlp(planning);
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  std::vector<std::string> training = {"train",  Mlp(), "--batch", "256",
                                       "--plan", path,  "--steps", "1"};
  training.insert(training.end(), data.begin(), data.end());
  const CommandResult train = RunCommand(training);
  ASSERT_EQ(train.exit_code, 0) << train.err;
  const auto planned = nlohmann::json::parse(plan.out);
  const auto trained = nlohmann::json::parse(train.out);
  ASSERT_EQ(planned["ranks"].size(), 1u);
  ASSERT_EQ(trained["memory"].size(), 1u);
  const auto& rank = planned["ranks"][0];
  const auto& needed = trained["memory"][0];
  EXPECT_EQ(needed["variable_bytes"], rank["variable_bytes"]);
  EXPECT_EQ(needed["arena_bytes"], rank["arena_bytes"]);
  EXPECT_GE(needed["predicted_bytes"].get<int64_t>(),
            planned["explanation"]["chosen"]["memory_bytes"].get<int64_t>());
  EXPECT_THAT(train.err, AllOf(HasSubstr("memory worker:0 needs "), HasSubstr("process "),
                               HasSubstr("arena "), HasSubstr("variables "), HasSubstr("data ")));
}

TEST(PlanSearchCommand, WhatItFindsCanBeAskedForByHand) {
  const auto found =
      nlohmann::json::parse(PlanMlp({"--local", "2", "--explain", "--output", "json"}).out);
  const std::string parallel = found["explanation"]["chosen"]["parallel"];
  const CommandResult again = PlanMlp({"--local", "2", "--parallel", parallel, "--output", "json"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(nlohmann::json::parse(again.out)["mesh"], found["mesh"]);
}

TEST(PlanSearchCommand, WhatIfAsksAboutManyMachines) {
  const CommandResult plan =
      PlanMlp({"--explain", "--parallel", "all", "--what-if",
               "nodes=16,workers=8,link=25Gbit,model=A100-80GB,memory=80GiB"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr(" on 128 of 128 workers"));
}

TEST(PlanSearchCommand, MistakesAreUsageErrors) {
  const CommandResult key = PlanMlp({"--explain", "--what-if", "node=2"});
  EXPECT_EQ(key.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(key.err, HasSubstr("did you mean 'nodes'?"));
  const CommandResult both = PlanMlp({"--local", "2", "--explain", "--parallel", "dp=2"});
  EXPECT_EQ(both.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(both.err, HasSubstr("--explain says why a plan was found"));
  const CommandResult strategy = PlanMlp({"--local", "2", "--search", "guess"});
  EXPECT_EQ(strategy.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(strategy.err, HasSubstr("there are dp, anneal, exhaustive"));
}

TEST(PlanSearchCommand, AFlagsFormerNameIsRefusedWithTheNewOne) {
  const CommandResult former = PlanMlp({"--local", "2", "--ledger", "runs.jsonl"});
  EXPECT_EQ(former.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(former.err, HasSubstr("option '--ledger' is now called --run-history"));
}

// 0.107 ms were predicted of a step that took 4.27, and nobody said on what that rested.
TEST(PlanSearchCommand, AnUncalibratedPredictionSaysThatItIsOne) {
  const CommandResult plan = PlanMlp({"--local", "2"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("\nuncalibrated: the predicted times rest on published specs"));
  EXPECT_THAT(plan.out, HasSubstr("40 times"));
  const CommandResult json = PlanMlp({"--local", "2", "--output", "json"});
  const auto said = nlohmann::json::parse(json.out);
  EXPECT_EQ(said["calibrated"], false);
  EXPECT_NEAR(said["measured_over_predicted"]["max"].get<double>(), 4.27 / 0.107, 0.1);
  const std::string page = TestPath("plan.html");
  ASSERT_EQ(PlanMlp({"--local", "2", "--picture", page}).exit_code, 0);
  EXPECT_THAT(ReadTestFile(page), HasSubstr("<p>uncalibrated: the predicted times rest on "));
}

// A plan too large to be shown rank by rank was explained without that word.
TEST(PlanSearchCommand, AnUncalibratedExplanationOfALargePlanSaysThatItIsOne) {
  const CommandResult plan =
      PlanMlp({"--explain", "--parallel", "all", "--what-if",
               "nodes=128,workers=8,link=25Gbit,model=A100-80GB,memory=80GiB"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("\nuncalibrated: "));
}

// Both ranks did all the work, sent nothing, and nobody was told.
TEST(PlanSearchCommand, ATensorAxisAloneIsSplit) {
  const CommandResult plan = PlanMlp({"--local", "2", "--parallel", "tp=2", "--output", "json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const auto json = nlohmann::json::parse(plan.out);
  const CommandResult whole = PlanMlp({"--local", "1", "--parallel", "dp=1", "--output", "json"});
  const int64_t parameters =
      nlohmann::json::parse(whole.out)["ranks"][0]["parameters"].get<int64_t>();
  ASSERT_EQ(json["ranks"].size(), 2u);
  for (const auto& rank : json["ranks"]) {
    EXPECT_LT(rank["parameters"].get<int64_t>(), 0.6 * static_cast<double>(parameters));
  }
}

TEST(PlanSearchCommand, ThePictureIsOnePage) {
  const std::string path = TestPath("plan.html");
  const CommandResult plan = PlanMlp({"--local", "2", "--parallel", "pp=2", "--picture", path});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const std::string page = RealFileSystem().ReadFile(path).value();
  EXPECT_THAT(page,
              AllOf(HasSubstr("<svg"), HasSubstr("stage 1: "), HasSubstr("rank 1"),
                    HasSubstr("worker 1<br>"), HasSubstr("<title>wait for "), HasSubstr("</html>"),
                    Not(HasSubstr("<script")), Not(HasSubstr("href=")), Not(HasSubstr("src="))));
  const std::string dot = TestPath("plan.dot");
  ASSERT_EQ(PlanMlp({"--local", "2", "--parallel", "pp=2", "--picture", dot}).exit_code, 0);
  EXPECT_THAT(RealFileSystem().ReadFile(dot).value(),
              AllOf(HasSubstr("digraph plan {"), HasSubstr("cluster_1"), HasSubstr(" -> ")));
}

}  // namespace
}  // namespace weft::testing
