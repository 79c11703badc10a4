#include "ops/defs/movement/reshape_factors.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

// "[2a][3b,4c] -> [2a,3b][4c]": sizes and names of the factors of each dimension; whole ones in
// capitals.
std::string OperandText(const FactorRule& rule, const OperandFactors& operand) {
  std::string text;
  for (const std::vector<int>& dim : operand.dims) {
    std::vector<std::string> factors;
    for (const int factor : dim) {
      const bool whole = rule.factors[factor].kind == FactorKind::kWhole;
      factors.push_back(
          absl::StrCat(rule.factors[factor].size,
                       std::string(1, static_cast<char>((whole ? 'A' : 'a') + factor))));
    }
    absl::StrAppend(&text, "[", absl::StrJoin(factors, ","), "]");
  }
  return text;
}

std::string FactorText(const Shape& from, const Shape& to) {
  FactorRule rule;
  OperandFactors from_factors, to_factors;
  AppendReshapeFactors(from, to, rule, from_factors, to_factors);
  return absl::StrCat(OperandText(rule, from_factors), " -> ", OperandText(rule, to_factors));
}

TEST(ReshapeFactorsTest, EqualShapesShareTheirDimensions) {
  EXPECT_EQ(FactorText({2, 3}, {2, 3}), "[2a][3b] -> [2a][3b]");
}

TEST(ReshapeFactorsTest, ADimensionSplitsIntoHeads) {
  EXPECT_EQ(FactorText({5, 7, 12}, {5, 7, 3, 4}), "[5a][7b][3c,4d] -> [5a][7b][3c][4d]");
}

TEST(ReshapeFactorsTest, DimensionsJoin) {
  EXPECT_EQ(FactorText({5, 7, 3, 4}, {35, 12}), "[5a][7b][3c][4d] -> [5a,7b][3c,4d]");
}

TEST(ReshapeFactorsTest, WithoutCommonBoundaryTheRestIsWhole) {
  EXPECT_EQ(FactorText({6, 4, 5}, {4, 6, 5}), "[2a,3B][4E][5f] -> [2a,2C][6D][5f]");
}

TEST(ReshapeFactorsTest, OnesArePairedOrLeftOut) {
  EXPECT_EQ(FactorText({1, 5}, {1, 5}), "[1a][5b] -> [1a][5b]");
  EXPECT_EQ(FactorText({5, 1, 3}, {5, 3}), "[5a][][3b] -> [5a][3b]");
  EXPECT_EQ(FactorText({}, {1, 1}), " -> [][]");
}

TEST(ReshapeFactorsTest, WithoutElementsLeadingDimensionsAreShared) {
  EXPECT_EQ(FactorText({0, 3, 4}, {0, 12}), "[0a][3B][4C] -> [0a][12D]");
}

}  // namespace
}  // namespace weft
