// graph_runner verify: what it says and how it ends.
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

// `verify` of the example MLP on random images, with more arguments.
CommandResult Verify(const Arguments& more) {
  return RunCommand(Arguments{"verify"} + MlpJob(16).files() + Arguments{"--batch", "16"} + more);
}

TEST(VerifyCommand, EqualPlansEndWithZero) {
  for (const std::string plan : {"dp=2", "pp=2,micro=4", "dp=2,zero=2"}) {
    const CommandResult result = Verify({"--local", "2", "--parallel", plan});
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kOk)) << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr("equal: "), HasSubstr(" values compared")));
    EXPECT_THAT(result.err, HasSubstr("plan   dp="));
  }
}

// Two replicas add in another order than one process does: a huge learning rate shows it.
TEST(VerifyCommand, ADifferenceNamesOperatorValueAndWorkerAndEndsWithOne) {
  const CommandResult result =
      Verify({"--local", "2", "--parallel", "dp=2,micro=6", "--tolerance", "1e-30", "--lr", "9e5"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kInternal)) << result.err;
  EXPECT_THAT(result.out, HasSubstr("different: "));
  EXPECT_THAT(result.out, AllOf(HasSubstr("first     SgdUpdate '"), HasSubstr("value     '"),
                                HasSubstr("worker    "), HasSubstr("largest   ")));
}

TEST(VerifyCommand, SaysTheSameInJson) {
  const CommandResult result = Verify({"--local", "2", "--output", "json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["equal"], true);
  EXPECT_EQ(json["different"], 0);
  EXPECT_GT(json["compared"], 10);
}

TEST(VerifyCommand, APlanThatDoesNotFitEndsAsOne) {
  const CommandResult result = Verify({"--local", "3", "--parallel", "dp=2"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kPlan));
  EXPECT_THAT(result.err, HasSubstr("needs 2 workers, but the cluster has 3"));
}

}  // namespace
}  // namespace weft::testing
