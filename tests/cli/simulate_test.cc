// graph_runner simulate, as a person calls it.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/command_run.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Simulate : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(RunCommand({"example", "mlp", "-o", Path("mlp.onnx")}).exit_code, 0);
    Write("cluster.yaml", R"(hosts:
  - {name: alpha, workers: [{address: 10.0.0.1:4000}]}
  - {name: beta, workers: [{address: 10.0.0.2:4000}]}
links:
  - {from: alpha, to: beta, bandwidth: 1Gbit/s, latency: 100us}
)");
  }
  static std::string Path(const std::string& name) { return TestPath(name); }
  static void Write(const std::string& name, const std::string& text) {
    WriteTestFile(TestPath(name), text);
  }
  static CommandResult Run(std::vector<std::string> flags) {
    std::vector<std::string> arguments = {"simulate",  Path("mlp.onnx"),     "--batch",  "64",
                                          "--cluster", Path("cluster.yaml"), "--output", "json"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunCommand(arguments);
  }
  static nlohmann::json Json(const std::vector<std::string>& flags) {
    const CommandResult result = Run(flags);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false);
  }
};

TEST_F(Simulate, SaysWhereTheTimeOfAStepGoes) {
  const auto json = Json({"--parallel", "dp=2", "--steps", "2"});
  ASSERT_FALSE(json.is_discarded());
  const double step = json["step_seconds"];
  EXPECT_GT(step, 0);
  EXPECT_EQ(json["step_ends"].size(), 2u);
  ASSERT_EQ(json["ranks"].size(), 2u);
  for (const auto& rank : json["ranks"]) {
    EXPECT_GT(rank["compute_seconds"].get<double>(), 0);
    EXPECT_GT(rank["sent_bytes"].get<int64_t>(), 0);
  }
  EXPECT_EQ(json["links"][0]["link"], "host 0 -> host 1");
  EXPECT_FALSE(json.contains("stall"));
}

TEST_F(Simulate, TextHasARowPerRankAndLink) {
  const CommandResult result =
      RunCommand({"simulate", Path("mlp.onnx"), "--batch", "64", "--cluster", Path("cluster.yaml"),
                  "--parallel", "pp=2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("3 simulated steps of dp=1 x tp=1 x pp=2"),
                                HasSubstr("utilisation stage 0"), HasSubstr("worker:1"),
                                HasSubstr("host 0 -> host 1"), HasSubstr("\nuncalibrated: ")));
  const auto json = Json({"--parallel", "pp=2"});
  EXPECT_EQ(json["calibrated"], false);
  EXPECT_GT(json["measured_over_predicted"]["max"].get<double>(), 1);
}

TEST_F(Simulate, AScriptMakesALinkSlowerAndARankStop) {
  const double usual = Json({"--parallel", "dp=2"})["step_seconds"];
  Write("slow.yaml", "changes: [{step: 0, link: {from: alpha, to: beta}, slower: 20}]\n");
  const double slower = Json({"--parallel", "dp=2", "--script", Path("slow.yaml")})["step_seconds"];
  EXPECT_GT(slower, 2 * usual);
  Write("stop.yaml", "stall_timeout: 5s\nchanges: [{step: 1, worker: 'worker:1', stops: true}]\n");
  const auto json = Json({"--parallel", "dp=2", "--script", Path("stop.yaml")});
  EXPECT_EQ(json["step_ends"].size(), 1u);
  EXPECT_THAT(json["stall"]["text"].get<std::string>(),
              AllOf(HasSubstr("rank 0 waited 5s for collective"), HasSubstr("from rank 1 (step 1"),
                    HasSubstr("rank 1 has stopped")));
}

TEST_F(Simulate, WritesATimeline) {
  Json({"--parallel", "dp=2", "--timeline", Path("trace.json")});
  const auto trace = nlohmann::json::parse(ReadTestFile(Path("trace.json")), nullptr, false);
  ASSERT_FALSE(trace.is_discarded());
  EXPECT_GT(trace["traceEvents"].size(), 20u);
}

TEST_F(Simulate, RefusesAScriptThatDoesNotFit) {
  Write("wrong.yaml", "changes:\n  - {step: 1, worker: 'worker:9', slower: 2}\n");
  const CommandResult result = Run({"--parallel", "dp=2", "--script", Path("wrong.yaml")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("wrong.yaml:2:"), HasSubstr("the cluster has no worker 'worker:9'")));
}

}  // namespace
}  // namespace weft::testing
