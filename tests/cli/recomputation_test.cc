// What `graph_runner plan` says of recomputation, and the plan file it writes.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

std::string Mlp() {
  const std::string path = TestPath("mlp.onnx");
  EXPECT_EQ(RunCommand({"example", "mlp", "-o", path}).exit_code, 0);
  return path;
}

CommandResult PlanGpipe(const std::string& recompute, const std::string& output) {
  return RunCommand({"plan", Mlp(), "--batch", "256", "--local", "2", "--parallel",
                     "pp=2,micro=4,schedule=gpipe" + recompute, "--output", output});
}

TEST(PlanOfRecomputation, SaysWhatItCostsAndSaves) {
  const CommandResult plan = PlanGpipe(",recompute=all", "text");
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("\nrecomputation\n  rank 0 runs "));
  EXPECT_THAT(
      plan.out.substr(plan.out.find("  rank 0 runs ")),
      MatchesRegex("  rank 0 runs [^\n]* FLOPs again \\(\\+[0-9.]+ %\\), activations [^\n]* "
                   "instead of [^\n]*\n  rank 1 runs [^\n]*\n"));
  EXPECT_THAT(PlanGpipe("", "text").out, Not(HasSubstr("recomputation")));
}

TEST(PlanOfRecomputation, JsonHasTheSameNumbersAsThePlansThemselves) {
  const auto with = nlohmann::json::parse(PlanGpipe(",recompute=all", "json").out);
  const auto without = nlohmann::json::parse(PlanGpipe("", "json").out);
  EXPECT_FALSE(without.contains("recomputation"));
  ASSERT_EQ(with["recomputation"].size(), 2u);
  const auto& last = with["recomputation"][1];  // the other stage has one layer
  EXPECT_LT(last["arena_bytes"], last["arena_bytes_without"]);
  EXPECT_GT(last["recomputed_flops"], 0);
  for (size_t rank = 0; rank < 2; ++rank) {
    const auto& row = with["recomputation"][rank];
    EXPECT_EQ(row["arena_bytes"], with["ranks"][rank]["arena_bytes"]);
    EXPECT_EQ(row["arena_bytes_without"], without["ranks"][rank]["arena_bytes"]);
    const double more =
        with["ranks"][rank]["flops"].get<double>() - without["ranks"][rank]["flops"].get<double>();
    EXPECT_NEAR(row["recomputed_flops"].get<double>(), more, 1);
  }
}

TEST(PlanOfRecomputation, ThePlanFileNamesEachNodeAndReadsBack) {
  const std::string path = TestPath("plan.yaml");
  const CommandResult first =
      RunCommand({"plan", Mlp(), "--batch", "256", "--parallel", "recompute=*", "-o", path});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(ReadTestFile(path), HasSubstr("\nrecompute:\n  "));
  const CommandResult second = RunCommand({"plan", Mlp(), "--batch", "256", "--plan", path});
  EXPECT_EQ(second.out, first.out) << second.err;
}

TEST(PlanOfRecomputation, APatternThatFitsNothingIsAnError) {
  const CommandResult plan =
      RunCommand({"plan", Mlp(), "--batch", "256", "--parallel", "recompute=blok*"});
  EXPECT_EQ(plan.exit_code, static_cast<int>(ExitCode::kPlan));
  EXPECT_THAT(plan.err,
              HasSubstr("the plan recomputes 'blok*', but no forward node has this name"));
}

}  // namespace
}  // namespace weft::testing
