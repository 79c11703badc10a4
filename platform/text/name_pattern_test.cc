#include "platform/text/name_pattern.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(NamePatternTest, StarsStandForAnyLetters) {
  EXPECT_TRUE(MatchesPattern("block0/*", "block0/attention/MatMul"));
  EXPECT_TRUE(MatchesPattern("block0/*", "block0/"));
  EXPECT_TRUE(MatchesPattern("*.weight", "a.b.weight"));
  EXPECT_TRUE(MatchesPattern("*a*b*c*", "xaxbxcx"));
  EXPECT_TRUE(MatchesPattern("*ab", "aab"));
  EXPECT_TRUE(MatchesPattern("*", ""));
  EXPECT_FALSE(MatchesPattern("block0/*", "block01/x"));
  EXPECT_FALSE(MatchesPattern("*a*b", "ba"));
}

TEST(NamePatternTest, QuestionMarksStandForOneLetter) {
  EXPECT_TRUE(MatchesPattern("fc?.bias", "fc1.bias"));
  EXPECT_FALSE(MatchesPattern("fc?.bias", "fc12.bias"));
  EXPECT_FALSE(MatchesPattern("fc?", "fc"));
}

TEST(NamePatternTest, NamesWithoutWildcardsMatchThemselves) {
  EXPECT_TRUE(MatchesPattern("a.b", "a.b"));
  EXPECT_FALSE(MatchesPattern("a.b", "a.bc"));
  EXPECT_FALSE(MatchesPattern("", "a"));
}

TEST(NamePatternTest, TheNameItselfWinsThenTheMostLetters) {
  const std::map<std::string, int> entries = {
      {"*", 0}, {"block1/*", 1}, {"block1/mlp/*", 2}, {"block1/mlp/Add", 3}};
  EXPECT_EQ(FindEntry(entries, "block1/mlp/Add")->second, 3);
  EXPECT_EQ(FindEntry(entries, "block1/mlp/Mul")->second, 2);
  EXPECT_EQ(FindEntry(entries, "block1/x")->second, 1);
  EXPECT_EQ(FindEntry(entries, "head")->second, 0);
  const std::map<std::string, int> names = {{"a", 1}};
  EXPECT_EQ(FindEntry(names, "b"), nullptr);
}

TEST(NamePatternTest, TheTextOfAStarEndsAtASlash) {
  EXPECT_EQ(TextOfFirstStar("block*", "block7/up/MatMul"), "7");
  EXPECT_EQ(TextOfFirstStar("block*/up/*", "block7/up/MatMul"), "7");
  EXPECT_EQ(TextOfFirstStar("*", "fc1/Gemm"), "fc1");
  EXPECT_EQ(TextOfFirstStar("*", "/fc1/Gemm"), "/fc1");
  EXPECT_EQ(TextOfFirstStar("fc1*", "fc1/Gemm"), "");
  EXPECT_EQ(TextOfFirstStar("?c*", "fc12"), "12");
  EXPECT_EQ(TextOfFirstStar("fc1*", "fc1"), "");
  EXPECT_EQ(TextOfFirstStar("fc1", "fc1"), "");
}

TEST(NamePatternTest, ASegmentIsNamedUpToTheFirstStar) {
  EXPECT_EQ(SegmentOfPattern("block*/up/*"), "block*");
  EXPECT_EQ(SegmentOfPattern("*"), "*");
  EXPECT_EQ(SegmentOfPattern("head"), "head");
}

}  // namespace
}  // namespace weft
