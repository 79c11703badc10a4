// graph_runner eval: what it says and how it ends.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "ops/testing/test_tensors.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Each sample takes from all samples of the batch, by how like they are to it: scores of 4 classes.
class EvalCommandTest : public ::testing::Test {
 protected:
  EvalCommandTest() {
    WriteTestFile(model_, WireModel(17,
                                    {{"turn", "Transpose", {"x"}, {"t"}},
                                     {"pairs", "MatMul", {"x", "t"}, {"like"}},
                                     {"take", "MatMul", {"like", "x"}, {"y"}}},
                                    "x", "y"));
    WriteTestFile(x_, ToNpy(RandomTensor({16, 4}, 1)).value());
    WriteTestFile(labels_, ToNpy(RandomTensor({16}, 2, 0, 4, DType::kInt64)).value());
  }

  CommandResult Eval(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"eval",     model_,  "--data",  "x=" + x_,
                                          "--labels", labels_, "--batch", "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments);
  }

 private:
  const std::string model_ = TestPath("pairs.onnx");
  const std::string x_ = TestPath("x.npy");
  const std::string labels_ = TestPath("labels.npy");
};

// It was cut all the same: each sample took from those of its own micro-batch. (A job on several
// workers would start processes of this test, were it not refused: tests/whole_batch_test.cc.)
TEST_F(EvalCommandTest, ACutThatChangesResultsIsRefusedWithNodeReasonAndFlag) {
  const CommandResult result = Eval({"--micro-batches", "2"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kPlan)) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("node 'pairs' (MatMul) pairs each sample with all"),
                                HasSubstr("--allow-batch-cut")));
  EXPECT_EQ(result.out, "");
}

// A strict job has four micro-batches where nobody says how many: not this one.
TEST_F(EvalCommandTest, AStrictJobKeepsTheBatchWhole) {
  const CommandResult usual = Eval({"--metric", "loss", "--output", "json"});
  ASSERT_EQ(usual.exit_code, 0) << usual.err;
  const CommandResult strict = Eval({"--metric", "loss", "--output", "json", "--strict"});
  ASSERT_EQ(strict.exit_code, 0) << strict.err;
  EXPECT_NEAR(nlohmann::json::parse(strict.out)["loss"].get<double>(),
              nlohmann::json::parse(usual.out)["loss"].get<double>(), 1e-6);
}

// Its parts were named twice, and the report had "top2/micro_batch": null.
TEST_F(EvalCommandTest, AMetricThatIsNamedTwiceIsReportedOnce) {
  const CommandResult once = Eval({"--metric", "top2", "--output", "json"});
  const CommandResult twice = Eval({"--metric", "top2,top2", "--output", "json"});
  ASSERT_EQ(twice.exit_code, 0) << twice.err;
  EXPECT_EQ(nlohmann::json::parse(twice.out).size(), 1u);
  EXPECT_EQ(twice.out, once.out);
}

}  // namespace
}  // namespace weft::testing
