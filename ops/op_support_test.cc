#include "ops/op_support.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"

namespace weft {
namespace {

std::string NamesOfThoseThat(bool (*hold)(const OpSchema&)) {
  std::vector<std::string> names;
  for (const OpSchema* schema : OpRegistry::Global().All()) {
    if (hold(*schema)) names.push_back(schema->FullName());
  }
  return absl::StrJoin(names, " ");
}

TEST(TrainSupportText, EveryOperatorWithoutAGradientSaysWhy) {
  ASSERT_GT(OpRegistry::Global().All().size(), 200u);
  EXPECT_EQ(NamesOfThoseThat([](const OpSchema& schema) {
              const TrainSupport support = TrainSupportOf(schema);
              const bool has_none = support == TrainSupport::kNone || support == TrainSupport::kNo;
              return has_none && schema.gradient_reason().empty();
            }),
            "")
      << "say why in the declaration: NoGradient(reason), GradientMissing(reason)";
}

TEST(TrainSupportText, NoOperatorWithARuleHasAReason) {
  EXPECT_EQ(NamesOfThoseThat([](const OpSchema& schema) {
              return TrainSupportOf(schema) == TrainSupport::kRule &&
                     !schema.gradient_reason().empty();
            }),
            "");
}

std::string TextOf(const std::string& domain, const std::string& op) {
  return TrainSupportText(*OpRegistry::Global().Find(domain, op));
}

TEST(TrainSupportText, SaysWhich) {
  EXPECT_EQ(TextOf("", "Relu"), "rule");
  EXPECT_EQ(TextOf("", "CastLike"), "expanded");
  EXPECT_EQ(TextOf("", "Bernoulli"), "none: random");
  EXPECT_EQ(TextOf("ai.onnx.ml", "SVMClassifier"),
            "missing: trained elsewhere, with fixed coefficients");
}

}  // namespace
}  // namespace weft
