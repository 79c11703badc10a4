#include "tools/reports/model_check.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

CheckFinding UnknownOperator() {
  return {Severity::kError, {"flat (Flaten)"}, 1, "Flaten: unknown operator", "write Flatten"};
}

TEST(JoinRefusal, AFindingThatIsTheCauseStandsAlone) {
  const auto findings = JoinRefusal(
      {UnknownOperator()}, absl::InvalidArgumentError("node 'flat' (Flaten): nothing runs it"));
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].severity, Severity::kError);
}

// The refusal was dropped: labels did not fit, and an operator off the path to the loss was shown.
TEST(JoinRefusal, ARefusalForAnotherReasonIsSaidBesideTheFinding) {
  const auto findings =
      JoinRefusal({UnknownOperator()}, absl::InvalidArgumentError("label 7 is no class of 5"));
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_THAT(findings[0].what + findings[1].what, HasSubstr("label 7 is no class of 5"));
  EXPECT_EQ(findings[0].severity, Severity::kError);
  EXPECT_EQ(findings[1].severity, Severity::kError);
}

TEST(JoinRefusal, WhatTrainsAllTheSameIsAWarning) {
  const auto findings = JoinRefusal({UnknownOperator()}, absl::OkStatus());
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
}

}  // namespace
}  // namespace weft
