#include "tools/commands/gradient_reasons.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "ops/op_support.h"

namespace weft {
namespace {

// What only Weft itself makes is not in the table.
bool IsPublic(const OpSchema& schema) { return schema.domain() != kWeftDomain; }

TEST(GradientReasons, EveryOperatorThatHasNoneByNatureSaysWhy) {
  std::vector<std::string> unexplained;
  for (const OpSchema* schema : OpRegistry::Global().All()) {
    if (!IsPublic(*schema) || schema->op_class() != OpClass::kCompute) continue;
    const bool none = TrainSupportOf(*schema) == TrainSupport::kNone;
    if (none && ReasonForNoGradient(schema->FullName()).empty()) {
      unexplained.push_back(schema->FullName());
    }
  }
  EXPECT_EQ(absl::StrJoin(unexplained, " "), "") << "say why in gradient_reasons.cc";
}

TEST(GradientReasons, NoOperatorWithAGradientHasOne) {
  for (const OpSchema* schema : OpRegistry::Global().All()) {
    const bool has_rule = TrainSupportOf(*schema) == TrainSupport::kRule;
    if (!IsPublic(*schema) || !has_rule) continue;
    EXPECT_EQ(ReasonForNoGradient(schema->FullName()), "") << schema->FullName();
  }
}

TEST(GradientReasons, TheTextSaysWhich) {
  EXPECT_EQ(GradientText(*OpRegistry::Global().Find("", "Relu")), "rule");
  EXPECT_EQ(GradientText(*OpRegistry::Global().Find("", "CastLike")), "expanded");
  EXPECT_EQ(GradientText(*OpRegistry::Global().Find("", "Bernoulli")), "none: random");
}

}  // namespace
}  // namespace weft
