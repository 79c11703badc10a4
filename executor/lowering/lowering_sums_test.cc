// Hand-made partitions: what becomes of sums over micro-batches. Results are checked on the CPU and
// on fake devices, structure on the lowered lists.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "executor/lowering/lowering.h"
#include "executor/lowering/testing/hand_made_partition.h"
#include "executor/lowering/testing/lowering_fixture.h"
#include "executor/program/compile_step.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LoweringSumsTest : public LoweringFixture {};

INSTANTIATE_TEST_SUITE_P(CpuAndFake, LoweringSumsTest, LoweringDevices(), LoweringDeviceName);

TEST_P(LoweringSumsTest, TheFirstLeafIsWrittenWhereTheSumWillBe) {
  Partition partition = NewPartition(3, [](GraphBuilder& b) { Scaled(b, "y", "x", 2); });
  AddSum(partition, "y", "sum", 0, 3);
  ReportSums(partition);
  auto step = LowerStep(partition, Environment());
  ASSERT_TRUE(step.ok()) << step.status();
  int copies = 0;
  std::vector<BufferIndex> leaves;
  std::vector<BufferIndex> targets;
  for (const LoweredInstruction& instruction : step->compute) {
    copies += instruction.As<lowered::Copy>() != nullptr;
    const auto* const run = instruction.As<lowered::KernelRun>();
    if (run != nullptr && instruction.micro_batch >= 0) {
      leaves.push_back(step->buffers.Root(run->outputs[0]));
    }
    if (const auto* const add = instruction.As<lowered::Add>()) {
      targets.push_back(step->buffers.Root(add->into));
    }
  }
  EXPECT_EQ(copies, 0);
  EXPECT_THAT(targets, ElementsAre(leaves[0], leaves[0]));
  EXPECT_NE(leaves[1], leaves[0]);
}

TEST_P(LoweringSumsTest, ASummedValueMayBeReadElsewhere) {
  for (const int micro_batches : {1, 2, 4}) {
    for (const bool tree : {false, true}) {
      Partition partition = NewPartition(micro_batches, [](GraphBuilder& b) {
        Scaled(b, "y", "x", 2);
        Scaled(b, "z", "y", 10);
      });
      AddSum(partition, "y", "sum_y", 0, micro_batches, tree);
      AddSum(partition, "z", "sum_z", 0, micro_batches, tree);
      ReportSums(partition);
      const auto result = Run(partition);
      const float total = static_cast<float>(micro_batches * (micro_batches + 1));
      EXPECT_THAT(Report(result, "got_sum_y"), ElementsAre(total, total * 10));
      EXPECT_THAT(Report(result, "got_sum_z"), ElementsAre(total * 10, total * 100));
    }
  }
}

TEST_P(LoweringSumsTest, OneValueMayBeALeafOfSeveralSums) {
  for (const int micro_batches : {1, 2, 3}) {
    Partition partition =
        NewPartition(micro_batches, [](GraphBuilder& b) { Scaled(b, "y", "x", 2); });
    AddSum(partition, "y", "one", 0, micro_batches);
    AddSum(partition, "y", "two", 0, micro_batches);
    ReportSums(partition);
    const auto result = Run(partition);
    const float total = static_cast<float>(micro_batches * (micro_batches + 1));
    EXPECT_THAT(Report(result, "got_one"), ElementsAre(total, total * 10));
    EXPECT_THAT(Report(result, "got_two"), ElementsAre(total, total * 10));
  }
}

TEST_P(LoweringSumsTest, SeveralBlocksOfATreeAreSeparateSums) {
  Partition partition = NewPartition(7, [](GraphBuilder& b) { Scaled(b, "y", "x", 1); });
  for (const char* name : {"a", "b", "c"}) partition.end.AddInput(name, FloatType({1, 2}));
  partition.accumulations = {{"y", {{"a", 0, 4}, {"b", 4, 6}, {"c", 6, 7}}, true}};
  ReportSums(partition);
  const auto result = Run(partition);
  EXPECT_THAT(Report(result, "got_a"), ElementsAre(10, 100));
  EXPECT_THAT(Report(result, "got_b"), ElementsAre(11, 110));
  EXPECT_THAT(Report(result, "got_c"), ElementsAre(7, 70));
}

// ((1 + 2) + (3 + 4)), not (((1 + 2) + 3) + 4): told apart by a sum that loses small terms.
TEST_P(LoweringSumsTest, AnOrderedTreeAddsPairsFirst) {
  class Source final : public InputSource {
   public:
    absl::Status Fill(int64_t, const FeedInput&, int64_t first, int64_t, void* target) override {
      const float values[] = {16777216.f, 0.f, 1.f, 1.f};
      static_cast<float*>(target)[0] = values[first];
      static_cast<float*>(target)[1] = 0;
      return absl::OkStatus();
    }
  } source;
  for (const bool tree : {false, true}) {
    Partition partition = NewPartition(4, [](GraphBuilder& b) { Scaled(b, "y", "x", 1); });
    AddSum(partition, "y", "sum", 0, 4, tree);
    ReportSums(partition);
    ExecutorEnvironment environment = Environment();
    environment.input = &source;
    auto program = CompileStep(partition, environment);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(Report((*program)->Run({}), "got_sum")[0], tree ? 16777218.f : 16777216.f);
  }
}

TEST_P(LoweringSumsTest, AConstantIsSummedOncePerMicroBatch) {
  Partition partition = NewPartition(3, [](GraphBuilder& b) {
    b.graph().AddConstant("c", Tensor::Of<float>({1, 2}, {2, 5}));
  });
  AddSum(partition, "c", "sum", 0, 3);
  ReportSums(partition);
  EXPECT_THAT(Report(Run(partition), "got_sum"), ElementsAre(6, 15));
  EXPECT_THAT(Report(program_->Run({}), "got_sum"), ElementsAre(6, 15));
}

// Graphs of two sizes may convert values otherwise, so that one of them has a value of its own.
TEST_P(LoweringSumsTest, ASumNeedsItsLeafOnlyInItsOwnMicroBatches) {
  Partition partition = NewPartition(2, [](GraphBuilder& b) { Scaled(b, "y", "x", 2); });
  Graph other;
  other.AddInput("x", FloatType({1, 2}));
  GraphBuilder builder(other);
  Scaled(builder, "y@S(0)", "x", 5);
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  partition.micro.push_back(std::move(other));
  partition.micro_batches[1].graph = 1;
  AddSum(partition, "y", "first", 0, 1);
  AddSum(partition, "y@S(0)", "second", 1, 2);
  ReportSums(partition);
  const auto result = Run(partition);
  EXPECT_THAT(Report(result, "got_first"), ElementsAre(2, 20));
  EXPECT_THAT(Report(result, "got_second"), ElementsAre(10, 100));
}

TEST_P(LoweringSumsTest, ASumThatNeverEndsIsAnError) {
  Partition partition = NewPartition(2, [](GraphBuilder& b) { Scaled(b, "y", "x", 2); });
  AddSum(partition, "y", "sum", 0, 3);
  ReportSums(partition);
  const auto result = Run(partition);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("'sum' is not complete"));
}

}  // namespace
}  // namespace weft::testing
