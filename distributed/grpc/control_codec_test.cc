// Join, step ranges, reports and memory requirements come out of their messages as they went in,
// with every field set to something that is not its default; so do variables in parts.
#include "distributed/grpc/control_codec.h"

#include <cmath>
#include <string>
#include <vector>

#include "distributed/grpc/part_size.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

// Through the bytes, as a peer gets them.
template <typename Message>
Message ThroughBytes(const Message& message) {
  Message read;
  EXPECT_TRUE(read.ParseFromString(message.SerializeAsString()));
  return read;
}

TEST(ControlCodecTest, Membership) {
  JobMembership membership;
  membership.job_id = 0xfedcba9876543210;
  membership.addresses = {"unix:/w0", "127.0.0.1:4000"};
  membership.version = "1.2";
  membership.model_digest = 0xffffffffffffffff;
  membership.plan_digest = 7;
  membership.strict = true;
  membership.instruction_set = "avx2";
  membership.op_libraries = {"swiglu.so 0123456789abcdef"};
  membership.memory_limit_bytes = int64_t{1} << 40;
  membership.stall_timeout_seconds = 2.5;
  membership.checkpoints = true;
  membership.device = "cuda:1";
  membership.commits = true;
  membership.continues_job_id = uint64_t{7} << 60;
  membership.replication = {10, {1, 0}, {int64_t{5} << 33, 64}};
  membership.recovers_job_id = uint64_t{9} << 60;
  membership.epoch = uint64_t{5} << 40;
  membership.job_digest = uint64_t{15} << 60;
  membership.rank = RankId(1);
  const auto decoded = Decode(ThroughBytes(Encode(membership)));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const JobMembership& read = *decoded;
  EXPECT_EQ(read.job_id, 0xfedcba9876543210);
  EXPECT_EQ(read.rank, RankId(1));
  EXPECT_THAT(read.addresses, ElementsAre("unix:/w0", "127.0.0.1:4000"));
  EXPECT_EQ(read.version, "1.2");
  EXPECT_EQ(read.model_digest, 0xffffffffffffffff);
  EXPECT_EQ(read.plan_digest, 7u);
  EXPECT_TRUE(read.strict);
  EXPECT_EQ(read.instruction_set, "avx2");
  EXPECT_THAT(read.op_libraries, ElementsAre("swiglu.so 0123456789abcdef"));
  EXPECT_EQ(read.memory_limit_bytes, int64_t{1} << 40);
  EXPECT_EQ(read.stall_timeout_seconds, 2.5);
  EXPECT_TRUE(read.checkpoints);
  EXPECT_EQ(read.device, "cuda:1");
  EXPECT_TRUE(read.commits);
  EXPECT_EQ(read.continues_job_id, uint64_t{7} << 60);
  EXPECT_EQ(read.replication, membership.replication);
  EXPECT_EQ(read.recovers_job_id, uint64_t{9} << 60);
  EXPECT_EQ(read.epoch, uint64_t{5} << 40);
  EXPECT_EQ(read.job_digest, uint64_t{15} << 60);
}

TEST(ControlCodecTest, AMembershipThatCannotBeIsRefused) {
  const auto code = [](const rpc::JoinRequest& request) { return Decode(request).status().code(); };
  rpc::JoinRequest request;
  request.add_addresses("unix:/w0");
  request.add_addresses("unix:/w1");
  for (const int rank : {-1, 2, 1 << 30}) {
    request.set_rank(rank);
    EXPECT_EQ(code(request), absl::StatusCode::kInvalidArgument) << rank;
  }
  request.set_rank(1);
  EXPECT_EQ(code(request), absl::StatusCode::kOk);
  for (const double seconds : {-1.0, std::nan("")}) {
    request.set_stall_timeout_seconds(seconds);
    EXPECT_EQ(code(request), absl::StatusCode::kInvalidArgument) << seconds;
  }
  request.set_stall_timeout_seconds(1);
  request.set_memory_limit_bytes(-1);
  EXPECT_EQ(code(request), absl::StatusCode::kInvalidArgument);
  request.set_memory_limit_bytes(0);
  const auto with = [&](std::vector<int32_t> keepers, std::vector<int64_t> bytes) {
    rpc::JoinRequest copies = request;
    copies.set_replicate_every(5);
    copies.mutable_keepers()->Add(keepers.begin(), keepers.end());
    copies.mutable_snapshot_bytes()->Add(bytes.begin(), bytes.end());
    return code(copies);
  };
  EXPECT_EQ(with({1, 0}, {8, 0}), absl::StatusCode::kOk);
  EXPECT_EQ(with({1, 2}, {8, 8}), absl::StatusCode::kInvalidArgument) << "no such rank";
  EXPECT_EQ(with({0, 0}, {8, 8}), absl::StatusCode::kInvalidArgument) << "its own keeper";
  EXPECT_EQ(with({1, 0}, {8, -8}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with({1, 0}, {8}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with({1}, {8}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with({}, {}), absl::StatusCode::kInvalidArgument) << "nobody keeps them";
}

TEST(ControlCodecTest, WorkerInfo) {
  const WorkerInfo read = Decode(
      ThroughBytes(Encode(WorkerInfo{"1.2",
                                     "avx512",
                                     4711,
                                     0xfedcba9876543210,
                                     {5, "cgroup"},
                                     {"cuda:1", "NVIDIA L4", int64_t{1} << 34, 145, "580.65.06"},
                                     {"machine/0000:3b:00.0", 22809, "too old"}})));
  EXPECT_EQ(read.device.name, "cuda:1");
  EXPECT_EQ(read.device.text, "NVIDIA L4");
  EXPECT_EQ(read.device.memory_bytes, int64_t{1} << 34);
  EXPECT_EQ(read.device.kernels, 145);
  EXPECT_EQ(read.device.driver, "580.65.06");
  EXPECT_EQ(read.version, "1.2");
  EXPECT_EQ(read.instruction_set, "avx512");
  EXPECT_EQ(read.process_id, 4711);
  EXPECT_EQ(read.incarnation, 0xfedcba9876543210);
  EXPECT_EQ(read.memory_limit.bytes, 5);
  EXPECT_EQ(read.memory_limit.source, "cgroup");
  EXPECT_EQ(read.card.name, "machine/0000:3b:00.0");
  EXPECT_EQ(read.card.nccl_version, 22809);
  EXPECT_EQ(read.card.problem, "too old");
}

// A part that was left out would make the sum smaller.
TEST(ControlCodecTest, EachPartOfAMemoryRequirement) {
  const std::vector<int64_t MemoryRequirement::*> parts = {
      &MemoryRequirement::variable_bytes,        &MemoryRequirement::arena_bytes,
      &MemoryRequirement::constant_bytes,        &MemoryRequirement::packed_bytes,
      &MemoryRequirement::staging_bytes,         &MemoryRequirement::input_bytes,
      &MemoryRequirement::transport_bytes,       &MemoryRequirement::process_bytes,
      &MemoryRequirement::loading_bytes,         &MemoryRequirement::workspace_bytes,
      &MemoryRequirement::checkpoint_bytes,      &MemoryRequirement::copies_bytes,
      &MemoryRequirement::device_constant_bytes, &MemoryRequirement::nccl_bytes};
  MemoryRequirement requirement;
  for (size_t i = 0; i < parts.size(); ++i) requirement.*parts[i] = int64_t{1} << (i + 30);
  const MemoryRequirement read = Decode(ThroughBytes(Encode(requirement)));
  for (size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(read.*parts[i], int64_t{1} << (i + 30)) << i;
  EXPECT_EQ(read.total(), requirement.total());
  EXPECT_FALSE(read.on_device);
  requirement.on_device = true;
  EXPECT_EQ(Decode(ThroughBytes(Encode(requirement))), requirement);
}

TEST(ControlCodecTest, StepRanges) {
  const StepRange first = {.program = "train/128",
                           .first_step = int64_t{1} << 33,
                           .count = 9,
                           .scalars = {{"learning_rate", 0.125}},
                           .checkpoint = "step-9",
                           .check_numerics = true,
                           .note = {{"job/step", 41}}};
  StepRange second;
  second.program = "evaluate";
  second.statistics = true;
  second.times_only = true;
  const std::vector<StepRange> read = Decode(ThroughBytes(Encode(std::vector{first, second})));
  ASSERT_THAT(read, SizeIs(2));
  EXPECT_EQ(read[0].program, "train/128");
  EXPECT_EQ(read[0].first_step, int64_t{1} << 33);
  EXPECT_EQ(read[0].count, 9);
  EXPECT_THAT(read[0].scalars, ElementsAre(Pair("learning_rate", 0.125)));
  EXPECT_EQ(read[0].checkpoint, "step-9");
  EXPECT_TRUE(read[0].check_numerics);
  EXPECT_FALSE(read[0].statistics);
  EXPECT_FALSE(read[0].times_only);
  EXPECT_THAT(read[0].note, ElementsAre(Pair("job/step", 41)));
  EXPECT_EQ(read[1].program, "evaluate");
  EXPECT_THAT(read[1].note, IsEmpty());
  EXPECT_FALSE(read[1].check_numerics);
  EXPECT_TRUE(read[1].statistics);
  EXPECT_TRUE(read[1].times_only);
}

rpc::StepReport ReportMessage() {
  StepReport report;
  report.step = int64_t{1} << 33;
  report.values["loss"] = Tensor::Of<float>({2}, std::vector<float>{0.5f, -1.0f});
  report.seconds = 1.5;
  report.input_seconds = 0.25;
  report.waited_seconds = 0.125;
  report.update_seconds = 0.0625;
  rpc::StepReport message;
  Encode(report, message);
  return ThroughBytes(message);
}

TEST(ControlCodecTest, Reports) {
  const auto read = Decode(ReportMessage());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->step, int64_t{1} << 33);
  EXPECT_EQ(read->seconds, 1.5);
  EXPECT_EQ(read->input_seconds, 0.25);
  EXPECT_EQ(read->waited_seconds, 0.125);
  EXPECT_EQ(read->update_seconds, 0.0625);
  ASSERT_THAT(read->values, SizeIs(1));
  const Tensor& loss = read->values.at("loss");
  EXPECT_EQ(loss.shape(), Shape({2}));
  EXPECT_THAT(loss.data<float>(), ElementsAre(0.5f, -1.0f));
}

TEST(ControlCodecTest, AReportWhoseContentIsNotOfItsTypeIsRefused) {
  rpc::StepReport shorter = ReportMessage();
  shorter.mutable_values(0)->mutable_content()->pop_back();
  EXPECT_EQ(Decode(shorter).status().code(), absl::StatusCode::kDataLoss);
  for (const int dtype : {-1, 1000}) {
    rpc::StepReport other = ReportMessage();
    other.mutable_values(0)->mutable_type()->set_dtype(dtype);
    EXPECT_EQ(Decode(other).status().code(), absl::StatusCode::kInvalidArgument) << dtype;
  }
}

TEST(ControlCodecTest, AVariableInParts) {
  const int64_t count = static_cast<int64_t>(PartSize::kSmallest) / 4 + 3;
  Tensor tensor = Tensor::Zeros(DType::kFloat32, {count}).value();
  static_cast<float*>(tensor.raw_data())[count - 1] = 8;
  std::vector<rpc::VariableChunk> parts;
  std::vector<bool> are_last;
  WriteVariableChunks("w", tensor, [&](const rpc::VariableChunk& part, bool is_last) {
    parts.push_back(ThroughBytes(part));
    are_last.push_back(is_last);
    return true;
  });
  ASSERT_THAT(parts, SizeIs(2));
  EXPECT_THAT(are_last, ElementsAre(false, true));
  VariableReader reader;
  EXPECT_FALSE(reader.is_complete());
  ASSERT_TRUE(reader.Add(parts[0]).ok());
  EXPECT_FALSE(reader.is_complete());
  EXPECT_EQ(reader.Finish().status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(reader.Add(parts[1]).ok());
  EXPECT_TRUE(reader.is_complete());
  const auto read = reader.Finish();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->data<float>()[static_cast<size_t>(count - 1)], 8);
  EXPECT_EQ(reader.Add(parts[1]).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace weft
