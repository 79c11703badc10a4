// --log-level: what a job says of its way, and that it says nothing unasked.
#include "platform/log.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/tensor.h"
#include "tests/command_run.h"
#include "tools/command_line/command_line.h"
#include "tools/console/exit_code.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LogLevelTest : public ::testing::Test {
 protected:
  LogLevelTest() {
    SetLogSink([this](const std::string& line) { lines_.push_back(line); });
  }
  ~LogLevelTest() override {
    SetLogSink(nullptr);
    SetLogLevel(LogLevel::kError);
  }

  CommandResult Train(std::vector<std::string> more) {
    const std::string model = TestPath("mlp.onnx"), x = TestPath("x.npy"), y = TestPath("y.npy");
    EXPECT_EQ(RunCommand({"example", "mlp", "-o", model}).exit_code, 0);
    WriteTestFile(x, *ToNpy(*Tensor::Zeros(DType::kFloat32, {16, 1, 28, 28})));
    WriteTestFile(y, *ToNpy(*Tensor::Zeros(DType::kInt64, {16})));
    std::vector<std::string> arguments = {"train", model,     "--data", "x=" + x,  "--labels",
                                          y,       "--steps", "4",      "--batch", "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = RunCommand(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }

  // The place of the first line with this text; the number of lines where there is none.
  size_t Find(const std::string& text) const {
    const auto found = std::find_if(lines_.begin(), lines_.end(), [&](const std::string& line) {
      return absl::StrContains(line, text);
    });
    return static_cast<size_t>(found - lines_.begin());
  }

  std::vector<std::string> lines_;
};

TEST_F(LogLevelTest, NothingIsSaidUnasked) {
  Train({});
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(LogLevelTest, DebugNamesEachPhaseInItsOrderWhenItBeginsAndWhenItEnds) {
  const std::string folder = TestPath("checkpoints");
  Train({"--log-level", "debug", "--checkpoint", folder, "--checkpoint-every", "2"});
  size_t last = 0;
  for (const std::string phase : {"import", "data", "differentiate", "plan", "partition", "predict",
                                  "join", "program 'train/8'", "variables", "first step"}) {
    const size_t begin = Find("train: " + phase + " ..."), end = Find("train: " + phase + ": ");
    ASSERT_LT(begin, lines_.size()) << phase;
    ASSERT_LT(end, lines_.size()) << phase;
    EXPECT_LT(begin, end) << phase;
    EXPECT_LE(last, begin) << phase;
    last = begin;
  }
  EXPECT_LT(Find("worker:0 joining the job: "), lines_.size());
  EXPECT_LT(Find("worker:0 compiles program 'train/8': "), lines_.size());
  EXPECT_LT(Find("checkpoint of step 2 is whole: "), lines_.size());
  EXPECT_LT(Find("steps 0 to "), lines_.size());
}

TEST_F(LogLevelTest, InfoHasEndsOfPhasesButNoCalls) {
  Train({"--log-level", "info"});
  EXPECT_LT(Find(" plan: "), lines_.size());
  EXPECT_EQ(Find(" ..."), lines_.size());
  EXPECT_EQ(Find("joining the job"), lines_.size());
}

TEST_F(LogLevelTest, WhatPeopleReadStaysAsItIs) {
  EXPECT_EQ(Train({"--log-level", "debug"}).out.substr(0, 4), "loss");
  EXPECT_THAT(Train({"--log-level", "error"}).err, HasSubstr("\nplan   dp=1"));
}

TEST_F(LogLevelTest, EveryCommandHasItAndRefusesWhatIsNone) {
  for (const auto& command : AllCommands()) {
    const CommandResult help = RunCommand({command->name(), "--help=all"});
    EXPECT_THAT(help.out, HasSubstr("--log-level LEVEL")) << command->name();
  }
  const CommandResult result = RunCommand({"ops", "--log-level", "inof"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(result.err, HasSubstr("'inof' is no level; it is error, warning, info, debug"));
  EXPECT_THAT(result.err, HasSubstr("did you mean 'info'?"));
}

}  // namespace
}  // namespace weft::testing
