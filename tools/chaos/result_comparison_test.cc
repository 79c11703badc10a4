#include "tools/chaos/result_comparison.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ChaosResult ResultOf(const std::string& sha256, const std::map<int64_t, std::string>& losses) {
  return {"unused.onnx", sha256, losses};
}

std::vector<std::string> Compare(const ExpectedResult& expected, const ChaosResult& result,
                                 const Exactness& exactness) {
  return CompareResults(RealFileSystem(), expected, result, exactness);
}

TEST(ExpectedResultTest, IsADigestOrALoss) {
  const std::string digest(64, 'A');
  EXPECT_EQ(ParseExpectedResult(digest)->sha256, std::string(64, 'a'));
  EXPECT_EQ(ParseExpectedResult("2.31")->final_loss, 2.31);
  EXPECT_THAT(std::string(ParseExpectedResult("2.31x").status().message()),
              HasSubstr("'2.31x' is neither a SHA-256"));
}

TEST(CompareResultsTest, BitsAreDigestsAndLossesAsWritten) {
  const ExpectedResult expected{"", "aa", {{0, "2.5"}, {1, "2.25"}}, {}};
  const Exactness bits{true, 1e-5};
  EXPECT_THAT(Compare(expected, ResultOf("aa", {{0, "2.5"}, {1, "2.25"}}), bits), IsEmpty());
  EXPECT_THAT(Compare(expected, ResultOf("bb", {{0, "2.5"}, {1, "2.250001"}}), bits),
              ElementsAre("the model has SHA-256 bb instead of aa",
                          "the loss of step 1 is 2.250001 instead of 2.25"));
}

TEST(CompareResultsTest, NumbersAreNear) {
  const ExpectedResult expected{"", "aa", {{0, "2.5"}, {1, "nan"}}, {}};
  const Exactness near{false, 1e-5};
  EXPECT_THAT(Compare(expected, ResultOf("bb", {{0, "2.50001"}, {1, "nan"}}), near), IsEmpty());
  EXPECT_THAT(Compare(expected, ResultOf("bb", {{0, "2.5001"}}), near),
              ElementsAre("the loss of step 0 is 2.5001 instead of 2.5"));
}

TEST(CompareResultsTest, TheLastLossMayBeAllThatIsKnown) {
  ExpectedResult expected;
  expected.final_loss = 2.25;
  const Exactness near{false, 1e-5};
  EXPECT_THAT(Compare(expected, ResultOf("bb", {{0, "2.5"}, {1, "2.25"}}), near), IsEmpty());
  EXPECT_THAT(Compare(expected, ResultOf("bb", {{0, "2.5"}}), near),
              ElementsAre("the last loss is 2.5 instead of 2.25"));
  EXPECT_THAT(Compare(expected, ResultOf("bb", {}), near),
              ElementsAre("the last loss is not told instead of 2.25"));
}

}  // namespace
}  // namespace weft
