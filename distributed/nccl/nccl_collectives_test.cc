#include "distributed/nccl/nccl_collectives.h"

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/casts.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/nccl/testing/fake_card.h"
#include "distributed/nccl/testing/fake_nccl.h"
#include "executor/interfaces/wait_info.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/clock.h"
#include "platform/mutex.h"
#include "platform/status_macros.h"
#include "tensor/dtype.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::weft::testing::FakeCard;
using ::weft::testing::FakeNcclWorld;
using Kind = DeviceCollectiveSpec::Kind;

constexpr absl::Duration kTimeout = absl::Seconds(20);

// The real clock; knows which threads have waited on it.
class NotingClock final : public Clock {
 public:
  absl::Time Now() override {
    const absl::Time now = RealClock().Now();
    MutexLock lock(noted_);
    return stood_still_.value_or(now);
  }
  // From now on, so that no time passes while somebody yields.
  void StandStill() {
    const absl::Time now = RealClock().Now();
    MutexLock lock(noted_);
    stood_still_ = now;
  }
  int64_t MonotonicNanos() override { return RealClock().MonotonicNanos(); }
  bool WaitUntil(CondVar& changed, Mutex& mutex, absl::Time deadline) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    {
      MutexLock lock(noted_);
      threads_.insert(std::this_thread::get_id());
    }
    return RealClock().WaitUntil(changed, mutex, deadline);
  }
  // Since the last call.
  size_t TakeThreads() {
    MutexLock lock(noted_);
    return std::exchange(threads_, {}).size();
  }

 private:
  Mutex noted_;
  std::set<std::thread::id> threads_ ABSL_GUARDED_BY(noted_);
  std::optional<absl::Time> stood_still_ ABSL_GUARDED_BY(noted_);
};

// A rank with a card, a stream and a buffer or two of floats.
class RankOfCards {
 public:
  RankOfCards(FakeNcclWorld& world, int rank, absl::Duration stall_timeout, int version = 0)
      : rank_(rank),
        card_(world, rank, /*seed=*/7 + static_cast<uint64_t>(rank), version),
        collectives_(std::make_unique<NcclCollectives>(card_.nccl(), card_, clock_, RankId(rank),
                                                       stall_timeout)) {
    stream_ = *card_.NewStream("collectives");
  }
  ~RankOfCards() {
    buffers_.clear();
    stream_.reset();
    collectives_.reset();
  }

  // One run over these values, and what is there afterwards in the first buffer.
  absl::StatusOr<std::vector<float>> Run(const DeviceCollectiveSpec& spec,
                                         const std::vector<std::vector<float>>& values,
                                         int64_t step = 0) {
    WEFT_ASSIGN_OR_RETURN(const auto handle, collectives_->Open(spec));
    std::vector<void*> addresses;
    std::vector<std::shared_ptr<Buffer>> buffers;
    for (const std::vector<float>& value : values) {
      WEFT_ASSIGN_OR_RETURN(buffers.emplace_back(), card_.Allocate(value.size() * sizeof(float)));
      addresses.push_back(buffers.back()->data());
      WEFT_RETURN_IF_ERROR(card_.CopyFromHost(*stream_, value.data(), addresses.back(),
                                              value.size() * sizeof(float)));
    }
    for (const auto& buffer : buffers) buffers_.push_back(buffer);
    WEFT_RETURN_IF_ERROR(collectives_->Enqueue(handle, {step, 2}, addresses.data(), *stream_));
    std::vector<float> result(values[0].size());
    const absl::Status copied =
        card_.CopyToHost(*stream_, addresses[0], result.data(), result.size() * sizeof(float));
    const absl::Status done = stream_->Synchronize(kTimeout);
    WEFT_RETURN_IF_ERROR(collectives_->status());
    WEFT_RETURN_IF_ERROR(copied);
    WEFT_RETURN_IF_ERROR(done);
    return result;
  }

  int rank_;
  NotingClock clock_;
  FakeCard card_;
  std::unique_ptr<NcclCollectives> collectives_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::shared_ptr<Buffer>> buffers_;
};

class NcclCollectivesTest : public ::testing::Test {
 protected:
  void Start(int ranks, absl::Duration stall_timeout = kTimeout) {
    for (int rank = 0; rank < ranks; ++rank) {
      ranks_.push_back(std::make_unique<RankOfCards>(world_, rank, stall_timeout));
      members_.push_back(RankId(rank));
    }
    const auto id = ranks_[0]->collectives_->NewGroupId();
    ASSERT_TRUE(id.ok()) << id.status();
    OnAll([&](RankOfCards& rank) {
      const absl::Status used = rank.collectives_->UseGroups({{members_, *id}}, 22809);
      EXPECT_TRUE(used.ok()) << used;
    });
  }
  void OnAll(const std::function<void(RankOfCards&)>& action) {
    std::vector<std::thread> threads;
    for (const auto& rank : ranks_) threads.emplace_back([&] { action(*rank); });
    for (std::thread& thread : threads) thread.join();
  }
  DeviceCollectiveSpec Spec(Kind kind, int rank, std::vector<int64_t> counts) const {
    DeviceCollectiveSpec spec;
    spec.kind = kind;
    spec.name = "bucket 0";
    spec.tensors = "tensor 'w@grad'";
    spec.group = members_;
    spec.member = rank;
    spec.counts = std::move(counts);
    spec.sent_bytes = 100;
    return spec;
  }
  // Two ranks, of which 0 sends to 1.
  void StartSends(absl::Duration stall_timeout = kTimeout) {
    for (int rank = 0; rank < 2; ++rank) {
      ranks_.push_back(std::make_unique<RankOfCards>(world_, rank, stall_timeout));
      members_.push_back(RankId(rank));
    }
    const auto id = ranks_[0]->collectives_->NewGroupId();
    ASSERT_TRUE(id.ok()) << id.status();
    OnAll([&](RankOfCards& rank) {
      const absl::Status used =
          rank.collectives_->UseGroups({{members_, *id, /*sends=*/true, {4, 7}}}, 22809);
      EXPECT_TRUE(used.ok()) << used;
    });
  }
  DeviceCollectiveSpec Transfer(int rank, int64_t elements) const {
    DeviceCollectiveSpec spec = Spec(rank == 0 ? Kind::kSend : Kind::kReceive, rank, {elements});
    spec.name = "h";
    spec.channel = 7;
    spec.tensors = "tensor 'h'";
    spec.sent_bytes = rank == 0 ? 4 * elements : 0;
    return spec;
  }
  // Every rank's results of the same collective.
  std::vector<std::vector<float>> RunAll(
      const std::function<DeviceCollectiveSpec(int)>& spec,
      const std::function<std::vector<std::vector<float>>(int)>& values) {
    std::vector<std::vector<float>> results(ranks_.size());
    OnAll([&](RankOfCards& rank) {
      const auto result = rank.Run(spec(rank.rank_), values(rank.rank_));
      EXPECT_TRUE(result.ok()) << result.status();
      if (result.ok()) results[static_cast<size_t>(rank.rank_)] = *result;
    });
    EXPECT_THAT(world_.violations(), IsEmpty());
    return results;
  }

  FakeNcclWorld world_;
  std::vector<RankId> members_;
  std::vector<std::unique_ptr<RankOfCards>> ranks_;
};

float ValueAt(int rank, int i) { return static_cast<float>(100 * (rank + 1) + i); }

TEST_F(NcclCollectivesTest, AnAllReduceSums) {
  Start(3);
  const auto results = RunAll([&](int rank) { return Spec(Kind::kAllReduce, rank, {2}); },
                              [](int rank) -> std::vector<std::vector<float>> {
                                return {{ValueAt(rank, 0), ValueAt(rank, 1)}};
                              });
  for (const auto& result : results) EXPECT_THAT(result, ElementsAre(600, 603));
}

// Two bfloat16, or two float16, in the place of a float.
template <typename Half>
float PairOf(Half first, Half second) {
  return absl::bit_cast<float>(static_cast<uint32_t>(first.bits) |
                               static_cast<uint32_t>(second.bits) << 16);
}

// The fake once took a sum for the bits of a number of 16 bits.
TEST_F(NcclCollectivesTest, SumsOf16BitsAreRoundedOnce) {
  Start(3);
  const auto sum_of = [&](DType dtype, float pair) {
    return RunAll(
        [&](int rank) {
          DeviceCollectiveSpec spec = Spec(Kind::kAllReduce, rank, {2});
          spec.dtype = dtype;
          return spec;
        },
        [&](int) -> std::vector<std::vector<float>> { return {{pair}}; });
  };
  const float halves = PairOf(ToFloat16(1.5F), ToFloat16(-683.0F));
  for (const auto& sums : sum_of(DType::kFloat16, halves)) {
    EXPECT_EQ(absl::bit_cast<uint32_t>(sums[0]),
              absl::bit_cast<uint32_t>(PairOf(ToFloat16(4.5F), ToFloat16(-2048.0F))));
  }
  const float short_ones = PairOf(ToBfloat16(1.5F), ToBfloat16(-87.0F));
  for (const auto& sums : sum_of(DType::kBfloat16, short_ones)) {
    EXPECT_EQ(absl::bit_cast<uint32_t>(sums[0]),
              absl::bit_cast<uint32_t>(PairOf(ToBfloat16(4.5F), ToBfloat16(-260.0F))));
  }
}

TEST_F(NcclCollectivesTest, ShardsAreGathered) {
  for (const std::vector<int64_t>& counts :
       std::vector<std::vector<int64_t>>{{2, 2, 2}, {1, 0, 3}}) {
    ranks_.clear();
    members_.clear();
    Start(3);
    const int64_t all = counts[0] + counts[1] + counts[2];
    const auto results = RunAll([&](int rank) { return Spec(Kind::kAllGather, rank, counts); },
                                [&](int rank) -> std::vector<std::vector<float>> {
                                  std::vector<float> own(static_cast<size_t>(all), -1);
                                  int64_t first = 0;
                                  for (int m = 0; m < rank; ++m) first += counts[m];
                                  for (int64_t i = first; i < first + counts[rank]; ++i) {
                                    own[i] = ValueAt(0, static_cast<int>(i));
                                  }
                                  return {own};
                                });
    for (const auto& result : results) {
      for (int i = 0; i < all; ++i) EXPECT_EQ(result[i], ValueAt(0, i));
    }
  }
}

TEST_F(NcclCollectivesTest, ShardsAreSummed) {
  for (const std::vector<int64_t>& counts :
       std::vector<std::vector<int64_t>>{{2, 2, 2}, {1, 0, 3}}) {
    ranks_.clear();
    members_.clear();
    Start(3);
    const int64_t all = counts[0] + counts[1] + counts[2];
    const auto results = RunAll([&](int rank) { return Spec(Kind::kReduceScatter, rank, counts); },
                                [&](int rank) -> std::vector<std::vector<float>> {
                                  std::vector<float> own;
                                  for (int i = 0; i < all; ++i) own.push_back(ValueAt(rank, i));
                                  return {own};
                                });
    int64_t first = 0;
    for (int rank = 0; rank < 3; ++rank) {
      for (int64_t i = first; i < first + counts[rank]; ++i) {
        EXPECT_EQ(results[rank][i], static_cast<float>(600 + 3 * i));
      }
      first += counts[rank];
    }
  }
}

TEST_F(NcclCollectivesTest, TheRootsValuesComeToAll) {
  Start(3);
  const auto results = RunAll(
      [&](int rank) {
        DeviceCollectiveSpec spec = Spec(Kind::kBroadcast, rank, {2});
        spec.root = 2;
        return spec;
      },
      [](int rank) -> std::vector<std::vector<float>> {
        return {{ValueAt(rank, 0), ValueAt(rank, 1)}};
      });
  for (const auto& result : results) EXPECT_THAT(result, ElementsAre(300, 301));
}

// Rank r sends m + 1 elements to member m, so it gets r + 1 from each.
TEST_F(NcclCollectivesTest, PiecesAreExchanged) {
  Start(2);
  const auto results = RunAll(
      [&](int rank) {
        DeviceCollectiveSpec spec = Spec(Kind::kAllToAll, rank, {1, 2});
        spec.received = {rank + 1, rank + 1};
        return spec;
      },
      [](int rank) -> std::vector<std::vector<float>> {
        const std::vector<float> target(static_cast<size_t>(2 * (rank + 1)), -1);
        return {target, {ValueAt(rank, 0), ValueAt(rank, 1), ValueAt(rank, 2)}};
      });
  EXPECT_THAT(results[0], ElementsAre(100, 200));
  EXPECT_THAT(results[1], ElementsAre(101, 102, 201, 202));
}

TEST_F(NcclCollectivesTest, ValuesGoFromOneToTheOther) {
  StartSends();
  for (int i = 0; i < 3; ++i) {
    const auto results = RunAll([&](int rank) { return Transfer(rank, 2); },
                                [&](int rank) -> std::vector<std::vector<float>> {
                                  return {{ValueAt(rank, i), ValueAt(rank, i + 1)}};
                                });
    EXPECT_THAT(results[1], ElementsAre(ValueAt(0, i), ValueAt(0, i + 1)));
    EXPECT_THAT(results[0], ElementsAre(ValueAt(0, i), ValueAt(0, i + 1)));
  }
  const std::vector<DeviceTraffic> traffic = ranks_[0]->collectives_->traffic();
  EXPECT_EQ(traffic[0].to, RankId(1));
  EXPECT_EQ(traffic[0].sent_bytes, 8);
}

// Groups of collectives and of sends have the same members.
TEST_F(NcclCollectivesTest, SendsGoOneWayInAGroupOfTheirOwn) {
  StartSends();
  NcclCollectives& collectives = *ranks_[0]->collectives_;
  DeviceCollectiveSpec spec = Transfer(0, 1);
  EXPECT_TRUE(collectives.Takes(spec));
  EXPECT_FALSE(collectives.Takes(Spec(Kind::kAllReduce, 0, {1})));
  for (const auto& [channel, is_taken] : {std::pair{4, true}, {5, false}, {-1, false}}) {
    spec.channel = channel;
    EXPECT_EQ(collectives.Takes(spec), is_taken) << channel;
  }
  spec.channel = 7;
  spec.group = {RankId(1), RankId(0)};
  spec.kind = Kind::kReceive;
  EXPECT_FALSE(collectives.Takes(spec));
}

TEST_F(NcclCollectivesTest, AReceiverThatDoesNotComeEndsTheSend) {
  StartSends(absl::Seconds(2));
  const auto result = ranks_[0]->Run(Transfer(0, 1), {{1}}, /*step=*/3);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(WaitText(result.status()),
            "the receiver of tensor 'h' (step 3, micro-batch 2) with worker:1");
  EXPECT_GE(world_.aborts(), 1);
}

TEST_F(NcclCollectivesTest, ASenderThatDoesNotComeIsFound) {
  StartSends(absl::Seconds(2));
  RankOfCards& receiver = *ranks_[1];
  const auto handle = receiver.collectives_->Open(Transfer(1, 1));
  ASSERT_TRUE(handle.ok());
  const auto buffer = receiver.card_.Allocate(sizeof(float));
  ASSERT_TRUE(buffer.ok());
  const auto other = receiver.card_.NewStream("other");
  ASSERT_TRUE(other.ok());
  void* const address = (*buffer)->data();
  ASSERT_TRUE(receiver.collectives_->Enqueue(*handle, {4, 0}, &address, **other).ok());
  const absl::Time begin = absl::Now();
  EXPECT_FALSE((*other)->Synchronize(kTimeout).ok());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(15));  // the abort lets it go on
  EXPECT_EQ(receiver.collectives_->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(WaitText(receiver.collectives_->status()),
            "tensor 'h' (step 4, micro-batch 0) from worker:0");
}

// NCCL launches collectives of such communicators in a thread of its own, some microseconds later,
// so each of them is asked about. The thread that launches the step does not sleep meanwhile.
TEST_F(NcclCollectivesTest, ACallInProgressIsAskedAboutAtOnce) {
  Start(2);
  world_.HoldCalls(/*questions=*/100);
  for (const auto& rank : ranks_) {
    rank->clock_.StandStill();
    rank->clock_.TakeThreads();
  }
  const auto results =
      RunAll([&](int rank) { return Spec(Kind::kAllReduce, rank, {1}); },
             [](int rank) -> std::vector<std::vector<float>> { return {{ValueAt(rank, 0)}}; });
  EXPECT_THAT(results[0], ElementsAre(ValueAt(0, 0) + ValueAt(1, 0)));
  for (const auto& rank : ranks_) {
    EXPECT_LE(rank->clock_.TakeThreads(), 1u) << "the watcher alone";
  }
}

TEST_F(NcclCollectivesTest, CountsWhatThePlanSays) {
  Start(2);
  RunAll([&](int rank) { return Spec(Kind::kAllReduce, rank, {1}); },
         [](int) -> std::vector<std::vector<float>> { return {{1}}; });
  const std::vector<DeviceTraffic> traffic = ranks_[0]->collectives_->traffic();
  ASSERT_THAT(traffic, SizeIs(1));
  EXPECT_EQ(traffic[0].name, "bucket 0");
  EXPECT_EQ(traffic[0].runs, 1);
  EXPECT_EQ(traffic[0].sent_bytes, 100);
}

TEST_F(NcclCollectivesTest, TakesOnlyGroupsInUseAndTypesThatCanBeSummed) {
  Start(2);
  NcclCollectives& collectives = *ranks_[0]->collectives_;
  DeviceCollectiveSpec spec = Spec(Kind::kAllReduce, 0, {1});
  EXPECT_TRUE(collectives.Takes(spec));
  spec.dtype = DType::kInt16;
  EXPECT_FALSE(collectives.Takes(spec));
  spec.kind = Kind::kBroadcast;
  EXPECT_TRUE(collectives.Takes(spec));
  ASSERT_TRUE(collectives.UseGroups({}, 22809).ok());
  EXPECT_FALSE(collectives.Takes(spec));
  ASSERT_TRUE(collectives.UseGroups({{members_, ""}}, 22809).ok());
  EXPECT_TRUE(collectives.Takes(spec));
}

TEST_F(NcclCollectivesTest, AnIdOfAnotherVersionIsRefused) {
  RankOfCards rank(world_, 0, kTimeout, 21805);
  const absl::Status used =
      rank.collectives_->UseGroups({{{RankId(0), RankId(1)}, std::string(128, 'x')}}, 22809);
  EXPECT_EQ(used.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(used.message()), AllOf(HasSubstr("worker:0 has NCCL 2.18.5"),
                                                 HasSubstr("2.28.9"), HasSubstr("same version")));
}

TEST_F(NcclCollectivesTest, AnIdThatWasCutIsRefused) {
  RankOfCards rank(world_, 0, kTimeout);
  const absl::Status used = rank.collectives_->UseGroups({{{RankId(0), RankId(1)}, "id"}}, 22809);
  EXPECT_EQ(used.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(NcclCollectivesTest, JoiningEndsAtItsDeadline) {
  RankOfCards rank(world_, 0, absl::Milliseconds(50));
  const auto id = rank.collectives_->NewGroupId();
  ASSERT_TRUE(id.ok());
  const absl::Status used = rank.collectives_->UseGroups({{{RankId(0), RankId(1)}, *id}}, 22809);
  EXPECT_EQ(used.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(used.message()), HasSubstr("joining the cards of worker:0, worker:1"));
}

TEST_F(NcclCollectivesTest, APeerThatDoesNotComeEndsTheWait) {
  Start(2, absl::Seconds(2));
  const auto result = ranks_[0]->Run(Spec(Kind::kAllReduce, 0, {1}), {{1}}, /*step=*/3);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("rank 0 waited 2s"), HasSubstr("'w@grad'"), HasSubstr("worker:1"),
                    HasSubstr("--stall-timeout")));
  EXPECT_EQ(
      WaitText(result.status()),
      "tensor 'w@grad' of collective 'bucket 0' (node 'bucket 0', step 3, micro-batch 2) with "
      "worker:1");
  EXPECT_GE(world_.aborts(), 1);
}

TEST_F(NcclCollectivesTest, AnAbortEndsTheWaitAndAllLaterCalls) {
  Start(2);
  std::thread aborts([&] {
    while (world_.calls().empty()) std::this_thread::yield();
    ranks_[0]->collectives_->Abort(absl::UnavailableError("worker:1 was lost"));
  });
  const absl::Time begin = absl::Now();
  const auto result = ranks_[0]->Run(Spec(Kind::kAllReduce, 0, {1}), {{1}});
  aborts.join();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("worker:1 was lost"));
  EXPECT_THAT(WaitText(result.status()), HasSubstr("with worker:1"));
  const auto again = ranks_[0]->Run(Spec(Kind::kAllReduce, 0, {1}), {{1}});
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAborted);
}

TEST_F(NcclCollectivesTest, AnErrorOfTheLibraryHasItsText) {
  Start(2);
  std::thread fails([&] {
    while (world_.calls().empty()) std::this_thread::yield();
    world_.SetAsyncError(NcclCode::kRemoteError);
  });
  const auto result = ranks_[0]->Run(Spec(Kind::kAllReduce, 0, {1}), {{1}});
  fails.join();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("NCCL 2.28.9"), HasSubstr("remote process exited")));
}

TEST_F(NcclCollectivesTest, AnotherOrderIsFound) {
  Start(2);
  std::vector<absl::Status> statuses(2);
  OnAll([&](RankOfCards& rank) {
    const Kind kind = rank.rank_ == 0 ? Kind::kAllReduce : Kind::kBroadcast;
    statuses[static_cast<size_t>(rank.rank_)] =
        rank.Run(Spec(kind, rank.rank_, {1}), {{1}}).status();
    for (const auto& other : ranks_) other->collectives_->Abort(absl::InternalError("stop"));
  });
  EXPECT_FALSE(statuses[0].ok());
  EXPECT_FALSE(statuses[1].ok());
  ASSERT_THAT(world_.violations(), SizeIs(1));
  EXPECT_THAT(world_.violations()[0], AllOf(HasSubstr("AllReduce"), HasSubstr("Broadcast")));
}

TEST_F(NcclCollectivesTest, MemoryThatIsNotTheDevicesIsFound) {
  Start(2);
  DeviceCollectiveSpec spec = Spec(Kind::kAllReduce, 0, {64});  // of a buffer of one
  EXPECT_FALSE(ranks_[0]->Run(spec, {{1}}).ok());
  ASSERT_THAT(world_.violations(), SizeIs(1));
  EXPECT_THAT(world_.violations()[0], HasSubstr("outside of the allocations"));
}

TEST_F(NcclCollectivesTest, MembersLeaveWithoutAnAbort) {
  Start(2);
  RunAll([&](int rank) { return Spec(Kind::kAllReduce, rank, {1}); },
         [](int) -> std::vector<std::vector<float>> { return {{1}}; });
  OnAll([](RankOfCards& rank) { rank.collectives_.reset(); });
  EXPECT_EQ(world_.aborts(), 0);
  EXPECT_EQ(world_.Leaks(), 0);
}

}  // namespace
}  // namespace weft
