// What `graph_runner op check` finds in ops with one mistake each.
#include "tools/models/op_check.h"

#include <map>
#include <string>

#include "gtest/gtest.h"
#include "ops/custom/op_library.h"
#include "platform/file_system.h"

namespace weft {
namespace {

std::string Library(const std::string& name) { return "ops/custom/" + name; }

// By check, what `op check` found; only findings.
std::map<std::string, std::string> Findings(const std::string& name) {
  const WeftOpDescriptor* const op = FindCustomOp("faulty", name);
  if (op == nullptr) return {{"load", "no such op"}};
  std::map<std::string, std::string> findings;
  for (const OpCheckResult& result : CheckCustomOp(*op)) {
    if (!result.status.ok()) findings[result.check] = std::string(result.status.message());
  }
  return findings;
}

class OpCheckTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const char* name : {"examples/swiglu.so", "testing/faulty_ops.so"}) {
      const auto library = LoadOpLibrary(RealFileSystem(), Library(name));
      ASSERT_TRUE(library.ok()) << library.status();
    }
  }
};

TEST_F(OpCheckTest, TheExampleHasNoFinding) {
  for (const char* name : {"SwiGlu", "SwiGluGrad"}) {
    for (const OpCheckResult& result : CheckCustomOp(*FindCustomOp("example", name))) {
      EXPECT_TRUE(result.status.ok()) << name << " " << result.check << ": " << result.status;
      const bool may_skip = std::string(name) == "SwiGluGrad" && result.check == "gradient";
      EXPECT_EQ(result.skipped, may_skip) << name << " " << result.check << ": " << result.what;
    }
  }
}

TEST_F(OpCheckTest, ARightOpHasNoFinding) { EXPECT_TRUE(Findings("None").empty()); }

TEST_F(OpCheckTest, AWrongGradientIsFound) {
  const auto findings = Findings("Gradient");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_NE(findings.at("gradient").find("gradient of input 0 against the numeric one"),
            std::string::npos)
      << findings.at("gradient");
}

TEST_F(OpCheckTest, AShapeFunctionThatSaysTooMuchIsFound) {
  const auto findings = Findings("Shape");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_NE(findings.at("memory").find("elements unwritten"), std::string::npos)
      << findings.at("memory");
}

TEST_F(OpCheckTest, AWriteBehindTheOutputIsFound) {
  const auto findings = Findings("Overrun");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_NE(findings.at("memory").find("writes beside output 0"), std::string::npos)
      << findings.at("memory");
}

TEST_F(OpCheckTest, AWrongShardingRuleIsFound) {
  const auto findings = Findings("Sharding");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_NE(findings.at("sharding").find("shards"), std::string::npos) << findings.at("sharding");
}

TEST_F(OpCheckTest, ARaceIsFound) {
  const auto findings = Findings("Race");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_NE(findings.at("loops").find("a race: iterations"), std::string::npos)
      << findings.at("loops");
}

}  // namespace
}  // namespace weft
