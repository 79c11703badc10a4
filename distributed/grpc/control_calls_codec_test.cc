// Each question and each answer comes out of its message as it went in, with every field set to
// something that is not its default.
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "distributed/control_calls.h"
#include "distributed/grpc/control_codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
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

template <typename Request>
Request Asked(const Request& request) {
  const auto read = Decode(ThroughBytes(Encode(ControlRequest(request))));
  EXPECT_TRUE(read.ok()) << read.status();
  const Request* same = read.ok() ? std::get_if<Request>(&*read) : nullptr;
  EXPECT_NE(same, nullptr);
  return same == nullptr ? Request() : *same;
}

template <typename Reply>
Reply Answered(const Reply& reply) {
  const auto read = Decode(ThroughBytes(Encode(ControlReply(reply))));
  EXPECT_TRUE(read.ok()) << read.status();
  const Reply* same = read.ok() ? std::get_if<Reply>(&*read) : nullptr;
  EXPECT_NE(same, nullptr);
  return same == nullptr ? Reply() : *same;
}

TEST(ControlCallsCodecTest, QuestionsKeepTheirKindAndFields) {
  Asked(TrafficRequest());
  Asked(StatisticsRequest());
  Asked(MemoryRequest());
  EXPECT_TRUE(Asked(CheckpointRequest{.wait = true}).wait);
  EXPECT_FALSE(Asked(CheckpointRequest{.wait = false}).wait);
  const ProgramTextRequest text = Asked(ProgramTextRequest{"train/128", int64_t{5} << 33});
  EXPECT_EQ(text.program, "train/128");
  EXPECT_EQ(text.offset, int64_t{5} << 33);
}

TEST(ControlCallsCodecTest, StepsOfAJobThatLosesAWorker) {
  Asked(StepProgressRequest());
  Asked(FinishStepRequest());
  EXPECT_EQ(Asked(StepReportsRequest{.first = 7}).first, 7);
  const StepProgress progress = Answered(StepProgress{3, 12, StepState::kReady, true});
  EXPECT_EQ(progress.runs, 3);
  EXPECT_EQ(progress.steps, 12);
  EXPECT_EQ(progress.state, StepState::kReady);
  EXPECT_TRUE(progress.finishes_alone);
  StepReport report;
  report.step = 41;
  report.values["loss"] = Tensor::Of<float>({1}, {2.5F});
  EXPECT_EQ(Answered(report).values.at("loss").data<float>()[0], 2.5F);
  const std::vector<StepReport> reports = Answered(std::vector<StepReport>{report, report});
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_EQ(reports[1].step, 41);
  rpc::ControlReply wrong = Encode(ControlReply(progress));
  wrong.mutable_step_progress()->set_state(4);
  EXPECT_TRUE(absl::IsDataLoss(Decode(wrong).status()));
}

TEST(ControlCallsCodecTest, DigestsOfVariables) {
  EXPECT_THAT(Asked(VariableDigestsRequest{{"w", "w/moment"}}).variables,
              ElementsAre("w", "w/moment"));
  const VariableDigests digests = Answered(VariableDigests{"cpu AVX2", {~uint64_t{0}, 7}});
  EXPECT_EQ(digests.arithmetic, "cpu AVX2");
  EXPECT_THAT(digests.digests, ElementsAre(~uint64_t{0}, 7));
}

TEST(ControlCallsCodecTest, StatesThatAreHeld) {
  EXPECT_TRUE(Asked(HeldStateRequest{.verify = true}).verify);
  EXPECT_FALSE(Asked(HeldStateRequest{.verify = false}).verify);
  const SnapshotKey key = {~uint64_t{0}, 3, int64_t{5} << 33};
  const ReadHeldRequest read = Asked(ReadHeldRequest{key, int64_t{1} << 40, 4096});
  EXPECT_EQ(read.key, key);
  EXPECT_EQ(read.offset, int64_t{1} << 40);
  EXPECT_EQ(read.bytes, 4096);
  EXPECT_EQ(Asked(HoldStateRequest{.step = 41}).step, 41);
  const HeldSnapshot held = {key, true, int64_t{1} << 35, 0xfedcba9876543210};
  EXPECT_EQ(Answered(held), held);
  const HeldState state = Answered(HeldState{{held, {{7, 0, 9}, false, 64, 1}}});
  ASSERT_THAT(state.snapshots, SizeIs(2));
  EXPECT_EQ(state.snapshots[0], held);
  EXPECT_FALSE(state.snapshots[1].is_whole);
  EXPECT_EQ(state.snapshots[1].key.step, 9);
  EXPECT_EQ(Answered(HeldPart{std::string("\0\xff", 2)}).bytes, std::string("\0\xff", 2));
  rpc::ControlReply wrong = Encode(ControlReply(held));
  wrong.mutable_hold_state()->set_bytes(-1);
  EXPECT_TRUE(absl::IsDataLoss(Decode(wrong).status()));
}

TEST(ControlCallsCodecTest, WhatAWorkerKeepsOfItsJob) {
  Asked(KeptJobRequest());
  EXPECT_TRUE(Asked(StepReportsRequest{.first = 7, .noted = true}).noted);
  EXPECT_FALSE(Asked(StepReportsRequest{.first = 7}).noted);
  const KeptJob kept = Answered(KeptJob{.job_id = ~uint64_t{0},
                                        .job_digest = uint64_t{9} << 60,
                                        .rank = RankId(3),
                                        .runs = 5,
                                        .note = {{"job/step", 120}, {"best", 0.5}},
                                        .steps = 17,
                                        .shards_digest = uint64_t{3} << 61});
  EXPECT_EQ(kept.job_id, ~uint64_t{0});
  EXPECT_EQ(kept.job_digest, uint64_t{9} << 60);
  EXPECT_EQ(kept.rank, RankId(3));
  EXPECT_EQ(kept.runs, 5);
  EXPECT_EQ(kept.note, (std::map<std::string, double>{{"best", 0.5}, {"job/step", 120}}));
  EXPECT_EQ(kept.steps, 17);
  EXPECT_EQ(kept.shards_digest, uint64_t{3} << 61);
  EXPECT_EQ(Answered(KeptJob()).job_id, 0u);
}

TEST(ControlCallsCodecTest, GroupsOfCards) {
  Asked(NewCardGroupRequest());
  const std::string id("\0\xff id", 5);
  EXPECT_EQ(Answered(CardGroupId{id}).id, id);
  const UseCardGroupsRequest use = Asked(UseCardGroupsRequest{
      {{{RankId(2), RankId(0)}, id, true, {3, int64_t{5} << 33}}, {{RankId(1)}, ""}}, 22809});
  EXPECT_EQ(use.nccl_version, 22809);
  ASSERT_THAT(use.groups, SizeIs(2));
  EXPECT_THAT(use.groups[0].members, ElementsAre(RankId(2), RankId(0)));
  EXPECT_EQ(use.groups[0].id, id);
  EXPECT_TRUE(use.groups[0].sends);
  EXPECT_THAT(use.groups[0].channels, ElementsAre(3, int64_t{5} << 33));
  EXPECT_FALSE(use.groups[1].sends);
  EXPECT_THAT(use.groups[1].channels, IsEmpty());
  EXPECT_THAT(use.groups[1].members, ElementsAre(RankId(1)));
  EXPECT_THAT(use.groups[1].id, IsEmpty());
  EXPECT_EQ(Answered(CardGroupsJoined{3}).groups, 3);
}

TEST(ControlCallsCodecTest, Traffic) {
  const WorkerTraffic traffic = Answered(
      WorkerTraffic{.programs = {{"train/128", 7, {{"h1", RankId(3), 14, int64_t{1} << 40}}},
                                 {"evaluate", 2, {}}},
                    .header_bytes = 280});
  EXPECT_EQ(traffic.header_bytes, 280);
  ASSERT_THAT(traffic.programs, SizeIs(2));
  EXPECT_EQ(traffic.programs[0].program, "train/128");
  EXPECT_EQ(traffic.programs[0].steps, 7);
  ASSERT_THAT(traffic.programs[0].streams, SizeIs(1));
  const StreamTraffic& stream = traffic.programs[0].streams[0];
  EXPECT_EQ(stream.name, "h1");
  EXPECT_EQ(stream.to, RankId(3));
  EXPECT_EQ(stream.messages, 14);
  EXPECT_EQ(stream.payload_bytes, int64_t{1} << 40);
  EXPECT_EQ(traffic.programs[1].program, "evaluate");
  EXPECT_THAT(traffic.programs[1].streams, IsEmpty());
}

TEST(ControlCallsCodecTest, ACollectiveHasNoReceiver) {
  const WorkerTraffic traffic =
      Answered(WorkerTraffic{.programs = {{"train", 1, {{"sum", RankId(), 2, 8}}}}});
  ASSERT_THAT(traffic.programs, SizeIs(1));
  ASSERT_THAT(traffic.programs[0].streams, SizeIs(1));
  EXPECT_EQ(traffic.programs[0].streams[0].to, RankId());
}

TEST(ControlCallsCodecTest, Statistics) {
  const std::vector<ProgramStatistics> statistics = Answered(std::vector<ProgramStatistics>{
      {.program = "train/128",
       .steps = 9,
       .seconds = 1.5,
       .input_seconds = 0.25,
       .timed_steps = 4,
       .nodes = {{"fc1", "MatMul", Phase::kBackward, 8, int64_t{3} << 32}}}});
  ASSERT_THAT(statistics, SizeIs(1));
  EXPECT_EQ(statistics[0].program, "train/128");
  EXPECT_EQ(statistics[0].steps, 9);
  EXPECT_EQ(statistics[0].seconds, 1.5);
  EXPECT_EQ(statistics[0].input_seconds, 0.25);
  EXPECT_EQ(statistics[0].timed_steps, 4);
  ASSERT_THAT(statistics[0].nodes, SizeIs(1));
  const NodeStatistics& node = statistics[0].nodes[0];
  EXPECT_EQ(node.node, "fc1");
  EXPECT_EQ(node.op, "MatMul");
  EXPECT_EQ(node.phase, Phase::kBackward);
  EXPECT_EQ(node.calls, 8);
  EXPECT_EQ(node.nanoseconds, int64_t{3} << 32);
}

TEST(ControlCallsCodecTest, Memory) {
  const ProcessMemory memory = Answered(ProcessMemory{11, 22, true});
  EXPECT_EQ(memory.bytes, 11);
  EXPECT_EQ(memory.peak_bytes, 22);
  EXPECT_TRUE(memory.of_control_group);
}

TEST(ControlCallsCodecTest, NodesOfTheHost) {
  EXPECT_EQ(Asked(HostNodesRequest{"train/128"}).program, "train/128");
  EXPECT_THAT(Asked(HostNodesRequest()).program, IsEmpty());
  EXPECT_THAT(Answered(HostNodes{{"a", "loss/b"}}).names, ElementsAre("a", "loss/b"));
  EXPECT_THAT(Answered(HostNodes()).names, IsEmpty());
}

TEST(ControlCallsCodecTest, CopiesOfADevice) {
  Asked(DeviceCopiesRequest());
  const DeviceCopies copies = {{1e-5, 2.5e10}, {2e-5, 2e10}, {0, 1.5e12}};
  EXPECT_EQ(Answered(copies), copies);
}

TEST(ControlCallsCodecTest, ACheckpointWithItsError) {
  CheckpointWrite written;
  written.state = CheckpointWrite::State::kDone;
  written.folder = "step-100";
  written.status = absl::ResourceExhaustedError("no space left");
  written.file = "rank-1.safetensors";
  written.bytes = int64_t{1} << 35;
  written.checksum = 0xfedcba9876543210;
  written.tensors = {{"w", 0xffffffffffffffff}, {"b", 1}};
  written.pause_seconds = 0.125;
  written.write_seconds = 2.5;
  const CheckpointWrite read = Answered(written);
  EXPECT_EQ(read.state, CheckpointWrite::State::kDone);
  EXPECT_EQ(read.folder, "step-100");
  EXPECT_EQ(read.status, absl::ResourceExhaustedError("no space left"));
  EXPECT_EQ(read.file, "rank-1.safetensors");
  EXPECT_EQ(read.bytes, int64_t{1} << 35);
  EXPECT_EQ(read.checksum, 0xfedcba9876543210);
  EXPECT_THAT(read.tensors, ElementsAre(Pair("b", 1), Pair("w", 0xffffffffffffffff)));
  EXPECT_EQ(read.pause_seconds, 0.125);
  EXPECT_EQ(read.write_seconds, 2.5);
}

TEST(ControlCallsCodecTest, ProgramText) {
  const ProgramText text = Answered(ProgramText{"compute fc1\n", 4096});
  EXPECT_EQ(text.part, "compute fc1\n");
  EXPECT_EQ(text.total_bytes, 4096);
}

// Parts of a text end anywhere. One that ended within a letter was no valid string of protobuf, and
// the whole answer was lost.
TEST(ControlCallsCodecTest, PartsOfAProgramAreCutWithinLetters) {
  EXPECT_EQ(Answered(ProgramText{"compute gr\xc3", 4096}).part, "compute gr\xc3");
}

// So was an abort whose long reason was cut.
TEST(ControlCallsCodecTest, ReasonsOfAnAbortAreCutWithinLetters) {
  rpc::AbortRequest request;
  request.set_reason("loss is \xce");
  EXPECT_EQ(ThroughBytes(request).reason(), "loss is \xce");
}

TEST(ControlCallsCodecTest, AQuestionOfANewerVersionIsUnimplemented) {
  const auto read = Decode(rpc::ControlRequest());
  EXPECT_EQ(read.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("of one version"));
}

TEST(ControlCallsCodecTest, AnEmptyAnswerIsDataLoss) {
  EXPECT_EQ(Decode(rpc::ControlReply()).status().code(), absl::StatusCode::kDataLoss);
}

TEST(ControlCallsCodecTest, AnAnswerOutOfRangeIsDataLoss) {
  for (const int state : {-1, 3}) {
    rpc::ControlReply reply;
    reply.mutable_checkpoint()->set_state(state);
    EXPECT_EQ(Decode(reply).status().code(), absl::StatusCode::kDataLoss) << state;
  }
  for (const int phase : {-1, 4, 256}) {
    rpc::ControlReply reply;
    reply.mutable_statistics()->add_programs()->add_nodes()->set_phase(phase);
    EXPECT_EQ(Decode(reply).status().code(), absl::StatusCode::kDataLoss) << phase;
  }
}

}  // namespace
}  // namespace weft
