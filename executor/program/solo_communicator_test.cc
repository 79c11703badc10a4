#include <string>
#include <vector>

#include "executor/interfaces/communicator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CollectiveSpec SpecOf(CollectiveSchedule schedule) {
  CollectiveSpec spec;
  spec.name = "all-reduce";
  spec.group = {RankId(0)};
  spec.schedule = std::move(schedule);
  return spec;
}

// Runs the schedule on `data` (buffer 0), with scratch where it asks for it.
absl::Status Execute(Communicator& communicator, CollectiveSchedule schedule,
                     std::vector<float>& data) {
  std::vector<std::vector<float>> scratch;
  for (int64_t elements : schedule.buffer_elements) scratch.emplace_back(elements);
  std::vector<void*> buffers = {data.data()};
  for (size_t i = 1; i < scratch.size(); ++i) buffers.push_back(scratch[i].data());
  const auto handle = communicator.OpenCollective(SpecOf(std::move(schedule)));
  if (!handle.ok()) return handle.status();
  return communicator.RunCollective(*handle, {}, buffers.data());
}

TEST(SoloCommunicatorTest, CollectivesOfOneMemberKeepTheData) {
  const auto communicator = NewSoloCommunicator();
  std::vector<float> data = {1, 2, 3};
  ASSERT_TRUE(Execute(*communicator, RingAllReduce(1, 0, 3), data).ok());
  ASSERT_TRUE(Execute(*communicator, RingAllGather({3}, 0), data).ok());
  ASSERT_TRUE(Execute(*communicator, RingReduceScatter({3}, 0), data).ok());
  ASSERT_TRUE(Execute(*communicator, TreeBroadcast(1, 0, 0, 3), data).ok());
  EXPECT_THAT(data, ElementsAre(1, 2, 3));
}

TEST(SoloCommunicatorTest, AnOrderedTreeSumsTheBlocksOfOneMember) {
  const auto communicator = NewSoloCommunicator();
  std::vector<float> data = {1, 2, 10, 20, 100, 200};
  const std::vector<LeafRange> blocks = {{0, 4}, {4, 6}, {6, 7}};
  ASSERT_TRUE(Execute(*communicator, OrderedTreeAllReduce({blocks}, 0, 7, 2), data).ok());
  EXPECT_EQ(data[0], 111);
  EXPECT_EQ(data[1], 222);
}

TEST(SoloCommunicatorTest, AGroupOfSeveralIsRefused) {
  const auto communicator = NewSoloCommunicator();
  CollectiveSpec spec = SpecOf(RingAllReduce(2, 0, 4));
  spec.group = {RankId(0), RankId(1)};
  const auto handle = communicator->OpenCollective(spec);
  EXPECT_EQ(handle.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(handle.status().message()),
              ::testing::AllOf(HasSubstr("'all-reduce'"), HasSubstr("2 members")));
}

TEST(SoloCommunicatorTest, AChannelIsRefusedNamingItsValue) {
  const auto communicator = NewSoloCommunicator();
  Channel channel;
  channel.value = "hidden";
  const auto handle = communicator->OpenChannel(channel);
  EXPECT_EQ(handle.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(handle.status().message()), HasSubstr("'hidden'"));
}

}  // namespace
}  // namespace weft
