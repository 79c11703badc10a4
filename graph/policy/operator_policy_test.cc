#include "graph/policy/operator_policy.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

OperatorPolicy Policy(const std::vector<std::string>& allow, const std::vector<std::string>& deny) {
  auto policy = OperatorPolicy::Create(allow, deny);
  EXPECT_TRUE(policy.ok()) << policy.status();
  return *std::move(policy);
}

bool Allows(const OperatorPolicy& policy, const char* domain, const char* op) {
  const absl::Status status = policy.Check(domain, op);
  EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kPermissionDenied) << status;
  return status.ok();
}

TEST(OperatorPolicy, WithoutPatternsAllIsAllowed) {
  const OperatorPolicy policy;
  EXPECT_TRUE(policy.allows_all());
  EXPECT_TRUE(Allows(policy, "", "Loop"));
  EXPECT_TRUE(Allows(policy, "example", "SwiGlu"));
}

TEST(OperatorPolicy, ANameAloneIsOfOnnxsOwnDomain) {
  const OperatorPolicy policy = Policy({}, {"Loop"});
  EXPECT_FALSE(Allows(policy, "", "Loop"));
  EXPECT_FALSE(Allows(policy, "ai.onnx", "Loop"));
  EXPECT_TRUE(Allows(policy, "example", "Loop"));
  EXPECT_TRUE(Allows(policy, "", "loop"));
  EXPECT_TRUE(Allows(policy, "", "Loops"));
  EXPECT_FALSE(Allows(Policy({}, {"ai.onnx::Loop"}), "", "Loop"));
  EXPECT_FALSE(Allows(Policy({}, {"ai.*::Loop"}), "", "Loop"));
}

TEST(OperatorPolicy, AListOfAllowedOnesForbidsAllOthers) {
  const OperatorPolicy policy = Policy({"*", "example::Swi*"}, {});
  EXPECT_TRUE(Allows(policy, "", "Relu"));
  EXPECT_TRUE(Allows(policy, "example", "SwiGlu"));
  EXPECT_FALSE(Allows(policy, "example", "Other"));
  EXPECT_FALSE(Allows(policy, "ai.onnx.ml", "Scaler"));
  EXPECT_FALSE(Allows(policy, "ai.weft", "Send"));
}

TEST(OperatorPolicy, WhatIsDeniedIsDeniedWhateverIsAllowed) {
  const OperatorPolicy policy = Policy({"*::*"}, {"example::*", "?oop"});
  EXPECT_FALSE(Allows(policy, "example", "SwiGlu"));
  EXPECT_FALSE(Allows(policy, "", "Loop"));
  EXPECT_TRUE(Allows(policy, "", "If"));
  EXPECT_TRUE(Allows(policy, "examples", "SwiGlu"));
}

TEST(OperatorPolicy, ErrorsNameOperatorFlagAndPattern) {
  EXPECT_EQ(Policy({}, {"example::*"}).Check("example", "Evil").message(),
            "operator 'example::Evil' is denied by --deny-ops 'example::*'");
  EXPECT_THAT(std::string(Policy({"Relu"}, {}).Check("", "Lo\x1bop").message()),
              AllOf(HasSubstr("operator 'Lo\\033op' is not allowed"), HasSubstr("--allow-ops")));
}

TEST(OperatorPolicy, APatternNeedsDomainAndName) {
  for (const char* const bad : {"", "::", "::Relu", "example::", "a::b::c", "a:::b"}) {
    const auto policy = OperatorPolicy::Create({}, {bad});
    EXPECT_EQ(policy.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(policy.status().message()),
                AllOf(HasSubstr("--deny-ops"), HasSubstr("DOMAIN::NAME")));
  }
}

TEST(OperatorPolicy, SaysWhichPatternsFitNothingThatIsKnown) {
  const std::vector<std::string> known = {"Loop", "Relu", "ai.weft::Send"};
  EXPECT_THAT(Policy({"Rel*", "Rulu"}, {"Lop", "ai.weft::send"}).Unmatched(known),
              ElementsAre("--allow-ops 'Rulu'", "--deny-ops 'Lop'", "--deny-ops 'ai.weft::send'"));
  // Libraries that are not loaded have domains that nobody knows.
  EXPECT_THAT(Policy({}, {"corp::Anything", "*::Loop", "*"}).Unmatched(known), IsEmpty());
}

TEST(OperatorPolicy, IsThatOfTheProcess) {
  EXPECT_TRUE(CurrentOperatorPolicy().allows_all());
  SetOperatorPolicy(Policy({}, {"Loop"}));
  EXPECT_FALSE(Allows(CurrentOperatorPolicy(), "", "Loop"));
  SetOperatorPolicy({});
  EXPECT_TRUE(CurrentOperatorPolicy().allows_all());
}

}  // namespace
}  // namespace weft
