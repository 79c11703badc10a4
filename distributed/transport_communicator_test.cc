// Channels and collectives over every transport, each rank a thread.
#include "distributed/transport_communicator.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "distributed/testing/transport_cluster.h"
#include "executor/interfaces/wait_info.h"
#include "gmock/gmock.h"
#include "graph/schedule/all_reduce_choice.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::Combine;
using ::testing::HasSubstr;
using ::testing::Values;
using ::testing::ValuesIn;

constexpr int64_t kElements = 1003;
constexpr int kSteps = 3;

// A value that differs by step, rank and element; sums of a few are exact.
float ValueOf(int64_t step, int rank, int64_t element) {
  return static_cast<float>((step + 1) * 1000 + rank * 100 + element % 97);
}

class CommunicatorTest : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  CommunicatorTest() { StartRanks(absl::Seconds(30)); }

  void StartRanks(absl::Duration stall_timeout) {
    communicators_.clear();
    cluster_ = testing::NewTransportCluster(std::get<0>(GetParam()), ranks());
    for (int i = 0; i < ranks(); ++i) {
      communicators_.push_back(std::make_unique<TransportCommunicator>(
          cluster_->transport(i), RealClock(),
          JobIdentity{testing::kTestJobId, 100 + static_cast<uint64_t>(i)}, stall_timeout));
    }
  }
  static int ranks() { return std::get<1>(GetParam()); }

  static void OnAllRanks(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < ranks(); ++i) threads.emplace_back(body, i);
    for (std::thread& thread : threads) thread.join();
  }

  CollectiveSpec Spec(CollectiveSchedule schedule) {
    CollectiveSpec spec{"a collective", {}, DType::kFloat32, std::move(schedule)};
    for (int i = 0; i < ranks(); ++i) spec.group.push_back(RankId(i));
    return spec;
  }

  // Executes the schedule kSteps times on each rank; `fill` sets buffer 0 before, `check` sees it
  // after.
  void Execute(const std::function<CollectiveSchedule(int)>& schedule_of,
               const std::function<void(int64_t, int, std::vector<float>&)>& fill,
               const std::function<void(int64_t, int, const std::vector<float>&)>& check) {
    OnAllRanks([&](int rank) {
      const CollectiveSchedule schedule = schedule_of(rank);
      std::vector<std::vector<float>> buffers;
      for (const int64_t elements : schedule.buffer_elements) buffers.emplace_back(elements);
      std::vector<void*> pointers;
      for (std::vector<float>& buffer : buffers) pointers.push_back(buffer.data());
      const auto handle = communicators_[rank]->OpenCollective(Spec(schedule));
      ASSERT_TRUE(handle.ok()) << handle.status();
      for (int64_t step = 0; step < kSteps; ++step) {
        fill(step, rank, buffers[0]);
        const absl::Status status =
            communicators_[rank]->RunCollective(*handle, {step, -1}, pointers.data());
        ASSERT_TRUE(status.ok()) << status;
        check(step, rank, buffers[0]);
      }
    });
  }

  static void FillWhole(int64_t step, int rank, std::vector<float>& buffer) {
    for (size_t i = 0; i < buffer.size(); ++i) buffer[i] = ValueOf(step, rank, i);
  }
  static float SumOf(int64_t step, int64_t element) {
    float sum = 0;
    for (int rank = 0; rank < ranks(); ++rank) sum += ValueOf(step, rank, element);
    return sum;
  }

  std::unique_ptr<testing::TransportCluster> cluster_;
  std::vector<std::unique_ptr<TransportCommunicator>> communicators_;
};

TEST_P(CommunicatorTest, RingAllReduceGivesAllTheSum) {
  Execute([](int rank) { return RingAllReduce(ranks(), rank, kElements); }, FillWhole,
          [](int64_t step, int rank, const std::vector<float>& buffer) {
            for (int64_t i = 0; i < kElements; ++i) {
              ASSERT_EQ(buffer[i], SumOf(step, i)) << "rank " << rank << ", element " << i;
            }
          });
}

TEST_P(CommunicatorTest, EveryAllReduceGivesAllTheSum) {
  std::vector<int> hosts;
  for (int rank = 0; rank < ranks(); ++rank) hosts.push_back(rank * 2 / ranks());
  for (const auto algorithm :
       {AllReduceAlgorithm::kRecursiveDoubling, AllReduceAlgorithm::kHalvingDoubling,
        AllReduceAlgorithm::kTree, AllReduceAlgorithm::kHierarchical}) {
    const AllReduceTask task{ranks(), hosts, kElements, sizeof(float)};
    Execute([&](int rank) { return AllReduceBy(algorithm, task, rank); }, FillWhole,
            [](int64_t step, int rank, const std::vector<float>& buffer) {
              for (int64_t i = 0; i < kElements; ++i) {
                ASSERT_EQ(buffer[i], SumOf(step, i)) << "rank " << rank << ", element " << i;
              }
            });
  }
}

// As where one rank runs an all-reduce beside its micro-batches, and another has none.
TEST_P(CommunicatorTest, MembersOpenCollectivesOfOtherNamesInOrdersOfTheirOwn) {
  OnAllRanks([&](int rank) {
    std::vector<std::string> names = {"short", "long"};
    if (rank % 2 == 1) std::swap(names[0], names[1]);
    std::map<std::string, Communicator::CollectiveHandle> handles;
    for (const std::string& name : names) {
      CollectiveSpec spec = Spec(RingAllReduce(ranks(), rank, name == "short" ? 7 : kElements));
      spec.name = name;
      const auto handle = communicators_[rank]->OpenCollective(spec);
      ASSERT_TRUE(handle.ok()) << handle.status();
      handles[name] = *handle;
    }
    for (const std::string name : {"long", "short"}) {
      const CollectiveSchedule schedule =
          RingAllReduce(ranks(), rank, name == "short" ? 7 : kElements);
      std::vector<std::vector<float>> buffers;
      for (const int64_t elements : schedule.buffer_elements) buffers.emplace_back(elements);
      std::vector<void*> pointers;
      for (std::vector<float>& buffer : buffers) pointers.push_back(buffer.data());
      FillWhole(0, rank, buffers[0]);
      const absl::Status status =
          communicators_[rank]->RunCollective(handles[name], {0, -1}, pointers.data());
      ASSERT_TRUE(status.ok()) << name << ": " << status;
      for (size_t i = 0; i < buffers[0].size(); ++i) ASSERT_EQ(buffers[0][i], SumOf(0, i));
    }
  });
}

TEST_P(CommunicatorTest, BroadcastGivesAllTheRootsValues) {
  Execute([](int rank) { return TreeBroadcast(ranks(), rank, ranks() - 1, kElements); }, FillWhole,
          [](int64_t step, int, const std::vector<float>& buffer) {
            for (int64_t i = 0; i < kElements; ++i) {
              ASSERT_EQ(buffer[i], ValueOf(step, ranks() - 1, i));
            }
          });
}

TEST_P(CommunicatorTest, AllGatherPutsShardsSideBySide) {
  const std::vector<int64_t> counts(ranks(), 41);
  Execute([&](int rank) { return RingAllGather(counts, rank); },
          [](int64_t step, int rank, std::vector<float>& buffer) {
            for (int i = 0; i < 41; ++i) buffer[rank * 41 + i] = ValueOf(step, rank, i);
          },
          [](int64_t step, int, const std::vector<float>& buffer) {
            for (int rank = 0; rank < ranks(); ++rank) {
              for (int i = 0; i < 41; ++i) ASSERT_EQ(buffer[rank * 41 + i], ValueOf(step, rank, i));
            }
          });
}

TEST_P(CommunicatorTest, ReduceScatterLeavesEachItsShardOfTheSum) {
  const std::vector<int64_t> counts(ranks(), 41);
  Execute([&](int rank) { return RingReduceScatter(counts, rank); }, FillWhole,
          [](int64_t step, int rank, const std::vector<float>& buffer) {
            for (int i = rank * 41; i < (rank + 1) * 41; ++i) ASSERT_EQ(buffer[i], SumOf(step, i));
          });
}

float Leaf(int leaf, int64_t element) { return 1.0f / static_cast<float>(3 + leaf * 7 + element); }

// The tree of n leaves splits them at the largest power of two below n.
float TreeSum(int first, int last, int64_t element) {
  if (last - first == 1) return Leaf(first, element);
  int half = 1;
  while (half * 2 < last - first) half *= 2;
  return TreeSum(first, first + half, element) + TreeSum(first + half, last, element);
}

TEST_P(CommunicatorTest, OrderedTreeGivesTheSameBitsForAnyNumberOfRanks) {
  constexpr int kLeaves = 8;
  constexpr int64_t kWidth = 37;
  std::vector<std::vector<LeafRange>> blocks;
  for (int i = 0; i < ranks(); ++i) {
    blocks.push_back(AlignedBlocks(kLeaves * i / ranks(), kLeaves * (i + 1) / ranks(), kLeaves));
  }
  Execute([&](int rank) { return OrderedTreeAllReduce(blocks, rank, kLeaves, kWidth); },
          [&](int64_t, int rank, std::vector<float>& buffer) {
            for (size_t b = 0; b < blocks[rank].size(); ++b) {
              for (int64_t i = 0; i < kWidth; ++i) {
                buffer[b * kWidth + i] = TreeSum(blocks[rank][b].first, blocks[rank][b].last, i);
              }
            }
          },
          [](int64_t, int, const std::vector<float>& buffer) {
            for (int64_t i = 0; i < kWidth; ++i) ASSERT_EQ(buffer[i], TreeSum(0, kLeaves, i));
          });
}

TEST_P(CommunicatorTest, ChannelsCarryMicroBatchesInOrder) {
  if (ranks() < 2) GTEST_SKIP() << "a channel has two ends";
  Channel channel;
  channel.id = ChannelId(4);
  channel.from = RankId(0);
  channel.to = RankId(1);
  channel.value = "hidden";
  channel.dtype = DType::kFloat32;
  channel.shape = Shape{kElements};
  OnAllRanks([&](int rank) {
    if (rank > 1) return;
    const auto handle = communicators_[rank]->OpenChannel(channel);
    ASSERT_TRUE(handle.ok()) << handle.status();
    std::vector<float> buffer(kElements);
    for (int micro = 0; micro < 6; ++micro) {
      if (rank == 0) {
        ASSERT_TRUE(communicators_[rank]->WaitSent(*handle).ok());
        FillWhole(micro, 0, buffer);
        ASSERT_TRUE(communicators_[rank]->Send(*handle, {1, micro}, buffer.data()).ok());
      } else {
        ASSERT_TRUE(communicators_[rank]->Receive(*handle, {1, micro}, buffer.data()).ok());
        ASSERT_EQ(buffer[7], ValueOf(micro, 0, 7));
      }
    }
    ASSERT_TRUE(communicators_[rank]->WaitSent(*handle).ok());
  });
}

// Programs number their channels on their own: the same number may run between other ranks.
TEST_P(CommunicatorTest, AChannelsNumberMayServeOtherRanksInAnotherProgram) {
  if (ranks() < 3) GTEST_SKIP() << "two channels from one rank need three ranks";
  Channel channel;
  channel.id = ChannelId(4);
  channel.from = RankId(0);
  channel.dtype = DType::kFloat32;
  channel.shape = Shape{kElements};
  OnAllRanks([&](int rank) {
    std::vector<float> buffer(kElements);
    for (int to = 1; to < ranks(); ++to) {
      if (rank != 0 && rank != to) continue;
      Channel own = channel;
      own.to = RankId(to);
      const auto handle = communicators_[rank]->OpenChannel(own);
      ASSERT_TRUE(handle.ok()) << handle.status();
      const MessageKey key{to, 0};
      FillWhole(to, 0, buffer);
      const absl::Status status = rank == 0
                                      ? communicators_[rank]->Send(*handle, key, buffer.data())
                                      : communicators_[rank]->Receive(*handle, key, buffer.data());
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_TRUE(communicators_[rank]->WaitSent(*handle).ok());
    }
  });
}

TEST_P(CommunicatorTest, AWaitThatExpiresNamesTensorPeerAndStep) {
  if (ranks() < 2) GTEST_SKIP() << "nobody to wait for";
  StartRanks(absl::Milliseconds(50));
  Channel channel;
  channel.id = ChannelId(4);
  channel.from = RankId(1);
  channel.to = RankId(0);
  channel.value = "grad/fc1.w";
  channel.dtype = DType::kFloat32;
  channel.shape = Shape{4};
  const auto handle = communicators_[0]->OpenChannel(channel);
  std::vector<float> buffer(4);
  const absl::Status status = communicators_[0]->Receive(*handle, {12, 2}, buffer.data());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rank 0 waited 50ms for tensor 'grad/fc1.w' from rank 1 (step 12, "
                        "micro-batch 2); if steps may take that long, raise --stall-timeout"));
  EXPECT_EQ(WaitText(status), "tensor 'grad/fc1.w' from worker:1");
}

TEST_P(CommunicatorTest, AnAbortSaysWhatItInterrupted) {
  if (ranks() < 2) GTEST_SKIP() << "nobody to wait for";
  CollectiveSpec spec = Spec(RingAllReduce(ranks(), 0, kElements));
  spec.name = "all_reduce/bucket0";
  spec.tensors = "tensor 'w@grad' and 1 more";
  const auto handle = communicators_[0]->OpenCollective(spec);
  std::vector<float> buffer(kElements), scratch(kElements);
  std::vector<void*> pointers(spec.schedule.buffer_elements.size(), scratch.data());
  pointers[0] = buffer.data();
  std::thread waiting([&] {
    const absl::Status status =
        communicators_[0]->RunCollective(*handle, {12, -1}, pointers.data());
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(WaitText(status),
                HasSubstr("tensor 'w@grad' and 1 more of collective 'all_reduce/bucket0'"));
    EXPECT_THAT(WaitText(status), HasSubstr(" worker:"));
  });
  communicators_[1]->Abort(absl::InternalError("the cause"));
  waiting.join();
}

TEST_P(CommunicatorTest, CountsWhatItSendsPerStream) {
  if (ranks() < 2) GTEST_SKIP() << "nobody to send to";
  Channel channel;
  channel.id = ChannelId(4);
  channel.from = RankId(0);
  channel.to = RankId(1);
  channel.value = "hidden";
  channel.dtype = DType::kFloat32;
  channel.shape = Shape{kElements};
  OnAllRanks([&](int rank) {
    TransportCommunicator& communicator = *communicators_[rank];
    const CollectiveSchedule schedule = RingAllReduce(ranks(), rank, kElements);
    const auto collective = communicator.OpenCollective(Spec(schedule));
    ASSERT_TRUE(collective.ok());
    std::vector<std::vector<float>> buffers;
    for (const int64_t elements : schedule.buffer_elements) buffers.emplace_back(elements);
    std::vector<void*> pointers;
    for (std::vector<float>& buffer : buffers) pointers.push_back(buffer.data());
    ASSERT_TRUE(communicator.RunCollective(*collective, {1, -1}, pointers.data()).ok());
    if (rank < 2) {
      const auto handle = communicator.OpenChannel(channel);
      ASSERT_TRUE(handle.ok());
      const absl::Status moved = rank == 0
                                     ? communicator.Send(*handle, {1, 0}, buffers[0].data())
                                     : communicator.Receive(*handle, {1, 0}, buffers[0].data());
      ASSERT_TRUE(moved.ok()) << moved;
      ASSERT_TRUE(communicator.WaitSent(*handle).ok());
    }
    const std::vector<StreamTraffic> traffic = communicator.traffic();
    ASSERT_EQ(traffic.size(), rank < 2 ? 2u : 1u);
    EXPECT_EQ(communicator.streams_opened(), traffic.size());
    EXPECT_EQ(traffic[0].name, "a collective");
    EXPECT_EQ(traffic[0].payload_bytes, 4 * schedule.elements_sent());
    int64_t sum = traffic[0].payload_bytes;
    if (rank < 2) {
      EXPECT_EQ(traffic[1].name, "hidden");
      EXPECT_EQ(traffic[1].to, RankId(1));
      EXPECT_EQ(traffic[1].messages, rank == 0 ? 1 : 0);
      EXPECT_EQ(traffic[1].payload_bytes, rank == 0 ? 4 * kElements : 0);
      sum += traffic[1].payload_bytes;
    }
    EXPECT_EQ(cluster_->transport(rank).bytes_sent(), sum);
  });
}

TEST_P(CommunicatorTest, KnowsWhatAPeerMaySendAhead) {
  if (ranks() != 2) GTEST_SKIP() << "the expected values are those of two ranks";
  TransportCommunicator& communicator = *communicators_[0];
  EXPECT_EQ(communicator.unexpected_collective_bytes(RankId(1)), 0);
  const auto open = [&](CollectiveSchedule schedule, bool beside_compute) {
    CollectiveSpec spec = Spec(std::move(schedule));
    spec.beside_compute = beside_compute;
    ASSERT_TRUE(communicator.OpenCollective(spec).ok());
  };
  // An exchange of all, messages of half, on one thread: one at a time, and one of the ring's,
  // which comes where a message is still on its way out.
  open(RecursiveDoublingAllReduce(2, 0, 1000), /*beside_compute=*/true);
  open(RingAllReduce(2, 0, 1000), /*beside_compute=*/true);
  EXPECT_EQ(communicator.unexpected_collective_bytes(RankId(1)), 4000 + 2000);
  open(RingAllReduce(2, 0, 600), /*beside_compute=*/false);
  EXPECT_EQ(communicator.unexpected_collective_bytes(RankId(1)), 6000 + 2400);
  // What is only received may all come at once.
  open(TreeBroadcast(2, 0, 1, 10), /*beside_compute=*/false);
  open(TreeBroadcast(2, 0, 1, 20), /*beside_compute=*/false);
  EXPECT_EQ(communicator.unexpected_collective_bytes(RankId(1)), 6000 + 2400 + 120);
}

INSTANTIATE_TEST_SUITE_P(All, CommunicatorTest,
                         Combine(ValuesIn(testing::TransportKinds()), Values(1, 2, 3, 4, 5)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace weft
