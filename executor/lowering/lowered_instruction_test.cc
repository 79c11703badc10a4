#include "executor/lowering/lowered_instruction.h"

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::IsEmpty;

// What a family reads and writes; its name in texts.
struct Family {
  LoweredInstruction instruction;
  std::vector<BufferIndex> reads;
  std::vector<BufferIndex> writes;
  std::string name;
};

// One of each, with buffers of numbers from 1 on. Omitted operands are no buffers.
std::vector<Family> Families() {
  lowered::KernelRun kernel;
  kernel.inputs = {1, kNoBuffer, 2};
  kernel.outputs = {3, kNoBuffer};
  kernel.workspace = 4;
  lowered::HostRun host;
  host.inputs = {1, kNoBuffer};
  host.outputs = {2, kNoBuffer};
  lowered::Collective collective;
  collective.buffers = {1, 2};
  collective.outputs = {3};
  lowered::ValueRun values;
  values.inputs = {1, 2};
  values.results = {5};
  lowered::CollectiveNode node;
  node.inputs = {1, kNoBuffer};
  node.outputs = {2};
  lowered::Fill fill;
  fill.into = 1;
  lowered::Load load;
  load.into = 1;
  lowered::Leaf leaf;
  leaf.value = 1;
  return {
      {{kernel}, {1, 2}, {3, 4}, "kernel"},
      {{host}, {1}, {2}, "host_kernel"},
      {{fill}, {}, {1}, "fill"},
      {{lowered::Send{0, 1}}, {1}, {}, "send"},
      {{lowered::WaitSent{0, 1}}, {1}, {}, "wait_sent"},
      {{lowered::Receive{0, 1}}, {}, {1}, "receive"},
      {{collective}, {1, 2}, {3}, "collective"},
      {{lowered::Add{1, 2}}, {1}, {2}, "add"},
      {{lowered::Copy{1, 2}}, {1}, {2}, "copy"},
      {{lowered::Pack{1, 2, {}}}, {1}, {2}, "pack"},
      {{lowered::Guard{1}}, {1}, {}, "guard"},
      {{lowered::Commit{}}, {}, {}, "commit"},
      {{lowered::Signal{1}}, {}, {}, "signal"},
      {{lowered::Await{1}}, {}, {}, "await"},
      {{values}, {1, 2}, {}, "values"},
      {{lowered::TakeValue{0, 1, {}}}, {}, {}, "take"},
      {{load}, {}, {1}, "load"},
      {{node}, {1}, {2}, "collective_node"},
      {{leaf}, {1}, {}, "leaf"},
      {{lowered::SumReady{1}}, {}, {}, "sum_ready"},
  };
}

TEST(LoweredInstructionTest, EachFamilySaysWhatItReadsAndWrites) {
  std::set<size_t> seen;
  for (const Family& family : Families()) {
    SCOPED_TRACE(family.name);
    seen.insert(family.instruction.work.index());
    EXPECT_EQ(FamilyName(family.instruction), family.name);
    std::vector<BufferIndex> reads, writes;
    VisitReads(family.instruction, [&reads](BufferIndex buffer) { reads.push_back(buffer); });
    VisitWrites(family.instruction, [&writes](BufferIndex buffer) { writes.push_back(buffer); });
    EXPECT_EQ(reads, family.reads);
    EXPECT_EQ(writes, family.writes);
  }
  EXPECT_EQ(seen.size(), std::variant_size_v<decltype(LoweredInstruction::work)>);
}

// As the pass does that writes outputs over inputs.
TEST(LoweredInstructionTest, AVisitorPutsAnotherBufferInPlace) {
  for (Family& family : Families()) {
    SCOPED_TRACE(family.name);
    VisitReads(family.instruction, [](BufferIndex& buffer) { buffer += 10; });
    VisitWrites(family.instruction, [](BufferIndex& buffer) { buffer += 100; });
    std::vector<BufferIndex> reads, writes;
    VisitReads(family.instruction, [&reads](BufferIndex& buffer) { reads.push_back(buffer); });
    VisitWrites(family.instruction, [&writes](BufferIndex& buffer) { writes.push_back(buffer); });
    for (BufferIndex& buffer : family.reads) buffer += 10;
    for (BufferIndex& buffer : family.writes) buffer += 100;
    EXPECT_EQ(reads, family.reads);
    EXPECT_EQ(writes, family.writes);
  }
}

TEST(LoweredInstructionTest, OmittedOperandsAreLeftOut) {
  const LoweredInstruction instruction = {lowered::KernelRun{}};
  std::vector<BufferIndex> visited;
  VisitReads(instruction, [&visited](BufferIndex buffer) { visited.push_back(buffer); });
  VisitWrites(instruction, [&visited](BufferIndex buffer) { visited.push_back(buffer); });
  EXPECT_THAT(visited, IsEmpty());
}

}  // namespace
}  // namespace weft
