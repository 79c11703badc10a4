#include "executor/lowering/compute_lifetimes.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::Pair;

std::pair<int, int> LifeOf(const LoweringProgram& program, BufferIndex buffer) {
  return {program.step.buffers.first(buffer), program.step.buffers.last(buffer)};
}

TEST(ComputeLifetimesTest, FromTheFirstToTheLastInstructionThatNamesIt) {
  LoweringProgram program;
  BufferTable& buffers = program.step.buffers;
  const BufferIndex a = buffers.AddArena(8), b = buffers.AddArena(8),
                    workspace = buffers.AddArena(8), unused = buffers.AddArena(8),
                    report = buffers.AddArena(8);
  program.step.compute.push_back({lowered::Receive{0, a}});
  lowered::KernelRun run;
  run.inputs = {a, kNoBuffer};
  run.outputs = {b};
  run.workspace = workspace;
  program.step.compute.push_back({run});
  program.step.compute.push_back({lowered::Copy{b, report, 8}});
  program.step.reports.push_back({"r", report, DType::kFloat32, Shape{2}, kNoSlot});
  buffers.Touch(unused, 2);  // from before
  program = ComputeLifetimes(std::move(program));
  EXPECT_THAT(LifeOf(program, a), Pair(0, 1));
  EXPECT_THAT(LifeOf(program, b), Pair(1, 2));
  EXPECT_THAT(LifeOf(program, workspace), Pair(1, 1));
  EXPECT_THAT(LifeOf(program, unused), Pair(-1, -1));
  EXPECT_THAT(LifeOf(program, report), Pair(2, 4));  // beyond the last instruction
}

TEST(ComputeLifetimesTest, MergedBuffersLiveAsLongAsAnyOfThem) {
  LoweringProgram program;
  BufferTable& buffers = program.step.buffers;
  const BufferIndex a = buffers.AddArena(8), b = buffers.AddArena(8);
  for (const BufferIndex buffer : {a, b}) {
    program.step.compute.push_back({lowered::Receive{0, buffer}});
  }
  buffers.Merge(b, a);
  program = ComputeLifetimes(std::move(program));
  EXPECT_THAT(LifeOf(program, a), Pair(0, 1));
}

// The thread beside the compute list works on it between the two.
TEST(ComputeLifetimesTest, ScratchOfTheCommunicationListLivesFromSignalToAwait) {
  LoweringProgram program;
  BufferTable& buffers = program.step.buffers;
  const BufferIndex other = buffers.AddArena(8);
  std::vector<BufferIndex> scratch;
  for (int i = 0; i < 2; ++i) {
    scratch.push_back(buffers.AddReserved(8));
    lowered::Collective collective;
    collective.buffers = {scratch.back()};
    collective.wait_signals = i + 1;
    program.step.communication.push_back({collective});
  }
  std::vector<LoweredInstruction>& compute = program.step.compute;
  compute.push_back({lowered::Receive{0, other}});
  compute.push_back({lowered::Signal{1}});
  compute.push_back({lowered::Receive{0, other}});
  compute.push_back({lowered::Signal{2}});
  compute.push_back({lowered::Await{1}});
  compute.push_back({lowered::Await{2}});
  program = ComputeLifetimes(std::move(program));
  EXPECT_THAT(LifeOf(program, scratch[0]), Pair(1, 4));
  EXPECT_THAT(LifeOf(program, scratch[1]), Pair(3, 5));
}

}  // namespace
}  // namespace weft
