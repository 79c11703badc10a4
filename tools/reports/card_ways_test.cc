#include "tools/reports/card_ways.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::IsEmpty;

// Ranks 0 and 1 sum by NCCL, 0 to 2 through the host; what 1 sends to 0 goes both ways.
PlannedCards TwoWays() {
  PlannedCards cards;
  cards.groups.groups = {{RankId(0), RankId(1)}};
  cards.groups.host = {{{RankId(0), RankId(1), RankId(2)}, "worker:2 has no GPU"}};
  cards.sends.sends = {{{RankId(0), RankId(1)}, {3, 4}}, {{RankId(1), RankId(0)}, {5}}};
  cards.sends.host = {{{RankId(1), RankId(0)}, {6}, "another order"}};
  return cards;
}

TEST(CardWaysTest, EachGroupAndPairHasItsWay) {
  EXPECT_EQ(CardWaysJson(TwoWays()), nlohmann::ordered_json::parse(R"([
    {"what": "collectives", "ranks": [0, 1], "way": "nccl"},
    {"what": "sends", "ranks": [0, 1], "channels": 2, "way": "nccl"},
    {"what": "sends", "ranks": [1, 0], "channels": 1, "way": "nccl"},
    {"what": "collectives", "ranks": [0, 1, 2], "way": "host",
     "host_because": "worker:2 has no GPU"},
    {"what": "sends", "ranks": [1, 0], "channels": 1, "way": "host",
     "host_because": "another order"}])"));
  EXPECT_EQ(CardWaysJson({}).dump(), "[]");
}

TEST(CardWaysTest, ForPeopleItIsALine) {
  EXPECT_EQ(CardWaysText(TwoWays()),
            "between GPUs: collectives of 1 group and sends of 2 pairs by NCCL; collectives of 1 "
            "group and sends of 1 pair through the host (worker:2 has no GPU; another order)\n");
  PlannedCards host = TwoWays();
  host.groups.groups.clear();
  host.sends = {};
  EXPECT_EQ(CardWaysText(host),
            "between GPUs: collectives of 1 group through the host (worker:2 has no GPU)\n");
  EXPECT_THAT(CardWaysText({}), IsEmpty());
}

}  // namespace
}  // namespace weft
