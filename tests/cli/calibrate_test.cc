// graph_runner calibrate, and what plan and train make of its profile. What is measured differs
// from run to run; what is asked here is where it goes.
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class Calibrate : public ::testing::Test {
 protected:
  Arguments Job(const std::string& command, const Arguments& more) const {
    return Arguments{command} + job_.files() + Arguments{"--batch", "16"} + more;
  }
  CommandResult Run(const std::string& command, const Arguments& more) const {
    return RunCommand(Job(command, more));
  }
  // With worker processes; what it says of its work.
  std::string RunOnWorkers(const std::string& command, const Arguments& more) const {
    const CommandResult result = RunProgram(Job(command, more));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out + result.err;
  }
  nlohmann::json PredictedStep(const std::vector<std::string>& more) const {
    std::vector<std::string> flags = {"--calibration", profile_, "--output", "json"};
    flags.insert(flags.end(), more.begin(), more.end());
    const CommandResult result = Run("plan", flags);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false)["predicted_step_seconds"];
  }
  std::vector<nlohmann::json> RunHistory() const {
    std::vector<nlohmann::json> entries;
    std::istringstream lines(ReadTestFile(history_));
    for (std::string line; std::getline(lines, line);) {
      entries.push_back(nlohmann::json::parse(line, nullptr, false));
    }
    return entries;
  }

  const MlpJob job_{64};
  const std::string profile_ = TestPath("profile.yaml");
  const std::string history_ = TestPath("profile.history.jsonl");  // of that profile
};

TEST_F(Calibrate, RunsGoIntoTheHistoryAndCorrectPredictions) {
  const CommandResult calibrated = Run("calibrate", {"-o", profile_});
  ASSERT_EQ(calibrated.exit_code, 0) << calibrated.err;
  EXPECT_THAT(calibrated.out, AllOf(HasSubstr("worker:0: products at most "),
                                    HasSubstr(" nodes measured\nprofile ")));
  EXPECT_THAT(ReadTestFile(profile_), HasSubstr("MatMul float32"));
  const double first = PredictedStep({});
  ASSERT_GT(first, 0);
  const CommandResult trained = Run("train", {"--calibration", profile_, "--steps", "20"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("step   predicted "));
  const std::vector<nlohmann::json> history = RunHistory();
  ASSERT_THAT(history, SizeIs(1));
  EXPECT_EQ(history[0]["predicted"]["step_seconds"], first);
  EXPECT_EQ(history[0]["steps"], 20);
  const double measured = history[0]["measured"]["step_seconds"];
  ASSERT_GT(measured, 0);
  // One run is all there is to learn from: the next one will take as long.
  EXPECT_NEAR(PredictedStep({}), measured, 1e-9 * measured);
  EXPECT_EQ(PredictedStep({"--run-history", ""}), first);
}

TEST_F(Calibrate, APlanOfTwoProcessesIsPredictedFromItsPartsAlone) {
  const std::string log =
      RunOnWorkers("calibrate", {"--local", "2", "--parallel", "pp=2", "-o", profile_});
  EXPECT_THAT(log, AllOf(HasSubstr("measuring the nodes of dp=1 x tp=1 x pp=2"),
                         HasSubstr("within host 0: "), Not(HasSubstr("dp=2"))));
  RunOnWorkers("train",
               {"--local", "2", "--parallel", "pp=2", "--calibration", profile_, "--steps", "20"});
  const std::vector<nlohmann::json> history = RunHistory();
  ASSERT_THAT(history, SizeIs(1));
  EXPECT_EQ(history[0]["predicted"]["bytes_sent"], history[0]["measured"]["bytes_sent"]);
  EXPECT_THAT(history[0]["plan"].get<std::string>(), HasSubstr("dp=1,tp=1,pp=2,"));
  // Two steps are too few to learn from, and are written all the same.
  RunOnWorkers("train",
               {"--local", "2", "--parallel", "pp=2", "--calibration", profile_, "--steps", "2"});
  EXPECT_THAT(RunHistory(), SizeIs(2));
}

TEST_F(Calibrate, AProfileOfAnotherClusterIsRefused) {
  ASSERT_EQ(RunCommand({"calibrate", "-o", profile_}).exit_code, 0);
  const CommandResult other = Run("plan", {"--local", "2", "--calibration", profile_});
  EXPECT_EQ(other.exit_code, static_cast<int>(ExitCode::kPlan));
  EXPECT_THAT(other.err, HasSubstr("the profile was made for another cluster, of 1 workers"));
  const CommandResult asked =
      Run("plan", {"--explain", "--calibration", profile_, "--what-if", "nodes=2"});
  EXPECT_EQ(asked.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(asked.err, HasSubstr("leave out --calibration"));
}

// A profile alone made a prediction a calibrated one, for `plan` and `simulate`, even where its
// rates are published ones; plan files and pictures said the contrary.
TEST_F(Calibrate, AProfileThatWasNotMeasuredMakesNoCalibratedPrediction) {
  ASSERT_EQ(RunCommand({"calibrate", "-o", profile_}).exit_code, 0);
  const auto says_calibrated = [&](const std::string& command) {
    const CommandResult said = Run(command, {"--calibration", profile_, "--output", "json"});
    EXPECT_EQ(said.exit_code, 0) << said.err;
    return nlohmann::json::parse(said.out, nullptr, false)["calibrated"];
  };
  EXPECT_EQ(says_calibrated("plan"), true);
  EXPECT_EQ(says_calibrated("simulate"), true);
  const std::string measured = ReadTestFile(profile_);
  const std::string published =
      std::regex_replace(measured, std::regex("(\\n    source: )[^\\n]*"), "$1published");
  ASSERT_NE(published, measured);
  WriteTestFile(profile_, published);
  EXPECT_EQ(says_calibrated("plan"), false);
  EXPECT_EQ(says_calibrated("simulate"), false);
  EXPECT_THAT(Run("plan", {"--calibration", profile_}).out, HasSubstr("\nuncalibrated: "));
}

TEST_F(Calibrate, ErrorsSayWhatToDo) {
  const CommandResult no_data = RunCommand({"calibrate", job_.model, "-o", profile_});
  EXPECT_EQ(no_data.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(no_data.err, HasSubstr("give --data and --labels"));
  WriteTestFile(profile_, "version: 1\ndevice: []\n");
  const CommandResult broken = Run("plan", {"--calibration", profile_});
  EXPECT_EQ(broken.exit_code, static_cast<int>(ExitCode::kPlan));
  EXPECT_THAT(broken.err, AllOf(HasSubstr(profile_ + ":"), HasSubstr("'device'")));
  WriteTestFile(history_, "{}\nnonsense\n");
  const CommandResult history = Run("plan", {"--run-history", history_});
  EXPECT_EQ(history.exit_code, static_cast<int>(ExitCode::kPlan));
  EXPECT_THAT(history.err, HasSubstr(history_ + ":1: "));
}

}  // namespace
}  // namespace weft::testing
