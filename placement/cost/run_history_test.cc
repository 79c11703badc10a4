#include "placement/cost/run_history.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

RunHistoryEntry RunOf(const std::string& plan, double predicted, double measured,
                      double factor = 1) {
  RunHistoryEntry entry;
  entry.time = "2026-11-22T05:00:00Z";
  entry.model = "m.onnx";
  entry.model_digest = 0xfedcba9876543210;
  entry.cluster_digest = 7;
  entry.plan = plan;
  entry.steps = 200;
  entry.predicted = {predicted, 0.5 * predicted, 0.25 * predicted, {100, 200}, {1 << 20, 2 << 20}};
  entry.factor = factor;
  entry.measured = {measured, measured, 0, {100, 200}, {1 << 20, 2 << 20}};
  entry.input_seconds = 1e-5;
  return entry;
}

CostCorrections Corrections(const std::vector<RunHistoryEntry>& history) {
  return CorrectionsOf(history, 7, 0xfedcba9876543210);
}

TEST(RunHistoryTest, ReadsWhatItWrites) {
  const std::vector<RunHistoryEntry> runs = {RunOf("dp=1", 1e-3, 1.5e-3),
                                             RunOf("dp=2", 0.1, 0.2, 1.25)};
  const auto read =
      ParseRunHistory(RunHistoryLine(runs[0]) + "\n" + RunHistoryLine(runs[1]), "l.jsonl");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, runs);
}

TEST(RunHistoryTest, ErrorsNameTheLine) {
  const std::string good = RunHistoryLine(RunOf("dp=1", 1, 1));
  EXPECT_EQ(ParseRunHistory(good + "{\n", "l.jsonl").status().message(),
            "l.jsonl:2: not a JSON object");
  std::string wrong = good;
  wrong.replace(wrong.find("\"steps\":200"), 11, "\"steps\":\"x\"");
  EXPECT_THAT(std::string(ParseRunHistory(wrong, "l.jsonl").status().message()),
              HasSubstr("l.jsonl:1: 'steps' is missing or of another type"));
  EXPECT_THAT(std::string(ParseRunHistory("{}", "l.jsonl").status().message()),
              HasSubstr("'predicted' is missing"));
}

// What corrections divide by is neither zero nor without end.
TEST(RunHistoryTest, NumbersThatNoRunHasAreErrors) {
  for (const double factor : {0.0, -1.0, 1e-300, 1e300}) {
    const auto read = ParseRunHistory(RunHistoryLine(RunOf("dp=1", 1, 1, factor)), "l.jsonl");
    EXPECT_THAT(std::string(read.status().message()), HasSubstr("l.jsonl:1: 'factor' is "));
  }
  for (const double seconds : {-1.0, 1e300}) {
    const auto read = ParseRunHistory(RunHistoryLine(RunOf("dp=1", seconds, 1)), "l.jsonl");
    EXPECT_THAT(std::string(read.status().message()), HasSubstr("l.jsonl:1: 'step_seconds' is "));
  }
}

TEST(CorrectionsTest, AreNoneWithoutRuns) {
  const CostCorrections corrections = Corrections({});
  EXPECT_EQ(corrections.step, 1);
  EXPECT_EQ(corrections.runs, 0);
  EXPECT_TRUE(corrections.plans.empty());
}

TEST(CorrectionsTest, OneBadRunDoesNotCount) {
  const CostCorrections corrections = Corrections(
      {RunOf("dp=1", 1, 1.1), RunOf("dp=1", 1, 9), RunOf("dp=1", 1, 1.2), RunOf("dp=2", 1, 2)});
  EXPECT_DOUBLE_EQ(corrections.plans.at("dp=1"), 1.2);
  EXPECT_DOUBLE_EQ(corrections.plans.at("dp=2"), 2);
  // Of a plan that was not run: between those of the two.
  EXPECT_DOUBLE_EQ(corrections.step, 1.6);
  EXPECT_EQ(corrections.runs, 4);
}

// Corrections do not add up from run to run.
TEST(CorrectionsTest, AFactorThatWasAppliedIsTakenOut) {
  const CostCorrections corrections = Corrections({RunOf("dp=1", 1, 2), RunOf("dp=1", 2, 2, 2)});
  EXPECT_DOUBLE_EQ(corrections.plans.at("dp=1"), 2);
}

TEST(CorrectionsTest, TheNewestRunsCount) {
  std::vector<RunHistoryEntry> history(20, RunOf("dp=1", 1, 5));
  history.insert(history.end(), 9, RunOf("dp=1", 1, 3));
  EXPECT_DOUBLE_EQ(Corrections(history).plans.at("dp=1"), 3);
}

TEST(CorrectionsTest, OtherModelsClustersAndShortRunsDoNotCount) {
  std::vector<RunHistoryEntry> history(3, RunOf("dp=1", 1, 5));
  history[0].model_digest = 1;
  history[1].cluster_digest = 1;
  history[2].steps = 3;
  EXPECT_EQ(Corrections(history).runs, 0);
}

}  // namespace
}  // namespace weft
