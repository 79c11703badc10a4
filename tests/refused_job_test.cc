// Jobs that do not fit into their workers' memory: refused before anything was started, with other
// values of --parallel, each of which then runs within the same limit.
//
// WEFT_RUNNER: graph_runner, whose workers are processes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "onnx_import/graph_wire.h"
#include "ops/testing/test_tensors.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kMebibyte = int64_t{1} << 20;
// What the check before the start takes for a worker's process at least
// (training/job/job_search.cc).
constexpr int64_t kMinProcessBytes = 16 * kMebibyte;
constexpr int64_t kWidth = 512;
constexpr int64_t kClasses = 16;
constexpr int64_t kBatch = 2560;

// An alternative as a refusal names it: "--parallel dp=2,zero=1 (ZeRO: 812 MiB)".
struct Named {
  std::string parallel;
  std::string what;
};

std::vector<Named> NamedIn(const std::string& refusal) {
  static const std::regex* const pattern =
      new std::regex(R"(--parallel (\S+) \(([^:()]+): [^)]*\))");
  std::vector<Named> found;
  for (std::sregex_iterator match(refusal.begin(), refusal.end(), *pattern), end; match != end;
       ++match) {
    found.push_back({(*match)[1], (*match)[2]});
  }
  return found;
}

// Bytes, of "needs at least 63.9 MiB".
int64_t NeededIn(const std::string& refusal) {
  static const std::regex* const pattern = new std::regex(R"(needs at least ([0-9.]+) MiB)");
  std::smatch match;
  EXPECT_TRUE(std::regex_search(refusal, match, *pattern)) << refusal;
  return match.empty() ? 0 : static_cast<int64_t>(std::stod(match[1]) * kMebibyte);
}

std::vector<std::string> Kinds(const std::vector<Named>& alternatives) {
  std::vector<std::string> kinds;
  for (const Named& named : alternatives) kinds.push_back(named.what);
  return kinds;
}

class RefusedJob : public ::testing::Test {
 protected:
  // `layers` square products of 1 MiB each with Relu between, and a batch to train it with.
  void Build(int layers) {
    Graph graph;
    GraphBuilder builder(graph);
    const SymbolicShape sample(std::vector<Dim>{Dim::Symbol("N"), Dim(kWidth)});
    ValueId h = graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, sample});
    const double spread = std::sqrt(6.0 / static_cast<double>(kWidth));
    for (int layer = 0; layer <= layers; ++layer) {
      const Shape shape({kWidth, layer < layers ? kWidth : kClasses});
      const ValueId weight = graph.AddVariable(
          absl::StrCat("layer", layer, ".weight"), {ValueKind::kTensor, DType::kFloat32, shape},
          RandomTensor(shape, static_cast<uint64_t>(layer), -spread, spread), true);
      builder.set_name_prefix(absl::StrCat("layer", layer, "/"));
      h = builder.Op("MatMul", {h, weight});
      if (layer < layers) h = builder.Op("Relu", {h});
    }
    graph.AddOutput(h);
    ASSERT_TRUE(builder.status().ok()) << builder.status();
    const auto bytes = GraphToOnnx(graph, {.annotations = false});
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    WriteTestFile(model_, *bytes);
    WriteTestFile(inputs_, ToNpy(RandomTensor({kBatch, kWidth}, 99)).value());
    WriteTestFile(labels_, ToNpy(RandomTensor({kBatch}, 98, 0, kClasses, DType::kInt64)).value());
  }

  // What `graph_runner COMMAND` does with the job, and all that it says.
  CommandResult Run(const std::string& command, const std::string& parallel,
                    const Arguments& more) const {
    return RunProgram(Arguments{command, model_, "--data", absl::StrCat("x=", inputs_), "--labels",
                                labels_, "--optimizer", "adam", "--lr", "0.0001", "--local", "2",
                                "--batch", absl::StrCat(kBatch), "--parallel", parallel, "--output",
                                "json"} +
                      more);
  }

  // What the fullest rank of a plan makes and keeps, by `graph_runner plan`.
  int64_t PlannedBytes(const std::string& parallel) const {
    const CommandResult plan = Run("plan", parallel, more_);
    EXPECT_EQ(plan.exit_code, 0) << plan.err;
    int64_t max_total = 0;
    const auto said = nlohmann::json::parse(plan.out);
    for (const auto& rank : said["ranks"]) {
      max_total = std::max(
          max_total, rank["variable_bytes"].get<int64_t>() + rank["arena_bytes"].get<int64_t>());
    }
    return max_total;
  }

  // Two steps of the job with what `train` was given beside `parallel`.
  CommandResult Train(const std::string& parallel, int64_t limit) const {
    return Run("train", parallel,
               more_ + Arguments{"--steps", "2", "--memory-per-worker", absl::StrCat(limit, "B"),
                                 "-o", trained_, "--metrics", metrics_});
  }

  // Refused without a process, a model or metrics; the alternatives that are named.
  std::vector<Named> ExpectRefused(const std::string& parallel, int64_t limit) const {
    const CommandResult refused = Train(parallel, limit);
    EXPECT_EQ(refused.exit_code, static_cast<int>(ExitCode::kMemory)) << refused.err;
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("may have "), HasSubstr(" of memory and needs at least "),
                      HasSubstr("the job was refused before anything was started; "),
                      Not(HasSubstr("starting 2 worker processes"))));
    EXPECT_FALSE(std::filesystem::exists(trained_));
    EXPECT_FALSE(std::filesystem::exists(metrics_));
    std::printf(
        "%s\n",
        refused.err.substr(std::min(refused.err.size(), refused.err.find("error:"))).c_str());
    return NamedIn(refused.err);
  }

  // Trains as the alternative says, to the end, within the limit.
  void ExpectRuns(const Named& named, int64_t limit) const {
    std::filesystem::remove(trained_);
    const CommandResult run = Train(named.parallel, limit);
    ASSERT_EQ(run.exit_code, 0) << named.parallel << ": " << run.err;
    EXPECT_TRUE(std::filesystem::exists(trained_)) << named.parallel;
    const auto said = nlohmann::json::parse(run.out);
    EXPECT_EQ(said["steps"], 2) << run.out;
    ASSERT_EQ(said["memory"].size(), 2u) << run.out;
    for (const auto& rank : said["memory"]) {
      EXPECT_EQ(rank["limit_bytes"], limit);
      const auto peak = rank["peak_bytes"].get<int64_t>();
      EXPECT_GT(peak, limit / 4) << named.parallel;
      EXPECT_LE(peak, limit) << named.parallel;
      std::printf("%s: %.0f of %.0f MiB\n", named.parallel.c_str(),
                  static_cast<double>(peak) / kMebibyte, static_cast<double>(limit) / kMebibyte);
    }
  }

  const std::string model_ = TestPath("model.onnx");
  const std::string inputs_ = TestPath("x.npy");
  const std::string labels_ = TestPath("y.npy");
  const std::string trained_ = TestPath("trained.onnx");
  const std::string saved_ = TestPath("saved");
  const std::string metrics_ = TestPath("metrics.csv");
  Arguments more_;
};

TEST_F(RefusedJob, NamesThreeKindsOfPlansThatRun) {
  Build(/*layers=*/80);
  const std::string parallel = "dp=2,micro=2";
  const int64_t limit = PlannedBytes(parallel) + kMinProcessBytes - 1;
  const std::vector<Named> alternatives = ExpectRefused(parallel, limit);
  EXPECT_THAT(Kinds(alternatives), ElementsAre("recomputation", "ZeRO", "more micro-batches"));
  for (const Named& named : alternatives) ExpectRuns(named, limit);
}

// A strict job's micro-batches are its own. Half of the model on each worker fits.
TEST_F(RefusedJob, NamesAnotherSplitWhereMicroBatchesAreFixed) {
  Build(/*layers=*/80);
  more_ = {"--strict", "--micro-batches", "4"};
  const std::string parallel = "dp=2";
  const int64_t limit = PlannedBytes("pp=2,schedule=1f1b") + 100 * kMebibyte;
  const std::vector<Named> alternatives = ExpectRefused(parallel, limit);
  EXPECT_THAT(Kinds(alternatives), Contains("another mesh"));
  EXPECT_THAT(Kinds(alternatives), Not(Contains("more micro-batches")));
  for (const Named& named : alternatives) ExpectRuns(named, limit);
}

// Rank 0 writes checkpoints from a copy of what it trains, which may be more than the job.
TEST_F(RefusedJob, CountsWhatCheckpointsTake) {
  Build(/*layers=*/40);
  const std::string parallel = "dp=2,micro=2";
  const int64_t limit = PlannedBytes(parallel) + 90 * kMebibyte;
  ExpectRuns({parallel, "without checkpoints"}, limit);
  std::filesystem::remove(trained_);
  std::filesystem::remove(metrics_);
  more_ = {"--checkpoint", saved_};
  const std::vector<Named> alternatives = ExpectRefused(parallel, limit);
  EXPECT_FALSE(std::filesystem::exists(saved_));
  EXPECT_THAT(Kinds(alternatives), Not(IsEmpty()));
  for (const Named& named : alternatives) {
    ExpectRuns(named, limit);
    std::filesystem::remove_all(saved_);
  }
}

// A worker knows better than the check before the start what its process takes. Curves of an
// earlier run stay as they are.
TEST_F(RefusedJob, LeavesNothingBehindWhereItsWorkersRefuse) {
  Build(/*layers=*/4);
  const std::string parallel = "dp=2,micro=2";
  const int64_t limit = NeededIn(Train(parallel, kMebibyte).err) + kMebibyte / 10;
  const std::string curves = TestPath("curves");
  const std::string earlier = "step,loss\n0,2.5\n";
  WriteTestFile(metrics_, earlier);
  more_ = {"--tensorboard", curves};
  const CommandResult refused = Train(parallel, limit);
  EXPECT_EQ(refused.exit_code, static_cast<int>(ExitCode::kMemory)) << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("starting 2 worker processes"),
                                 HasSubstr("the job was refused before its first step")));
  EXPECT_EQ(ReadTestFile(metrics_), earlier);
  EXPECT_FALSE(std::filesystem::exists(curves));
  EXPECT_FALSE(std::filesystem::exists(trained_));
}

// Not even the parameters do.
TEST_F(RefusedJob, SaysWhereNothingFits) {
  Build(/*layers=*/80);
  EXPECT_THAT(ExpectRefused("dp=2,micro=2", 40 * kMebibyte), IsEmpty());
}

}  // namespace
}  // namespace weft::testing
