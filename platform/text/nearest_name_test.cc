#include "platform/text/nearest_name.h"

#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

// Published examples (Wagner and Fischer, 1974; the article "Levenshtein distance" of Wikipedia).
TEST(EditDistanceTest, CountsLettersThatChange) {
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("saturday", "sunday"), 3u);
  EXPECT_EQ(EditDistance("flaw", "lawn"), 2u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
  EXPECT_EQ(EditDistance("Relu", "Relu"), 0u);
}

TEST(DidYouMeanTest, NamesTheNearestUnlessNoneIsNear) {
  EXPECT_EQ(DidYouMean("node", {"nodes", "workers", "link"}), ", did you mean 'nodes'?");
  EXPECT_EQ(DidYouMean("latency", {"nodes", "workers", "link"}), "");
  EXPECT_EQ(DidYouMean(std::string(2000, 'a'), {std::string(2000, 'a')}), "");
}

}  // namespace
}  // namespace weft
