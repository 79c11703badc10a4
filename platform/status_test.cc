#include "platform/status.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "gtest/gtest.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::StatusOr<int> Parse(bool succeed) {
  if (succeed) return 7;
  return absl::InvalidArgumentError("not a number");
}

absl::StatusOr<std::string> ParseTwice(bool first, bool second) {
  WEFT_ASSIGN_OR_RETURN(const int one, Parse(first));
  int two = 0;
  WEFT_ASSIGN_OR_RETURN(two, Parse(second));
  return std::to_string(one + two);
}

absl::Status Check(const absl::Status& status, int& reached) {
  WEFT_RETURN_IF_ERROR(status);
  ++reached;
  return absl::OkStatus();
}

TEST(AssignOrReturn, AssignsDeclarationAndVariable) {
  const absl::StatusOr<std::string> sum = ParseTwice(true, true);
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ(*sum, "14");
}

TEST(AssignOrReturn, ReturnsTheFirstError) {
  EXPECT_EQ(ParseTwice(false, true).status(), absl::InvalidArgumentError("not a number"));
  EXPECT_EQ(ParseTwice(true, false).status(), absl::InvalidArgumentError("not a number"));
}

TEST(AssignOrReturn, MovesValuesThatCannotBeCopied) {
  const auto make = []() -> absl::StatusOr<std::unique_ptr<int>> {
    return std::make_unique<int>(3);
  };
  const auto use = [&make]() -> absl::StatusOr<int> {
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<int> value, make());
    return *value;
  };
  EXPECT_EQ(*use(), 3);
}

TEST(ReturnIfError, StopsAtAnErrorAndPassesOk) {
  int reached = 0;
  EXPECT_EQ(Check(absl::DataLossError("torn"), reached), absl::DataLossError("torn"));
  EXPECT_EQ(reached, 0);
  EXPECT_TRUE(Check(absl::OkStatus(), reached).ok());
  EXPECT_EQ(reached, 1);
}

TEST(Annotate, PrependsAndKeepsCodeAndPayload) {
  absl::Status status = absl::ResourceExhaustedError("needed 5 bytes");
  status.SetPayload("weft.test", absl::Cord("payload"));
  const absl::Status annotated = Annotate(status, "node \"Conv_1\"");
  EXPECT_EQ(annotated.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(annotated.message(), "node \"Conv_1\": needed 5 bytes");
  ASSERT_TRUE(annotated.GetPayload("weft.test").has_value());
  EXPECT_EQ(*annotated.GetPayload("weft.test"), "payload");
}

TEST(Annotate, KeepsOk) { EXPECT_TRUE(Annotate(absl::OkStatus(), "prefix").ok()); }

}  // namespace
}  // namespace weft
