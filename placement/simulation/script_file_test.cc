#include "placement/simulation/script_file.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using Kind = ScriptedChange::Kind;

// Two hosts, two workers; rank 0 runs on the second one.
class ScriptFileTest : public ::testing::Test {
 protected:
  ScriptFileTest() {
    cluster_.workers.resize(2);
    cluster_.workers[0].name = "worker:0";
    cluster_.workers[0].host = "alpha";
    cluster_.workers[1].name = "worker:1";
    cluster_.workers[1].host = "beta";
    model_.ranks.resize(2);
    model_.ranks[0].worker = 1;
    model_.ranks[1].worker = 0;
    model_.links.push_back({.name = "alpha -> beta", .from_host = 0, .to_host = 1});
    model_.links.push_back({.name = "beta -> alpha", .from_host = 1, .to_host = 0});
  }
  SimulationScript Read(const std::string& text) {
    const auto script = ParseScriptFile(text, "script.yaml", cluster_, model_);
    EXPECT_TRUE(script.ok()) << script.status();
    return script.ok() ? *script : SimulationScript();
  }
  std::string ErrorOf(const std::string& change) {
    const std::string text = "changes:\n  - " + change + "\n";
    return std::string(ParseScriptFile(text, "script.yaml", cluster_, model_).status().message());
  }

  ClusterSpec cluster_;
  StepModel model_;
};

TEST_F(ScriptFileTest, ReadsChangesOfRanksWorkersAndLinks) {
  const SimulationScript script = Read(
      "stall_timeout: 30s\n"
      "changes:\n"
      "  - {step: 3, worker: 'worker:0', slower: 2.5}\n"
      "  - {at: 10ms, rank: 0, stops: true}\n"
      "  - {step: 2, link: {from: beta, to: alpha}, slower: 10}\n");
  EXPECT_EQ(script.stall_timeout_seconds, 30);
  ASSERT_EQ(script.changes.size(), 3u);
  EXPECT_EQ(script.changes[0].kind, Kind::kRankSlower);
  EXPECT_EQ(script.changes[0].index, 1);
  EXPECT_EQ(script.changes[0].at_step, 3);
  EXPECT_EQ(script.changes[0].factor, 2.5);
  EXPECT_EQ(script.changes[1].kind, Kind::kRankStops);
  EXPECT_EQ(script.changes[1].at_step, -1);
  EXPECT_DOUBLE_EQ(script.changes[1].at_seconds, 0.01);
  EXPECT_EQ(script.changes[2].kind, Kind::kLinkSlower);
  EXPECT_EQ(script.changes[2].index, 1);
}

TEST_F(ScriptFileTest, ErrorsSayWhereAndWhatWasExpected) {
  EXPECT_THAT(ErrorOf("{step: 1, worker: 'worker:7', slower: 2}"), HasSubstr("script.yaml:2:"));
  EXPECT_THAT(ErrorOf("{step: 1, worker: 'worker:7', slower: 2}"),
              HasSubstr("the cluster has no worker 'worker:7', did you mean 'worker:0'?"));
  EXPECT_THAT(ErrorOf("{step: 1, rank: 2, slower: 2}"), HasSubstr("'rank'"));
  EXPECT_THAT(ErrorOf("{step: 1, rank: 1, slower: 0}"), HasSubstr("expected a number > 0"));
  EXPECT_THAT(ErrorOf("{rank: 1, slower: 2}"), HasSubstr("either 'at' (a time) or 'step'"));
  EXPECT_THAT(ErrorOf("{step: 1, at: 1s, rank: 1, slower: 2}"), HasSubstr("either 'at'"));
  EXPECT_THAT(ErrorOf("{step: 1, rank: 1}"), HasSubstr("either 'slower' or 'stops: true'"));
  EXPECT_THAT(ErrorOf("{step: 1, slower: 2}"),
              HasSubstr("needs one of 'worker', 'rank' and 'link'"));
  EXPECT_THAT(ErrorOf("{step: 1, link: {from: alpha, to: gamma}, slower: 2}"),
              HasSubstr("the cluster has no host 'gamma'"));
  EXPECT_THAT(ErrorOf("{step: 1, link: {from: alpha, to: alpha}, slower: 2}"),
              HasSubstr("the plan sends nothing over it"));
  EXPECT_THAT(ErrorOf("{step: 1, link: {from: alpha, to: beta}, stops: true}"),
              HasSubstr("a link can get slower, but not stop"));
  EXPECT_THAT(ErrorOf("{step: 1, rank: 1, slow: 2}"), HasSubstr("did you mean 'slower'?"));
}

}  // namespace
}  // namespace weft
