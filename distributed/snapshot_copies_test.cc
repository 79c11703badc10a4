// Four workers copy their states while they run: at any end two memories have the newest whole one.
#include "distributed/snapshot_copies.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "distributed/coordinator.h"
#include "distributed/in_process_cluster.h"
#include "distributed/in_process_transport.h"
#include "distributed/recovery/held_snapshots.h"
#include "distributed/testing/sum_job.h"
#include "distributed/transport_communicator.h"
#include "executor/variables/snapshot_image.h"
#include "executor/variables/variable_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/clock.h"
#include "tensor/device.h"

namespace weft {
namespace {

using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kRanks = 4;
constexpr char kVersion[] = "1";

class SnapshotCopiesTest : public ::testing::Test {
 protected:
  // The weight of the sum job lies whole on each rank, and rank 0 has its primary copy.
  static JobMembership Membership(uint64_t job_id, int64_t every) {
    JobMembership membership;
    membership.job_id = job_id;
    membership.version = kVersion;
    membership.stall_timeout_seconds = 60;
    if (every == 0) return membership;
    membership.replication.every = every;
    for (const Partition& partition : testing::SumJobPartitions(kRanks)) {
      membership.replication.keepers.push_back((partition.rank.value + 1) % kRanks);
      membership.replication.bytes.push_back(
          LayOutSnapshot(SnapshotVariables(partition, /*primaries=*/true)).bytes);
    }
    return membership;
  }
  static StepRange Steps(int64_t first, int64_t count) {
    StepRange range;
    range.program = "train";
    range.first_step = first;
    range.count = count;
    range.scalars = {{"rate", 0.5}};
    return range;
  }
  void Start(const JobMembership& membership) {
    ASSERT_TRUE(coordinator_.Join(membership).ok());
    const auto added = coordinator_.AddProgram("train", testing::SumJobPartitions(kRanks), "data");
    ASSERT_TRUE(added.ok()) << added.status();
    needed_ = *added;
  }
  void Run(int64_t first, int64_t count) {
    const absl::Status status = coordinator_.RunSteps({Steps(first, count)}, nullptr);
    ASSERT_TRUE(status.ok()) << status;
  }
  // By step: whose states are held whole, and how often.
  std::map<int64_t, std::multiset<int>> Held() {
    std::map<int64_t, std::multiset<int>> held;
    const auto states = coordinator_.AskAll(HeldStateRequest{.verify = true});
    EXPECT_TRUE(states.ok()) << states.status();
    for (const HeldState& state : *states) {
      for (const HeldSnapshot& one : state.snapshots) {
        if (one.is_whole) held[one.key.step].insert(one.key.rank);
      }
    }
    return held;
  }
  // The first element of the weight, in what this worker holds of rank 0.
  float WeightIn(int worker, int64_t step) {
    const SnapshotKey key = {7, 0, step};
    const SnapshotLayout layout =
        LayOutSnapshot(SnapshotVariables(testing::SumJobPartitions(kRanks)[0], true));
    const auto part =
        coordinator_.Ask(worker, ReadHeldRequest{.key = key, .offset = 0, .bytes = layout.bytes});
    EXPECT_TRUE(part.ok()) << part.status();
    if (!part.ok()) return 0;
    const auto bytes = std::as_bytes(std::span(part->bytes));
    const auto read = ParseSnapshot(bytes, layout.bytes, "image");
    EXPECT_TRUE(read.ok()) << read.status();
    float value = 0;
    std::memcpy(&value, part->bytes.data() + read->entries.at(0).offset, sizeof(value));
    return value;
  }

  InProcessCluster cluster_{kRanks, testing::OpenSumJobInput, kVersion};
  Coordinator coordinator_{cluster_.clients()};
  std::vector<MemoryRequirement> needed_;
};

const std::multiset<int> kAllTwice = {0, 0, 1, 1, 2, 2, 3, 3};

TEST_F(SnapshotCopiesTest, EachStateIsInTwoMemories) {
  Start(Membership(7, 100));
  Run(0, 1);
  // One before the first step.
  EXPECT_EQ(Held(), (std::map<int64_t, std::multiset<int>>{{0, kAllTwice}}));
  Run(1, 99);
  const auto held = Held();
  EXPECT_EQ(held, (std::map<int64_t, std::multiset<int>>{{0, kAllTwice}, {100, kAllTwice}}));
  // A step takes 0.5 x (2 + 4 + 6 + 8) from it.
  for (const int worker : {0, 1}) {
    EXPECT_EQ(WeightIn(worker, 0), 0);
    EXPECT_EQ(WeightIn(worker, 100), -100 * 10);
  }
  EXPECT_TRUE(absl::IsNotFound(
      coordinator_.Ask(2, ReadHeldRequest{.key = {7, 0, 100}, .offset = 0, .bytes = 1}).status()));
}

// Whatever the copies' pace, the newest step and the one before are whole when the steps end.
TEST_F(SnapshotCopiesTest, TheNewestTwoStay) {
  Start(Membership(7, 1));
  Run(0, 250);
  Held();  // which waits for what travels: the next step makes one
  Run(250, 250);
  const auto held = Held();
  EXPECT_LE(held.size(), 2u);
  EXPECT_EQ(held.rbegin()->second, kAllTwice);
  EXPECT_THAT(held.rbegin()->first, Ge(251));
  EXPECT_EQ(WeightIn(1, held.rbegin()->first), -10 * static_cast<float>(held.rbegin()->first));
}

TEST_F(SnapshotCopiesTest, TheRequirementHasTheirMemory) {
  Start(Membership(7, 10));
  const Replication replication = Membership(7, 10).replication;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    const size_t kept = (rank + kRanks - 1) % kRanks;
    EXPECT_EQ(needed_[rank].copies_bytes, 2 * (replication.bytes[rank] + replication.bytes[kept]));
  }
}

// A job that takes the state up keeps it until it has copies of its own; any other job gives it up.
TEST_F(SnapshotCopiesTest, AnotherJobGivesUpWhatIsHeld) {
  Start(Membership(7, 10));
  Run(0, 20);
  JobMembership next = Membership(8, 10);
  next.recovers_job_id = 7;
  Start(next);
  EXPECT_EQ(Held().rbegin()->second, kAllTwice);
  // Its weight begins anew.
  const auto weight = coordinator_.ReadVariables({"w"});
  ASSERT_TRUE(weight.ok()) << weight.status();
  EXPECT_EQ(weight->at("w").data<float>()[0], 0);
  Run(20, 1);
  Held();  // which waits for what travels
  Run(21, 9);
  const auto states = coordinator_.AskAll(HeldStateRequest{});
  ASSERT_TRUE(states.ok()) << states.status();
  for (const HeldState& state : *states) {
    for (const HeldSnapshot& one : state.snapshots) EXPECT_EQ(one.key.job_id, 8u);
  }
  Start(Membership(9, 0));
  EXPECT_THAT(Held(), IsEmpty());
}

TEST_F(SnapshotCopiesTest, TheStateIsHeldOnDemand) {
  Start(Membership(7, 0));
  Run(0, 5);
  EXPECT_THAT(Held(), IsEmpty());
  const auto held = coordinator_.AskAll(HoldStateRequest{.step = 5});
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(held->at(3).key, (SnapshotKey{7, 3, 5}));
  EXPECT_EQ(Held(), (std::map<int64_t, std::multiset<int>>{{5, {0, 1, 2, 3}}}));
  EXPECT_EQ(WeightIn(0, 5), -50);
  // Its steps go on: that state gets old.
  Run(5, 1);
  EXPECT_THAT(Held(), IsEmpty());
}

// Keepers that expect another size than the state has.
TEST_F(SnapshotCopiesTest, AStateOfAnotherSizeEndsTheJob) {
  JobMembership membership = Membership(7, 10);
  ++membership.replication.bytes[2];
  Start(membership);
  const absl::Status status = coordinator_.RunSteps({Steps(0, 1)}, nullptr);
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("a snapshot of worker:2 has"));
}

// One of several ranks with a variable of so many elements, which no other has.
class LargeRank {
 public:
  LargeRank(InProcessHub& hub, int rank, const std::vector<int64_t>& elements,
            const std::vector<int32_t>& keepers)
      : rank_(rank), elements_(elements[static_cast<size_t>(rank)]) {
    SnapshotCopiesOptions options;
    options.transport = hub.NewTransport(RankId(rank));
    communicator_ = std::make_unique<TransportCommunicator>(*options.transport, RealClock(),
                                                            JobIdentity{7, 1}, absl::Seconds(60));
    options.communicator = communicator_.get();
    options.clock = &RealClock();
    options.variables = &variables_;
    options.held = &held_;
    options.identity = {7, 1};
    options.rank = RankId(rank);
    options.replication.every = 1;
    options.replication.keepers = keepers;
    for (const int64_t count : elements) {
      options.replication.bytes.push_back(LayOutSnapshot({ShardOf(count)}).bytes);
    }
    options.stall_timeout = absl::Seconds(60);
    auto copies = SnapshotCopies::Open(std::move(options));
    EXPECT_TRUE(copies.ok()) << copies.status();
    copies_ = *std::move(copies);
    EXPECT_TRUE(variables_.Add({ShardOf(elements_)}).ok());
    Partition partition;
    partition.variables = {ShardOf(elements_)};
    const ValueId w = partition.end.AddVariable(
        "w", {ValueKind::kTensor, DType::kFloat32, Shape({elements_})}, Tensor(), true);
    partition.end.SetVariableUpdate("w", w);
    copies_->Add(partition);
  }
  ~LargeRank() {
    copies_.reset();
    communicator_->EndTransfers();
  }

  // The state after each of the steps from `first` on, with a snapshot after each that can be.
  void Run(int64_t first, int64_t last) {
    for (int64_t step = first; step < last; ++step) {
      EXPECT_TRUE(variables_.Write("w", ValueAt(rank_, elements_, step)).ok());
      const absl::Status status = step == 0 ? copies_->BeforeStep(0) : copies_->AfterStep(step);
      EXPECT_TRUE(status.ok()) << status;
      // Pieces travel meanwhile, and the next state is another one.
      if (step % 3 == 0) copies_->Settle();
    }
    copies_->Settle();
  }
  // The newest step of which the state of this rank is held here; -1: none is. It must be right.
  int64_t NewestOf(int rank, int64_t elements) const {
    int64_t newest = -1;
    for (const HeldSnapshot& one : held_.State(/*verify=*/true).snapshots) {
      if (one.key.rank != rank) continue;
      EXPECT_TRUE(one.is_whole) << "rank " << rank << ", step " << one.key.step;
      ExpectState(one, elements);
      newest = std::max(newest, one.key.step);
    }
    return newest;
  }

 private:
  static VariableShard ShardOf(int64_t elements) {
    VariableShard shard;
    shard.name = "w";
    shard.dtype = DType::kFloat32;
    shard.global_shape = shard.local_shape = Shape({elements});
    shard.is_primary = true;
    return shard;
  }
  static Tensor ValueAt(int rank, int64_t elements, int64_t step) {
    std::vector<float> values(static_cast<size_t>(elements));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 4093 + 10000 * static_cast<size_t>(step)) +
                  0.25F * static_cast<float>(rank);
    }
    return Tensor::Of<float>({elements}, values);
  }
  void ExpectState(const HeldSnapshot& one, int64_t elements) const {
    std::string bytes;
    while (static_cast<int64_t>(bytes.size()) < one.bytes) {
      const auto offset = static_cast<int64_t>(bytes.size());
      const auto part = held_.Read(one.key, offset, std::min(kHeldPartBytes, one.bytes - offset));
      ASSERT_TRUE(part.ok()) << part.status();
      bytes += part->bytes;
    }
    const auto layout = ParseSnapshot(std::as_bytes(std::span(bytes)), one.bytes, "image");
    ASSERT_TRUE(layout.ok()) << layout.status();
    const Tensor expected = ValueAt(one.key.rank, elements, one.key.step);
    ASSERT_EQ(static_cast<size_t>(layout->entries.at(0).bytes()), expected.bytes());
    EXPECT_EQ(std::memcmp(bytes.data() + layout->entries[0].offset, expected.raw_data(),
                          expected.bytes()),
              0)
        << "rank " << one.key.rank << ", step " << one.key.step;
  }

  const int rank_;
  const int64_t elements_;
  HeldSnapshots held_;
  std::unique_ptr<TransportCommunicator> communicator_;
  VariableStore variables_{CpuDevice()};
  std::unique_ptr<SnapshotCopies> copies_;
};

// Many messages from one, one from another; each with one keeper, or two with the same.
TEST(LargeSnapshotsTest, TravelInPieces) {
  const std::vector<int64_t> elements = {2500000, 1000, 600000};
  for (const std::vector<int32_t>& keepers :
       {std::vector<int32_t>{1, 2, 0}, {2, 2, 0}, {1, 0, 0}}) {
    InProcessHub hub(3);
    std::vector<std::unique_ptr<LargeRank>> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.push_back(std::make_unique<LargeRank>(hub, rank, elements, keepers));
    }
    std::vector<std::thread> threads;
    for (const auto& rank : ranks) {
      threads.emplace_back([one = rank.get()] { one->Run(0, 20); });
    }
    for (std::thread& thread : threads) thread.join();
    const int64_t newest = ranks[0]->NewestOf(0, elements[0]);
    EXPECT_GE(newest, 1);
    for (size_t rank = 0; rank < 3; ++rank) {
      const auto keeper = static_cast<size_t>(keepers[rank]);
      EXPECT_EQ(ranks[rank]->NewestOf(static_cast<int>(rank), elements[rank]), newest);
      EXPECT_EQ(ranks[keeper]->NewestOf(static_cast<int>(rank), elements[rank]), newest);
    }
    // Ends side by side, as ranks of a job do.
    std::vector<std::thread> ends;
    for (auto& rank : ranks) ends.emplace_back([&rank] { rank.reset(); });
    for (std::thread& thread : ends) thread.join();
  }
}

}  // namespace
}  // namespace weft
