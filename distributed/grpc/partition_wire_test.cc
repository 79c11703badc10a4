#include "distributed/grpc/partition_wire.h"

#include <limits>
#include <string>

#include "distributed/testing/sum_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(PartitionWireTest, ComesBackAsItWas) {
  Partition partition = testing::PartitionWithEveryField();
  partition.channels[0].dtype = DType::kBfloat16;
  partition.channels[0].shape = Shape{4, 5};
  partition.host_ops = {"Relu", "ai.weft::Scale"};
  partition.tf32 = true;
  partition.uses_cudnn = true;
  partition.fuses_nodes = true;
  partition.commits = true;
  const auto bytes = EncodePartition(partition);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto decoded = DecodePartition(*bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();

  EXPECT_EQ(decoded->rank, partition.rank);
  EXPECT_EQ(decoded->mesh, partition.mesh);
  EXPECT_TRUE(decoded->strict);
  EXPECT_TRUE(decoded->uses_cudnn);
  EXPECT_TRUE(decoded->fuses_nodes);
  EXPECT_TRUE(decoded->commits);
  EXPECT_EQ(decoded->threads, 3);
  EXPECT_EQ(decoded->host_ops, partition.host_ops);
  EXPECT_TRUE(decoded->tf32);
  EXPECT_EQ(decoded->global_batch, partition.global_batch);
  ASSERT_EQ(decoded->variables.size(), 1u);
  EXPECT_EQ(decoded->variables[0].name, "w");
  EXPECT_EQ(decoded->variables[0].global_shape, (Shape{8, 3}));
  EXPECT_EQ(decoded->variables[0].local_shape, (Shape{1, 3}));
  EXPECT_EQ(decoded->variables[0].tensor_sharding, AxisSharding::Split(0, 1));
  EXPECT_EQ(decoded->variables[0].tensor_index, 1);
  EXPECT_EQ(decoded->variables[0].data_shards, 4);
  EXPECT_EQ(decoded->variables[0].data_index, 3);
  EXPECT_TRUE(decoded->variables[0].trainable);
  EXPECT_EQ(decoded->variables[0].slot_of, "other");
  ASSERT_EQ(decoded->channels.size(), 1u);
  EXPECT_EQ(decoded->channels[0].id, ChannelId(9));
  EXPECT_EQ(decoded->channels[0].dtype, DType::kBfloat16);
  EXPECT_EQ(decoded->channels[0].shape, (Shape{4, 5}));
  EXPECT_FALSE(decoded->channels[0].per_micro_batch);
  EXPECT_EQ(decoded->actions, partition.actions);
  EXPECT_EQ(decoded->reports, partition.reports);
  EXPECT_EQ(decoded->guard, "loss");
  EXPECT_EQ(decoded->micro[0].DebugString(), partition.micro[0].DebugString());
  EXPECT_EQ(decoded->end.DebugString(), partition.end.DebugString());
}

TEST(PartitionWireTest, EqualPartitionsGiveEqualBytes) {
  EXPECT_EQ(*EncodePartition(testing::PartitionWithEveryField()),
            *EncodePartition(testing::PartitionWithEveryField()));
}

TEST(PartitionWireTest, AgainGivesTheSameBytes) {
  const std::string bytes = *EncodePartition(testing::PartitionWithEveryField());
  EXPECT_EQ(*EncodePartition(*DecodePartition(bytes)), bytes);
}

TEST(PartitionWireTest, RefusesBytesThatAreNone) {
  const absl::Status status = DecodePartition("nonsense").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("partition cannot be decoded"));
}

TEST(PartitionWireTest, RefusesARankOutsideItsMesh) {
  Partition partition = testing::PartitionWithEveryField();
  partition.rank = RankId(8);
  const absl::Status status = DecodePartition(*EncodePartition(partition)).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 8 of a mesh of 4 x 2 x 1"));
}

TEST(PartitionWireTest, RefusesAMicroBatchWithoutGraph) {
  Partition partition = testing::PartitionWithEveryField();
  partition.micro_batches[0].graph = 7;
  const absl::Status status = DecodePartition(*EncodePartition(partition)).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("uses graph 7 of 1"));
}

// 8 of 808 fuzzed messages crashed a worker, all by this field.
TEST(PartitionWireTest, RefusesThreadsThatNoMachineHas) {
  for (const int threads : {-1, 0, 1 << 20, std::numeric_limits<int>::max()}) {
    Partition partition = testing::PartitionWithEveryField();
    partition.threads = threads;
    const absl::Status status = DecodePartition(*EncodePartition(partition)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << threads;
    EXPECT_THAT(std::string(status.message()), HasSubstr("threads; expected 1 to 4096"));
  }
}

TEST(PartitionWireTest, CutOffBytesNeverCrash) {
  const std::string bytes = *EncodePartition(testing::PartitionWithEveryField());
  for (size_t size = 0; size < bytes.size(); size += 7) {
    DecodePartition(bytes.substr(0, size)).status().IgnoreError();
  }
}

}  // namespace
}  // namespace weft
