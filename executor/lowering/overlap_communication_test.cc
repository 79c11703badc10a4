#include "executor/lowering/overlap_communication.h"

#include <string>
#include <utility>
#include <vector>

#include "executor/lowering/step_description.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class OverlapCommunicationTest : public ::testing::Test {
 protected:
  // A collective of the communication list over a region of its own, when these sums are ready.
  BufferIndex AddCollective(std::vector<int> sums) {
    const BufferIndex region = program_.step.buffers.AddReserved(8);
    lowered::Collective collective;
    collective.handle = static_cast<int>(program_.step.communication.size());
    collective.buffers = collective.outputs = {region};
    program_.step.communication.push_back({collective});
    program_.sums_of_communication.push_back(std::move(sums));
    return region;
  }
  void Ready(int sum) { program_.step.compute.push_back({lowered::SumReady{sum}}); }
  void Touch(BufferIndex buffer) {
    program_.step.compute.push_back({lowered::Guard{buffer, DType::kFloat32}});
  }
  int WaitSignals(const LoweringProgram& program, int i) {
    return program.step.communication[i].As<lowered::Collective>()->wait_signals;
  }

  LoweringProgram program_;
};

TEST_F(OverlapCommunicationTest, ACollectiveRunsFromItsLastSumToItsFirstReader) {
  const BufferIndex first = AddCollective({0, 1});
  const BufferIndex second = AddCollective({2});
  const BufferIndex other = program_.step.buffers.AddArena(8);
  Touch(first);  // the sum grows
  Ready(0);
  Ready(2);
  Touch(other);
  Ready(1);
  Touch(other);
  Touch(first);
  Touch(second);
  const auto program = OverlapCommunication(std::move(program_));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(Describe(*program), HasSubstr("compute:\n"
                                            "  guard: b0\n"
                                            "  signal #1\n"
                                            "  guard: b2\n"
                                            "  signal #2\n"
                                            "  guard: b2\n"
                                            "  await #1\n"
                                            "  guard: b0\n"
                                            "  await #2\n"
                                            "  guard: b1\n"
                                            "communication:\n"));
  EXPECT_EQ(WaitSignals(*program, 0), 2);
  EXPECT_EQ(WaitSignals(*program, 1), 1);
}

// What updates need from other ranks is there before any rank may change a variable.
TEST_F(OverlapCommunicationTest, WhatIsSignalledIsAwaitedBeforeACommit) {
  const BufferIndex first = AddCollective({0});
  const BufferIndex second = AddCollective({1});
  const BufferIndex other = program_.step.buffers.AddArena(8);
  Ready(0);
  Ready(1);
  Touch(other);
  program_.step.compute.push_back({lowered::Commit{}});
  Touch(second);
  Touch(first);
  const auto program = OverlapCommunication(std::move(program_));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(Describe(*program), HasSubstr("compute:\n"
                                            "  signal #1\n"
                                            "  signal #2\n"
                                            "  guard: b2\n"
                                            "  await #2\n"
                                            "  commit\n"
                                            "  guard: b1\n"
                                            "  guard: b0\n"
                                            "communication:\n"));
}

TEST_F(OverlapCommunicationTest, WhatNobodyReadsIsAwaitedBeforeTheStepEnds) {
  AddCollective({0});
  AddCollective({1});
  Ready(0);
  Ready(1);
  const auto program = OverlapCommunication(std::move(program_));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(Describe(*program), HasSubstr("compute:\n  signal #1\n  signal #2\n  await #2\n"));
}

// Sums that no collective waits for leave no trace.
TEST_F(OverlapCommunicationTest, OtherSumsNeedNoSignal) {
  Ready(0);
  const auto program = OverlapCommunication(std::move(program_));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(program->step.compute.empty());
}

// The compute thread would wait for ever.
TEST_F(OverlapCommunicationTest, ACollectiveThatIsNeverSignalledIsRefused) {
  AddCollective({0, 1});
  Ready(0);
  const absl::Status status = OverlapCommunication(std::move(program_)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("before its sums are complete"));
}

}  // namespace
}  // namespace weft
