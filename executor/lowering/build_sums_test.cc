#include "executor/lowering/build_sums.h"

#include <string>
#include <utility>
#include <vector>

#include "executor/lowering/step_description.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBytes = 8;

// Programs over sums of two floats. Values are received, which needs no kernel.
class BuildSumsTest : public ::testing::Test {
 protected:
  int AddSum(int first, int last, bool ordered_tree = false) {
    const auto index = static_cast<int>(program_.sums.size());
    program_.sums.push_back({"sum" + std::to_string(index),
                             program_.step.buffers.AddReserved(kBytes), DType::kFloat32, 2, first,
                             last, ordered_tree});
    return index;
  }
  // A value of the micro-batch, made by a node.
  BufferIndex Make(int micro_batch) {
    const BufferIndex value = program_.step.buffers.AddArena(kBytes);
    program_.step.compute.push_back({lowered::Receive{0, value}, -1, micro_batch});
    return value;
  }
  void AddLeaf(std::vector<int> sums, BufferIndex value, int micro_batch, bool is_own = true,
               bool is_read = false) {
    program_.step.compute.push_back(
        {lowered::Leaf{std::move(sums), value, is_own, is_read}, -1, micro_batch});
  }
  void Read(BufferIndex buffer) {
    program_.step.compute.push_back({lowered::Guard{buffer, DType::kFloat32}, -1, -1});
  }
  std::string Text() {
    auto built = BuildSums(std::move(program_));
    return built.ok() ? Describe(*built) : std::string(built.status().message());
  }

  LoweringProgram program_;
};

TEST_F(BuildSumsTest, TheFirstLeafIsMadeWhereTheSumGrowsAndOthersAreAdded) {
  const int sum = AddSum(0, 3);
  for (int i = 0; i < 3; ++i) AddLeaf({sum}, Make(i), i);
  EXPECT_THAT(Text(), HasSubstr("compute:\n"
                                "  receive mb0 #0: -> b0\n"
                                "  receive mb1 #0: -> b2\n"
                                "  add: b2 -> b0\n"
                                "  receive mb2 #0: -> b3\n"
                                "  add: b3 -> b0\n"
                                "  sum_ready: sum0\n"));
}

TEST_F(BuildSumsTest, AnOrderedTreeAddsEqualSubtrees) {
  const int sum = AddSum(0, 4, /*ordered_tree=*/true);
  for (int i = 0; i < 4; ++i) AddLeaf({sum}, Make(i), i);
  EXPECT_THAT(Text(), HasSubstr("compute:\n"
                                "  receive mb0 #0: -> b0\n"
                                "  receive mb1 #0: -> b2\n"
                                "  add: b2 -> b0\n"
                                "  receive mb2 #0: -> b3\n"
                                "  receive mb3 #0: -> b4\n"
                                "  add: b4 -> b3\n"
                                "  add: b3 -> b0\n"
                                "  sum_ready: sum0\n"));
}

// Whoever reads the value must not see the sum grow, nor a collective of another thread change it.
TEST_F(BuildSumsTest, AValueThatOthersReadStaysInACopy) {
  const int sum = AddSum(0, 1);
  const BufferIndex value = Make(0);
  AddLeaf({sum}, value, 0, /*is_own=*/true, /*is_read=*/true);
  program_.step.compute.push_back({lowered::Send{1, value}, -1, 0});
  EXPECT_THAT(Text(), HasSubstr("compute:\n"
                                "  receive mb0 #0: -> b0\n"
                                "  copy mb0: b0 -> b1\n"
                                "  sum_ready: sum0\n"
                                "  send mb0 #1: b1\n"));
}

// Another name of a value (a Reshape), or a constant: nobody makes it for the sum.
TEST_F(BuildSumsTest, AValueOfSomebodyElseIsCopied) {
  const int sum = AddSum(0, 2);
  const BufferIndex constant = program_.step.buffers.AddFixed(nullptr, kBytes);
  for (int i = 0; i < 2; ++i) AddLeaf({sum}, constant, i, /*is_own=*/false, /*is_read=*/true);
  EXPECT_THAT(Text(), HasSubstr("compute:\n"
                                "  copy mb0: fixed1 -> b0\n"
                                "  copy mb1: fixed1 -> b2\n"
                                "  add: b2 -> b0\n"
                                "  sum_ready: sum0\n"));
}

TEST_F(BuildSumsTest, AValueMayBeALeafOfSeveralSums) {
  const int whole = AddSum(0, 2);
  const int second = AddSum(1, 2);
  AddLeaf({whole}, Make(0), 0);
  AddLeaf({whole, second}, Make(1), 1);
  EXPECT_THAT(Text(), HasSubstr("compute:\n"
                                "  receive mb0 #0: -> b0\n"
                                "  receive mb1 #0: -> b1\n"
                                "  copy mb1: b1 -> b3\n"
                                "  sum_ready: sum1\n"
                                "  copy mb1: b3 -> b4\n"
                                "  add: b4 -> b0\n"
                                "  sum_ready: sum0\n"));
}

// The regions of collectives have a place of their own.
TEST_F(BuildSumsTest, AValueInARegionIsNotMovedIntoTheSum) {
  const int sum = AddSum(0, 1);
  const BufferIndex value = program_.step.buffers.AddArena(kBytes, /*group=*/7);
  program_.step.compute.push_back({lowered::Receive{0, value}, -1, 0});
  AddLeaf({sum}, value, 0);
  EXPECT_THAT(Text(), HasSubstr("compute:\n"
                                "  receive mb0 #0: -> b1\n"
                                "  copy: b1 -> b0\n"
                                "  sum_ready: sum0\n"));
}

TEST_F(BuildSumsTest, ASumThatIsReadTooEarlyOrNeverCompleteIsNamed) {
  const int sum = AddSum(0, 2);
  const BufferIndex buffer = program_.sums[sum].buffer;
  AddLeaf({sum}, Make(0), 0);
  Read(buffer);
  AddLeaf({sum}, Make(1), 1);
  EXPECT_EQ(Text(), "the sum 'sum0' is not complete before the update");
  program_ = LoweringProgram();
  AddSum(0, 2);
  EXPECT_EQ(Text(), "the sum 'sum0' is not complete before the update");
}

}  // namespace
}  // namespace weft
