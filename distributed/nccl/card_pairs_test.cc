#include "distributed/nccl/card_pairs.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = PeerAction::Kind;
using Actions = std::vector<PeerAction>;

// Channel 10 a + b goes from rank a to rank b; 100 more is another one of the two.
PeerAction Of(Kind kind, int channel, int micro_batch) {
  const int ends = channel % 100;
  return {kind, channel, RankId(ends / 10), RankId(ends % 10), micro_batch, "", {}};
}
PeerAction Send(int channel, int micro_batch) { return Of(Kind::kSend, channel, micro_batch); }
PeerAction Wait(int channel, int micro_batch) { return Of(Kind::kWaitSent, channel, micro_batch); }
PeerAction Receive(int channel, int micro_batch) {
  return Of(Kind::kReceive, channel, micro_batch);
}
PeerAction Guard() { return {.kind = Kind::kGuard}; }
PeerAction Meet(const std::string& name, const std::vector<RankId>& group) {
  return {.kind = Kind::kCollective, .name = name, .group = group};
}

const CardPair kForward = {RankId(0), RankId(1)};
const CardPair kBackward = {RankId(1), RankId(0)};

// The forward of all micro-batches, then the backward of all.
TEST(ChoosePairsTest, OneOrderOnBothEndsIsTaken) {
  const Actions first = {Send(1, 0), Wait(1, 0),     Send(1, 1),
                         Wait(1, 1), Receive(10, 1), Receive(10, 0)};
  const Actions last = {Receive(1, 0), Receive(1, 1), Send(10, 1),
                        Wait(10, 1),   Send(10, 0),   Wait(10, 0)};
  const CardPairChoice choice = ChoosePairs({kForward, kBackward}, {first, last});
  EXPECT_THAT(choice.pairs, ElementsAre(kForward, kBackward));
  EXPECT_THAT(choice.refusal, IsEmpty());
}

TEST(ChoosePairsTest, AnotherOrderOfChannelsIsRefused) {
  const Actions first = {Send(1, 0), Send(101, 0), Wait(1, 0), Wait(101, 0)};
  const Actions last = {Receive(101, 0), Receive(1, 0)};
  const CardPairChoice choice = ChoosePairs({kForward}, {first, last});
  EXPECT_THAT(choice.pairs, IsEmpty());
  EXPECT_EQ(choice.refusal, "worker:1 receives in another order than worker:0 sends");
}

TEST(ChoosePairsTest, AnotherOrderOfMicroBatchesIsRefused) {
  const Actions first = {Send(1, 0), Wait(1, 0), Send(1, 1), Wait(1, 1)};
  const Actions last = {Receive(1, 1), Receive(1, 0)};
  EXPECT_THAT(ChoosePairs({kForward}, {first, last}).pairs, IsEmpty());
}

// A step that ends at its guard would leave the message behind.
TEST(ChoosePairsTest, AMessageIsOnOneSideOfTheGuard) {
  const Actions first = {Send(1, -1), Guard(), Wait(1, -1)};
  EXPECT_THAT(ChoosePairs({kForward}, {first, {Guard(), Receive(1, -1)}}).pairs, IsEmpty());
  EXPECT_THAT(ChoosePairs({kForward}, {first, {Receive(1, -1), Guard()}}).pairs, SizeIs(1));
}

// Both send two before they receive. The host keeps the first ones; NCCL does not.
TEST(ChoosePairsTest, SendsThatWaitForEachOtherAreRefused) {
  const Actions first = {Send(1, 0), Wait(1, 0), Send(1, 1), Receive(10, 0), Receive(10, 1)};
  const Actions last = {Send(10, 0), Wait(10, 0), Send(10, 1), Receive(1, 0), Receive(1, 1)};
  const CardPairChoice choice = ChoosePairs({kForward, kBackward}, {first, last});
  EXPECT_THAT(choice.pairs, IsEmpty());
  EXPECT_THAT(choice.refusal, HasSubstr("ahead"));
  // One of them through the host is enough.
  EXPECT_THAT(ChoosePairs({kForward}, {first, last}).pairs, SizeIs(1));
}

// Rank 0 waits in a collective for rank 1, which waits for what rank 0 sends after it.
TEST(ChoosePairsTest, CollectivesAreWaitedFor) {
  const std::vector<RankId> both = {RankId(0), RankId(1)};
  const Actions first = {Meet("a", both), Send(1, 0), Wait(1, 0)};
  EXPECT_THAT(ChoosePairs({kForward}, {first, {Receive(1, 0), Meet("a", both)}}).pairs, IsEmpty());
  EXPECT_THAT(ChoosePairs({kForward}, {first, {Meet("a", both), Receive(1, 0)}}).pairs, SizeIs(1));
}

}  // namespace
}  // namespace weft
