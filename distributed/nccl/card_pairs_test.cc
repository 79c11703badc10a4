#include "distributed/nccl/card_pairs.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
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
  return {kind, channel, RankId(ends / 10), RankId(ends % 10), micro_batch, 0, "", {}};
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

// Pairs of one rank each with the channels that a way has.
using Ways = std::map<CardPair, std::vector<int64_t>>;
Ways ChannelsOf(const std::vector<CardSends>& sends) {
  Ways ways;
  for (const CardSends& one : sends) {
    std::vector<int64_t>& channels = ways[one.pair];
    channels.insert(channels.end(), one.channels.begin(), one.channels.end());
  }
  return ways;
}
Ways JoinedOf(const CardPairChoice& choice) { return ChannelsOf(choice.sends); }
Ways HostOf(const CardPairChoice& choice) { return ChannelsOf(choice.host); }

// With messages of so many bytes.
PeerAction Of(PeerAction action, int64_t bytes) {
  action.bytes = bytes;
  return action;
}

// The forward of all micro-batches, then the backward of all.
TEST(ChoosePairsTest, OneOrderOnBothEndsIsTaken) {
  const Actions first = {Send(1, 0), Wait(1, 0),     Send(1, 1),
                         Wait(1, 1), Receive(10, 1), Receive(10, 0)};
  const Actions last = {Receive(1, 0), Receive(1, 1), Send(10, 1),
                        Wait(10, 1),   Send(10, 0),   Wait(10, 0)};
  const CardPairChoice choice = ChoosePairs({kForward, kBackward}, {first, last});
  EXPECT_THAT(PairsOf(choice), ElementsAre(kForward, kBackward));
  EXPECT_EQ(JoinedOf(choice), (Ways{{kForward, {1}}, {kBackward, {10}}}));
  EXPECT_THAT(choice.host, IsEmpty());
  EXPECT_THAT(choice.refusal, IsEmpty());
}

// One of two channels that cross each other is enough: that with fewer bytes in a step.
TEST(ChoosePairsTest, OfTwoOrdersOneGoesThroughTheHost) {
  for (const bool first_is_small : {false, true}) {
    const int64_t bytes = first_is_small ? 4 : 400;
    const Actions first = {Of(Send(1, 0), bytes), Of(Send(101, 0), 40), Wait(1, 0), Wait(101, 0)};
    const Actions last = {Receive(101, 0), Receive(1, 0)};
    const CardPairChoice choice = ChoosePairs({kForward}, {first, last});
    const int64_t by_nccl = first_is_small ? 101 : 1;
    EXPECT_EQ(JoinedOf(choice), (Ways{{kForward, {by_nccl}}}));
    EXPECT_EQ(HostOf(choice), (Ways{{kForward, {102 - by_nccl}}}));
    EXPECT_EQ(choice.refusal, "worker:1 receives in another order than worker:0 sends");
    EXPECT_EQ(choice.host[0].reason, choice.refusal);
  }
}

// 101 crosses two others, which have fewer bytes each than it, and more than half of its bytes.
TEST(ChoosePairsTest, AChannelInTheWayOfTwoOthersGoes) {
  const Actions first = {Of(Send(101, 0), 60), Of(Send(1, 0), 40), Of(Send(201, 0), 40),
                         Wait(1, 0),           Wait(101, 0),       Wait(201, 0)};
  const Actions last = {Receive(1, 0), Receive(201, 0), Receive(101, 0)};
  const CardPairChoice choice = ChoosePairs({kForward}, {first, last});
  EXPECT_EQ(JoinedOf(choice), (Ways{{kForward, {1, 201}}}));
  EXPECT_EQ(HostOf(choice), (Ways{{kForward, {101}}}));
}

// Whatever the orders: what is taken has one on both ends, and nothing else could be added.
TEST(ChoosePairsTest, WhatIsTakenIsOneOrderAndAsMuchAsCanBe) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<int> sent;
    for (int channel = 0; channel < 6; ++channel) {
      for (int times = 0; times < 2; ++times) sent.push_back(100 * channel + 1);
    }
    std::shuffle(sent.begin(), sent.end(), random);
    std::vector<int> received = sent;
    for (int swaps = 0; swaps < 3; ++swaps) {
      std::swap(received[random() % received.size()], received[random() % received.size()]);
    }
    const auto actions = [](const std::vector<int>& order, Kind kind) {
      Actions actions;
      std::map<int, int> micro_batches;
      for (const int channel : order)
        actions.push_back(Of(kind, channel, micro_batches[channel]++));
      return actions;
    };
    const CardPairChoice choice =
        ChoosePairs({kForward}, {actions(sent, Kind::kSend), actions(received, Kind::kReceive)});
    ASSERT_THAT(choice.sends, SizeIs(1));
    const auto agree = [&](const std::vector<int64_t>& channels) {
      std::vector<int> left, right;
      const auto is_one = [&](int channel) {
        return std::find(channels.begin(), channels.end(), channel) != channels.end();
      };
      std::copy_if(sent.begin(), sent.end(), std::back_inserter(left), is_one);
      std::copy_if(received.begin(), received.end(), std::back_inserter(right), is_one);
      return left == right;
    };
    const std::vector<int64_t>& taken = choice.sends[0].channels;
    EXPECT_TRUE(agree(taken)) << round;
    const size_t others = choice.host.empty() ? 0 : choice.host[0].channels.size();
    EXPECT_EQ(taken.size() + others, 6u);
    for (size_t i = 0; i < others; ++i) {
      std::vector<int64_t> more = taken;
      more.push_back(choice.host[0].channels[i]);
      EXPECT_FALSE(agree(more)) << round;
    }
  }
}

TEST(ChoosePairsTest, AnotherOrderOfMicroBatchesIsRefused) {
  const Actions first = {Send(1, 0), Wait(1, 0), Send(1, 1), Wait(1, 1)};
  const Actions last = {Receive(1, 1), Receive(1, 0)};
  const CardPairChoice choice = ChoosePairs({kForward}, {first, last});
  EXPECT_THAT(choice.sends, IsEmpty());
  EXPECT_EQ(HostOf(choice), (Ways{{kForward, {1}}}));
}

// A step that ends at its guard would leave the message behind.
TEST(ChoosePairsTest, AMessageIsOnOneSideOfTheGuard) {
  const Actions first = {Send(1, -1), Guard(), Wait(1, -1)};
  EXPECT_THAT(ChoosePairs({kForward}, {first, {Guard(), Receive(1, -1)}}).sends, IsEmpty());
  EXPECT_THAT(ChoosePairs({kForward}, {first, {Receive(1, -1), Guard()}}).sends, SizeIs(1));
}

// A pipeline's last stage: gradients in the step, the loss after its guard, where the first stage
// has it before.
TEST(ChoosePairsTest, TheLossAloneGoesThroughTheHost) {
  const Actions last = {Of(Send(10, 0), 400),
                        Of(Wait(10, 0), 400),
                        Of(Send(10, 1), 400),
                        Of(Wait(10, 1), 400),
                        Guard(),
                        Of(Send(110, -1), 4),
                        Of(Wait(110, -1), 4)};
  const Actions first = {Receive(10, 0), Receive(10, 1), Receive(110, -1), Guard()};
  const CardPairChoice choice = ChoosePairs({kBackward}, {first, last});
  EXPECT_EQ(JoinedOf(choice), (Ways{{kBackward, {10}}}));
  EXPECT_EQ(HostOf(choice), (Ways{{kBackward, {110}}}));
}

// Both send two before they receive. The host keeps the first ones; NCCL does not. One of them
// through the host is enough: that with fewer bytes.
TEST(ChoosePairsTest, OfSendsThatWaitForEachOtherOneIsLeftToTheHost) {
  for (const int64_t bytes : {4, 400}) {
    const Actions first = {Of(Send(1, 0), bytes), Of(Wait(1, 0), bytes), Send(1, 1), Receive(10, 0),
                           Receive(10, 1)};
    const Actions last = {Of(Send(10, 0), 40), Of(Wait(10, 0), 40), Send(10, 1), Receive(1, 0),
                          Receive(1, 1)};
    const CardPairChoice choice = ChoosePairs({kForward, kBackward}, {first, last});
    const Ways forward = {{kForward, {1}}};
    const Ways backward = {{kBackward, {10}}};
    EXPECT_EQ(JoinedOf(choice), bytes < 40 ? backward : forward);
    EXPECT_EQ(HostOf(choice), bytes < 40 ? forward : backward);
    EXPECT_THAT(choice.refusal, HasSubstr("ahead"));
    EXPECT_THAT(ChoosePairs({kForward}, {first, last}).sends, SizeIs(1));
  }
}

// Rank 0 only waits for the ring of the others: what it waits for is not in it.
TEST(ChoosePairsTest, WhatWaitsForARingIsNotLeftToTheHost) {
  const CardPair onward = {RankId(1), RankId(2)};
  const CardPair back = {RankId(2), RankId(1)};
  const Actions outside = {Of(Send(1, 0), 4), Of(Wait(1, 0), 4)};
  const Actions first = {Of(Send(12, 0), 40), Of(Wait(12, 0), 40), Receive(21, 0), Receive(1, 0)};
  const Actions last = {Of(Send(21, 0), 50), Of(Wait(21, 0), 50), Receive(12, 0)};
  const CardPairChoice choice = ChoosePairs({kForward, onward, back}, {outside, first, last});
  EXPECT_EQ(JoinedOf(choice), (Ways{{kForward, {1}}, {back, {21}}}));
  EXPECT_EQ(HostOf(choice), (Ways{{onward, {12}}}));
}

// Two rings, one after the other.
TEST(ChoosePairsTest, EachRingIsBroken) {
  const Actions first = {Of(Send(1, 0), 4),    Of(Wait(1, 0), 4),    Receive(10, 0),
                         Of(Send(101, 0), 50), Of(Wait(101, 0), 50), Receive(110, 0)};
  const Actions last = {Of(Send(10, 0), 40), Of(Wait(10, 0), 40), Receive(1, 0),
                        Of(Send(110, 0), 5), Of(Wait(110, 0), 5), Receive(101, 0)};
  const CardPairChoice choice = ChoosePairs({kForward, kBackward}, {first, last});
  EXPECT_EQ(JoinedOf(choice), (Ways{{kForward, {101}}, {kBackward, {10}}}));
  EXPECT_EQ(HostOf(choice), (Ways{{kForward, {1}}, {kBackward, {110}}}));
}

// Rank 0 waits in a collective for rank 1, which waits for what rank 0 sends after it.
TEST(ChoosePairsTest, CollectivesAreWaitedFor) {
  const std::vector<RankId> both = {RankId(0), RankId(1)};
  const Actions first = {Meet("a", both), Send(1, 0), Wait(1, 0)};
  EXPECT_THAT(ChoosePairs({kForward}, {first, {Receive(1, 0), Meet("a", both)}}).sends, IsEmpty());
  EXPECT_THAT(ChoosePairs({kForward}, {first, {Meet("a", both), Receive(1, 0)}}).sends, SizeIs(1));
  // A send that is waited for in it is left to the host.
  const Actions waits = {Send(1, 0), Wait(1, 0), Meet("a", both)};
  const Actions meets = {Meet("a", both), Receive(1, 0)};
  const CardPairChoice choice = ChoosePairs({kForward}, {waits, meets});
  EXPECT_THAT(choice.sends, IsEmpty());
  EXPECT_EQ(HostOf(choice), (Ways{{kForward, {1}}}));
}

}  // namespace
}  // namespace weft
