// Sweeps of train: each trial is what its flags give alone, whatever runs beside it.
//
// WEFT_RUNNER: graph_runner, whose workers are processes.
#include <signal.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "platform/process.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Json = nlohmann::ordered_json;

class Sweep : public ::testing::Test {
 protected:
  Arguments Job() const { return Arguments{"train"} + job_.files(); }
  // In this process, with one worker.
  CommandResult Train(const Arguments& more) const { return RunCommand(Job() + more); }
  // With worker processes.
  CommandResult Run(const Arguments& more) const { return RunProgram(Job() + more); }
  static Json Report(const CommandResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    Json report = Json::parse(result.out, nullptr, false);
    EXPECT_FALSE(report.is_discarded()) << result.out;
    return report;
  }
  // Without what no two runs have in common.
  static Json WithoutTimes(Json report) {
    for (Json& trial : report["trials"]) trial.erase("seconds");
    return report;
  }

  const MlpJob job_{56};  // with a batch of 16 the fourth is short
  const std::string out_ = TestPath("out.onnx");
};

const Arguments& SixTrials() {
  static const auto* const arguments =
      new Arguments{"--epochs", "16",         "--sweep",  "lr=0.1,0.03,0.0001",
                    "--sweep",  "batch=8,16", "--output", "json"};
  return *arguments;
}

TEST_F(Sweep, SideBySideAndOneAfterTheOtherGiveTheSameTable) {
  const Json one = Report(Train(SixTrials()));
  const Json two = Report(Run(SixTrials() + Arguments{"--local", "2"}));
  ASSERT_EQ(one["trials"].size(), 6u);
  EXPECT_EQ(WithoutTimes(one), WithoutTimes(two));
  // The tiny rate learns nothing, so it does not come to half of the 16 x 56 samples.
  EXPECT_EQ(one["trials"][4]["end"], "ended early");
  EXPECT_LT(one["trials"][4]["samples"], 448);
  EXPECT_EQ(one["trials"][0]["samples"], 896);
  EXPECT_EQ(one["trials"][0]["steps"], 112);
  EXPECT_EQ(one["trials"][1]["steps"], 64);
}

// What alone gives: the bits of the model, and its loss by step.
TEST_F(Sweep, ATrialIsWhatItsFlagsGiveAlone) {
  const std::string curves = TestPath("curves.csv");
  const Json report = Report(Run(SixTrials() + Arguments{"--local", "2", "--select", "best", "-o",
                                                         out_, "--metrics", curves}));
  ASSERT_TRUE(report["best"].is_number()) << report;
  const int best = report["best"];
  const Json& values = report["trials"][static_cast<size_t>(best - 1)]["values"];
  const std::string alone = TestPath("alone.onnx"), alone_curves = TestPath("alone.csv");
  const CommandResult result =
      Run({"--epochs", "16", "--local", "1", "--lr", values["lr"], "--batch", values["batch"], "-o",
           alone, "--metrics", alone_curves});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(ReadTestFile(out_) == ReadTestFile(alone));
  const auto losses = [](const std::string& path) {
    std::vector<std::string> column;
    for (const std::string& row :
         std::vector<std::string>(absl::StrSplit(ReadTestFile(path), '\n'))) {
      const std::vector<std::string> cells = absl::StrSplit(row, ',');
      column.push_back(cells.size() > 1 ? cells[1] : "");
    }
    return column;
  };
  EXPECT_EQ(losses(TestPath(absl::StrCat("curves.trial-", best, ".csv"))), losses(alone_curves));
}

// The evaluations at rungs disturb nothing, and the score is that of the model that was written.
TEST_F(Sweep, IsComparedByTheMetricOfEvaluations) {
  const Arguments evaluation = {
      "--eval-every",  "3",         "--eval-data",   absl::StrCat("x=", job_.images),
      "--eval-labels", job_.labels, "--eval-metric", "loss"};
  const Arguments fixed = {"--epochs", "3", "--optimizer", "adam", "--batch", "16"};
  const Json report = Report(Train(
      fixed + evaluation +
      Arguments{"--sweep", "lr=0.001,0.0001", "--select", "best", "-o", out_, "--output", "json"}));
  EXPECT_EQ(report["score"]["of"], "evaluation");
  EXPECT_EQ(report["best"], 1);
  const std::string alone = TestPath("alone.onnx");
  EXPECT_EQ(Train(fixed + Arguments{"--lr", "0.001", "-o", alone}).exit_code, 0);
  EXPECT_TRUE(ReadTestFile(out_) == ReadTestFile(alone));
  const CommandResult measured =
      RunCommand({"eval", out_, "--data", absl::StrCat("x=", job_.images), "--labels", job_.labels,
                  "--metric", "loss", "--output", "json"});
  const double loss = Report(measured)["loss"];
  EXPECT_NEAR(report["trials"][0]["score"].get<double>(), loss, 1e-6 * loss);
}

// One step: all rungs are its end. The fourth rate learns nothing, and is worse than the others.
TEST_F(Sweep, ATrialThatHasSeenAllDataDoesNotEndEarly) {
  const Json report =
      Report(Train({"--steps", "1", "--batch", "56", "--eval-every", "1", "--eval-data",
                    absl::StrCat("x=", job_.images), "--eval-labels", job_.labels, "--eval-metric",
                    "loss", "--sweep", "lr=0.01,0.02,0.03,0.000000001", "--output", "json"}));
  ASSERT_EQ(report["trials"].size(), 4u);
  EXPECT_GT(report["trials"][3]["score"], report["trials"][1]["score"]);
  EXPECT_EQ(report["trials"][3]["end"], "trained");
}

TEST_F(Sweep, ATrialThatFailsIsInTheTableAndTheOthersGoOn) {
  const CommandResult result = Train({"--epochs", "2", "--batch", "8", "--sweep", "lr=900000,0.01",
                                      "--select", "best", "-o", out_});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("failed: "), HasSubstr("trained (best)"),
                                HasSubstr("best  trial 2: lr 0.01; loss "),
                                HasSubstr(absl::StrCat("model ", out_))));
  EXPECT_TRUE(std::filesystem::exists(out_));
}

// They fail in nodes of other shapes, so the table says more than the error.
TEST_F(Sweep, WhereNoTrialComesToItsEndTheErrorIsThatOfTheFirst) {
  const CommandResult result = Train(
      {"--epochs", "2", "--lr", "900000", "--sweep", "batch=8,16", "--select", "best", "-o", out_});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kNumerics)) << result.err;
  EXPECT_THAT(result.out, HasSubstr("failed: "));
  EXPECT_THAT(result.out, Not(HasSubstr("best")));
  EXPECT_THAT(result.err, HasSubstr("error: trial 1 (batch 8): "));
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(Sweep, AnErrorOfAllTrialsIsToldOnce) {
  const CommandResult result =
      RunCommand({"train", "none.onnx", "--data", absl::StrCat("x=", job_.images), "--labels",
                  job_.labels, "--epochs", "1", "--sweep", "lr=0.1,0.2"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kModel));
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("none.onnx"));
}

TEST_F(Sweep, TheGridIsToldBeforehand) {
  const CommandResult result = Train(SixTrials());
  EXPECT_THAT(result.err, HasSubstr("sweep  6 trials: lr (3 values) x batch (2 values)\n"
                                    "       1 at once on 1 worker each, compared by the training "
                                    "loss\n"));
}

// What two workers share: a trial of two workers runs alone.
TEST_F(Sweep, AGivenPlanSaysHowManyWorkersATrialHas) {
  const CommandResult result = Run({"--epochs", "1", "--batch", "8", "--local", "2", "--parallel",
                                    "dp=2", "--sweep", "lr=0.1,0.01"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("1 at once on 2 workers each"));
}

// What is left of three workers is nobody's: this plan takes two, and no more.
TEST_F(Sweep, AShareHasExactlyTheWorkersOfAGivenPlan) {
  const CommandResult result = Run({"--epochs", "1", "--batch", "8", "--local", "3", "--parallel",
                                    "dp=2", "--sweep", "lr=0.1,0.01"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("1 at once on 2 workers each"),
                                HasSubstr("1 worker of 3 will have no trial")));
}

// Two trials run, and the third has not begun.
TEST_F(Sweep, ASignalEndsAllTrialsAndTheTableIsPrinted) {
  const Arguments flags = {"--epochs", "1000000", "--batch", "8",
                           "--local",  "2",       "--sweep", "lr=0.01,0.02,0.03"};
  ProcessOptions options;
  options.arguments = {"/bin/sh", "-c",
                       absl::StrCat("exec ", std::getenv("WEFT_RUNNER"), " '",
                                    absl::StrJoin(Job() + flags, "' '"), "' 2>&1")};
  options.standard_output = {ProcessOutput::Kind::kPipe};
  const auto sweep = RealProcessLauncher().Start(options);
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  const absl::Time deadline = absl::Now() + absl::Seconds(120);
  std::string text;
  const auto read_line = [&] {
    const auto line = (*sweep)->ReadLine(deadline);
    if (line.ok()) absl::StrAppend(&text, *line, "\n");
    return line.ok();
  };
  while (!absl::StrContains(text, "trial 1: lr 0.01") ||
         !absl::StrContains(text, "trial 2: lr 0.02")) {
    ASSERT_TRUE(read_line()) << text;
  }
  ASSERT_TRUE((*sweep)->Signal(SIGTERM).ok());
  while (read_line()) {
  }
  const std::optional<ExitStatus> end = (*sweep)->WaitUntil(deadline);
  ASSERT_TRUE(end.has_value()) << text;
  EXPECT_EQ(end->code, static_cast<int>(ExitCode::kStopped)) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("trial 1: interrupted"), HasSubstr("trial 2: interrupted"),
                          HasSubstr("stopped by SIGTERM")));
  EXPECT_THAT(text, ::testing::ContainsRegex("3 +0\\.03 .* not started"));
}

// Workers that were started before the sweep, in a cluster file of two hosts.
class SweepOnCluster : public Sweep {
 protected:
  SweepOnCluster() {
    // Paths of sockets are short.
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    WriteToken("token", 'a');
  }
  ~SweepOnCluster() override {
    workers_.clear();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string InFolder(const std::string& name) const { return absl::StrCat(folder_, "/", name); }
  void WriteToken(const std::string& name, char letter) const {
    WriteTestFile(InFolder(name), std::string(64, letter));
    std::filesystem::permissions(InFolder(name), std::filesystem::perms::owner_read);
  }
  // Whoever connects to it waits until it listens.
  void StartWorker(const std::string& name, const std::string& token = "token") {
    ProcessOptions options;
    options.arguments = {std::getenv("WEFT_RUNNER"),
                         "worker",
                         "--listen",
                         absl::StrCat("unix:", InFolder(name)),
                         "--token-file",
                         InFolder(token),
                         "--allow-path",
                         "/"};
    options.standard_error = {ProcessOutput::Kind::kDiscard};
    auto started = RealProcessLauncher().Start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    workers_.push_back(*std::move(started));
  }
  // The link is to a host on which some shares have no worker.
  Arguments Cluster() const {
    const auto worker = [this](const char* name) {
      return absl::StrCat("{address: 'unix:", InFolder(name), "', threads: 1, memory: 1GiB}");
    };
    WriteTestFile(InFolder("cluster.yaml"),
                  absl::StrCat("hosts:\n  - {name: a, workers: [", worker("0"), ", ", worker("1"),
                               "]}\n  - {name: b, workers: [", worker("2"),
                               "]}\nlinks:\n  - {from: a, to: b, latency: 1ms}\n"));
    return {"--cluster", InFolder("cluster.yaml"), "--token-file", InFolder("token")};
  }

 private:
  std::string folder_ = (std::filesystem::temp_directory_path() / "weft-XXXXXX").string();
  std::vector<std::unique_ptr<Process>> workers_;
};

// Each worker serves one trial after the other.
TEST_F(SweepOnCluster, EachWorkerOfAFileIsAClusterOfItsOwn) {
  for (const char* const name : {"0", "1", "2"}) StartWorker(name);
  const CommandResult result = Run(SixTrials() + Cluster());
  EXPECT_THAT(result.err, HasSubstr("3 at once on 1 worker each"));
  EXPECT_EQ(WithoutTimes(Report(result)), WithoutTimes(Report(Train(SixTrials()))));
}

// Two shares of one worker each; the third worker has none, and need not be there.
TEST_F(SweepOnCluster, WorkersThatAreLeftOverHaveNoTrial) {
  for (const char* const name : {"0", "1"}) StartWorker(name);
  const CommandResult result = Run(SixTrials() + Cluster() + Arguments{"--side-by-side", "2"});
  EXPECT_THAT(result.err, HasSubstr("1 worker of 3 will have no trial"));
  EXPECT_EQ(WithoutTimes(Report(result)), WithoutTimes(Report(Train(SixTrials()))));
}

// It would have failed one trial after the other, faster than the others could take them.
TEST_F(SweepOnCluster, AShareThatReachesNoWorkerFailsOneTrialAlone) {
  WriteToken("other", 'b');
  for (const char* const name : {"0", "1"}) StartWorker(name);
  StartWorker("2", "other");
  const CommandResult result = Run(SixTrials() + Cluster());
  const Json report = Report(result);
  int failed = 0;
  for (const Json& trial : report["trials"]) {
    EXPECT_NE(trial["end"], "not started");
    failed += trial["end"] == "failed" ? 1 : 0;
  }
  EXPECT_EQ(failed, 1) << report;
  EXPECT_THAT(result.err, HasSubstr("share 3 of 3 cannot be used: it takes no more trials"));
}

TEST_F(SweepOnCluster, WithoutWorkersThereIsOneError) {
  WriteToken("other", 'b');
  for (const char* const name : {"0", "1", "2"}) StartWorker(name, "other");
  const CommandResult result = Run(SixTrials() + Cluster() + Arguments{"--side-by-side", "1"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kRefused)) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, AllOf(HasSubstr("error: "), HasSubstr("workers cannot be used"),
                                HasSubstr("--token-file")));
}

TEST_F(Sweep, UsageErrors) {
  const auto refusal = [this](const Arguments& more) {
    const CommandResult result = Train(Arguments{"--epochs", "1"} + more);
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kUsage));
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(refusal({"--sweep", "lr=0.1,0.1"}), HasSubstr("are the same value"));
  EXPECT_THAT(refusal({"--sweep", "lr=0.1,0.2", "--side-by-side", "2"}),
              HasSubstr("--side-by-side 2 needs as many workers, and there is 1; give --local 2"));
  EXPECT_THAT(refusal({"--sweep", "label-smoothing=0,0.1"}),
              HasSubstr("it changes the loss, so losses do not compare"));
  EXPECT_THAT(refusal({"--sweep", "cluster=a,b"}), HasSubstr("--sweep cluster: --cluster says"));
  EXPECT_THAT(refusal({"--sweep", "lr=0.1,0.2", "--select", "worst"}), HasSubstr("--select"));
}

}  // namespace
}  // namespace weft::testing
