#include "executor/memory/unexpected_messages.h"

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <tuple>
#include <utility>

#include "graph/schedule/collective_schedule.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using Kind = CollectiveStep::Kind;

// One collective as all members see it.
using Members = std::vector<CollectiveSchedule>;

Members Of(int members, const std::function<CollectiveSchedule(int)>& of_member) {
  Members all;
  for (int m = 0; m < members; ++m) all.push_back(of_member(m));
  return all;
}

// The sums of `total` leaves, dealt out to the members in equal shares.
Members OrderedTree(int members, int total, int64_t elements) {
  std::vector<std::vector<LeafRange>> blocks;
  for (int m = 0; m < members; ++m) {
    blocks.push_back(AlignedBlocks(total * m / members, total * (m + 1) / members, total));
  }
  return Of(members, [&](int m) { return OrderedTreeAllReduce(blocks, m, total, elements); });
}

CollectiveSpec SpecOf(const Members& collective, int member, DType dtype = DType::kUint8) {
  CollectiveSpec spec;
  for (size_t m = 0; m < collective.size(); ++m) spec.group.push_back(RankId(static_cast<int>(m)));
  spec.dtype = dtype;
  spec.schedule = collective[member];
  return spec;
}

// The bound for rank `member`, whose thread runs these, of one byte an element, one after another.
int64_t BoundOf(const std::vector<Members>& collectives, int member, int peer) {
  std::vector<CollectiveSpec> specs;
  for (const Members& collective : collectives) specs.push_back(SpecOf(collective, member));
  std::vector<const CollectiveSpec*> pointers;
  for (const CollectiveSpec& spec : specs) pointers.push_back(&spec);
  return UnexpectedCollectiveBytes(pointers, RankId(peer));
}

// The truth, found by trying: one member stops before each of its steps in turn, all others go as
// far as they can, and what the peer has sent by then is held against the receives posted by then.
class StoppedMember {
 public:
  // All members run `collectives`, of the same group, in order.
  StoppedMember(const std::vector<Members>& collectives, int stopped, int peer)
      : steps_(collectives[0].size()), stopped_(stopped), peer_(peer) {
    for (size_t c = 0; c < collectives.size(); ++c) {
      for (size_t m = 0; m < steps_.size(); ++m) {
        for (const CollectiveStep& step : collectives[c][m].steps) {
          steps_[m].emplace_back(static_cast<int>(c), &step);
        }
      }
    }
  }

  // Most elements that were not asked for.
  int64_t MaxUnexpected() const {
    int64_t max_unexpected = 0;
    for (size_t stop = 0; stop <= steps_[stopped_].size(); ++stop) {
      max_unexpected = std::max(max_unexpected, SentWhenAt(stop) - PostedWhenAt(stop));
    }
    return max_unexpected;
  }

 private:
  using SimulatedStep = std::pair<int, const CollectiveStep*>;  // the collective, a step of it

  int64_t SentWhenAt(size_t stop) const {
    std::vector<size_t> next(steps_.size(), 0);
    std::map<std::tuple<int, int, int>, int> under_way;  // by collective, from, to
    int64_t sent = 0;
    const auto run = [&](int m, const SimulatedStep& simulated) {
      const auto& [collective, step] = simulated;
      if (step->kind == Kind::kSend) {
        ++under_way[{collective, m, step->peer}];
        if (m == peer_ && step->peer == stopped_) sent += step->source.count;
      } else if (step->kind == Kind::kReceive) {
        int& messages = under_way[{collective, step->peer, m}];
        if (messages == 0) return false;
        --messages;
      }
      return true;
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (int m = 0; m < static_cast<int>(steps_.size()); ++m) {
        const size_t end = m == stopped_ ? stop : steps_[m].size();
        while (next[m] < end && run(m, steps_[m][next[m]])) {
          ++next[m];
          moved = true;
        }
      }
    }
    return sent;
  }

  // A receive is posted in its turn, or before the send before it unless something sent by the
  // collective may still lie in its target.
  int64_t PostedWhenAt(size_t stop) const {
    const std::vector<SimulatedStep>& own = steps_[stopped_];
    int64_t posted = 0;
    for (size_t i = 0; i < std::min(stop + 1, own.size()); ++i) {
      const CollectiveStep& step = *own[i].second;
      if (step.kind != Kind::kReceive || step.peer != peer_) continue;
      if (i < stop || IsPostedBeforeSend(i)) posted += step.target.count;
    }
    return posted;
  }

  bool IsPostedBeforeSend(size_t i) const {
    const std::vector<SimulatedStep>& own = steps_[stopped_];
    if (i == 0 || own[i - 1].first != own[i].first) return false;
    if (own[i - 1].second->kind != Kind::kSend) return false;
    for (size_t j = 0; j < i; ++j) {
      if (own[j].first != own[i].first || own[j].second->kind != Kind::kSend) continue;
      const BufferRange& sent = own[j].second->source;
      const BufferRange& target = own[i].second->target;
      if (sent.buffer == target.buffer && sent.first < target.first + target.count &&
          target.first < sent.first + sent.count) {
        return false;
      }
    }
    return true;
  }

  std::vector<std::vector<SimulatedStep>> steps_;  // of each member
  const int stopped_;
  const int peer_;
};

TEST(UnexpectedChannelBytesTest, CountsTheMessagesOfAStepByTheirSender) {
  Partition partition;
  partition.rank = RankId(1);
  partition.micro_batches.resize(4);
  const auto add = [&](int from, int to, int64_t elements, bool per_micro_batch) {
    Channel channel;
    channel.from = RankId(from);
    channel.to = RankId(to);
    channel.dtype = DType::kFloat32;
    channel.shape = Shape({elements});
    channel.per_micro_batch = per_micro_batch;
    partition.channels.push_back(channel);
  };
  add(0, 1, 25, true);   // 4 times 100 bytes
  add(0, 1, 10, false);  // 40 bytes
  add(2, 1, 5, true);    // 4 times 20 bytes
  add(1, 2, 1000, true);
  EXPECT_EQ(UnexpectedChannelBytes(partition),
            (std::map<RankId, int64_t>{{RankId(0), 440}, {RankId(2), 80}}));
}

// A pipeline without a data axis has channels only.
TEST(UnexpectedCollectiveBytesTest, WithoutCollectivesNothingIsUnexpected) {
  EXPECT_EQ(UnexpectedCollectiveBytes({}, RankId(1)), 0);
}

TEST(UnexpectedCollectiveBytesTest, ARankOutsideTheGroupSendsNothing) {
  const Members pair = Of(2, [](int m) { return RecursiveDoublingAllReduce(2, m, 100); });
  EXPECT_EQ(BoundOf({pair}, 0, 1), 100);
  EXPECT_EQ(BoundOf({pair}, 0, 2), 0);
}

// One message each way. The receive, into scratch, is posted before the send; so a rank that has
// not sent yet may have one message of the peer, and no second one.
TEST(UnexpectedCollectiveBytesTest, TwoMembersThatExchangeAreOneMessageApart) {
  const Members all = Of(2, [](int m) { return RecursiveDoublingAllReduce(2, m, 100); });
  const CollectiveSpec spec = SpecOf(all, 0, DType::kFloat32);
  EXPECT_EQ(UnexpectedCollectiveBytes({&spec}, RankId(1)), 400);
  EXPECT_EQ(StoppedMember({all, all, all}, 0, 1).MaxUnexpected(), 100);
}

// Each thread is in one bucket at a time, and the peer at most in the next.
TEST(UnexpectedCollectiveBytesTest, BucketsCountByTheirLongestOnEachOfTheTwoThreads) {
  const auto bucket = [](int64_t elements, bool beside_compute) {
    CollectiveSpec spec =
        SpecOf(Of(2, [&](int m) { return RecursiveDoublingAllReduce(2, m, elements); }), 0);
    spec.beside_compute = beside_compute;
    return spec;
  };
  const CollectiveSpec first = bucket(1000, true);
  const CollectiveSpec second = bucket(3000, true);
  const CollectiveSpec norm = bucket(4, false);
  EXPECT_EQ(UnexpectedCollectiveBytes({&first, &second, &norm}, RankId(1)), 3004);
  EXPECT_EQ(UnexpectedCollectiveBytes({&first, &second}, RankId(1)), 3000);
}

// Member 3 sends 0 a quarter in each of 6 rounds. What 0 sends comes to 3 by 1 and 2, so 3 is up to
// 3 rounds ahead; and in the second half 0 receives where it has sent from before, so that the
// receive may come after the send that lets 3 go on: 4 quarters.
TEST(UnexpectedCollectiveBytesTest, ARingsPredecessorIsAsFarAheadAsTheRingIsLong) {
  const Members all = Of(4, [](int m) { return RingAllReduce(4, m, 400); });
  EXPECT_EQ(BoundOf({all}, 0, 3), 400);
  EXPECT_EQ(StoppedMember({all, all}, 0, 3).MaxUnexpected(), 400);
  EXPECT_EQ(BoundOf({all}, 0, 1), 0);
  EXPECT_EQ(BoundOf({all}, 0, 2), 0);
}

// Its receives have places of their own: 3 shards of those of 10, 20, 30 and 40.
TEST(UnexpectedCollectiveBytesTest, ARingThatGathersPostsInTime) {
  const Members all = Of(4, [](int m) { return RingAllGather({10, 20, 30, 40}, m); });
  EXPECT_EQ(BoundOf({all}, 0, 3), 3 * 40);
  // At most before its first step: the shards of 3, 2 and 1.
  EXPECT_EQ(StoppedMember({all, all}, 0, 3).MaxUnexpected(), 40 + 30 + 20);
}

// Member 1 sends all to 0 and receives the sum in the same place, so not before its message has
// left. 0 sends the sum, and is free to send in the next collective, too. Two messages of 100 were
// counted as one.
TEST(UnexpectedCollectiveBytesTest, ASumThatReplacesWhatWasSentIsAskedForLate) {
  const Members tree = Of(2, [](int m) { return TreeAllReduce(2, m, 100); });
  const Members exchange = Of(2, [](int m) { return RecursiveDoublingAllReduce(2, m, 100); });
  EXPECT_EQ(StoppedMember({tree, exchange}, 1, 0).MaxUnexpected(), 200);
  EXPECT_EQ(BoundOf({tree, exchange}, 1, 0), 200);
}

// Strict mode, 9 micro-batches on 3 ranks. Rank 1 has the sums of 3 and of 4 to 5, and sends 0 its
// third of both, 16 each; once it has those of all it adds them and sends a result of 16. Rank 0,
// which has sent all of its own and asked for the first, may find 3 messages: they were counted as
// two. The bound has 2 in a row, one for the third member and a late one.
TEST(UnexpectedCollectiveBytesTest, ResultsComeBehindTheBlocksOfAnOrderedSum) {
  const Members ordered = OrderedTree(3, 9, 48);
  EXPECT_EQ(StoppedMember({ordered}, 0, 1).MaxUnexpected(), 3 * 16);
  EXPECT_EQ(BoundOf({ordered}, 0, 1), (2 + 1 + 1) * 16);
}

// Whoever starts a broadcast waits for nobody, also where this rank hands it on: of 4 members the
// third receives from the first and sends to the fourth.
TEST(UnexpectedCollectiveBytesTest, AllBroadcastsOfAStepMayBeUnexpected) {
  const auto broadcast = [](int64_t elements) {
    return Of(4, [&](int m) { return TreeBroadcast(4, m, 0, elements); });
  };
  const std::vector<Members> some = {broadcast(1), broadcast(2), broadcast(4), broadcast(8),
                                     broadcast(16)};
  for (const int member : {1, 2}) {
    EXPECT_EQ(StoppedMember(some, member, 0).MaxUnexpected(), 31);
    EXPECT_EQ(BoundOf(some, member, 0), 31);
  }
  EXPECT_EQ(BoundOf(some, 3, 2), 31);
  EXPECT_EQ(BoundOf(some, 3, 0), 0);
}

// Draws collectives of one group.
class CollectiveDraw {
 public:
  CollectiveDraw(int members, unsigned seed) : members_(members), random_(seed) {}

  Members Draw() {
    const int64_t elements = Below(100) + 1;
    const int root = Below(members_);
    std::vector<int> hosts(members_);
    for (int& host : hosts) host = Below(2);
    const std::vector<std::vector<int64_t>> pieces = {Counts(), Counts(), Counts(),
                                                      Counts(), Counts(), Counts()};
    switch (Below(11)) {
      case 0:
        return Of(members_, [&](int m) { return RingAllReduce(members_, m, elements); });
      case 1:
        return Of(members_,
                  [&](int m) { return RecursiveDoublingAllReduce(members_, m, elements); });
      case 2:
        return Of(members_, [&](int m) { return HalvingDoublingAllReduce(members_, m, elements); });
      case 3:
        return Of(members_, [&](int m) { return TreeAllReduce(members_, m, elements); });
      case 4:
        return Of(members_, [&](int m) { return HierarchicalAllReduce(hosts, m, elements); });
      case 5:
        return OrderedTree(members_, members_ + Below(3 * members_), elements);
      case 6:
        return Of(members_, [&](int m) { return RingAllGather(pieces[0], m); });
      case 7:
        return Of(members_, [&](int m) { return RingReduceScatter(pieces[0], m); });
      case 8:
        return Of(members_, [&](int m) {
          return PairwiseAllToAll({pieces.begin(), pieces.begin() + members_}, m);
        });
      case 9:
        return Of(members_, [&](int m) { return TreeReduce(members_, m, root, elements); });
      default:
        return Of(members_, [&](int m) { return TreeBroadcast(members_, m, root, elements); });
    }
  }
  int Below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }

 private:
  std::vector<int64_t> Counts() {
    std::vector<int64_t> counts;
    for (int m = 0; m < members_; ++m) counts.push_back(Below(50));
    return counts;
  }

  const int members_;
  std::mt19937 random_;
};

TEST(UnexpectedCollectiveBytesTest, NoOrderOfEventsExceedsTheBound) {
  for (unsigned seed = 0; seed < 120; ++seed) {
    const int members = 2 + static_cast<int>(seed % 5);
    CollectiveDraw draw(members, seed);
    std::vector<Members> collectives(1 + draw.Below(6));
    for (Members& collective : collectives) {
      collective = draw.Draw();
      ASSERT_TRUE(ValidateSchedules(collective).ok()) << ValidateSchedules(collective);
    }
    for (int member = 0; member < members; ++member) {
      for (int peer = 0; peer < members; ++peer) {
        if (peer == member) continue;
        EXPECT_LE(StoppedMember(collectives, member, peer).MaxUnexpected(),
                  BoundOf(collectives, member, peer))
            << "seed " << seed << ": rank " << member << " of " << members << ", from " << peer;
      }
    }
  }
}

}  // namespace
}  // namespace weft
