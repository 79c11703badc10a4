#include "executor/lowering/merge_in_place.h"

#include <utility>
#include <vector>

#include "executor/lowering/step_description.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using InPlace = std::vector<std::pair<int, int>>;

class MergeInPlaceTest : public ::testing::Test {
 protected:
  BufferIndex NewBuffer(int64_t bytes = 8) { return program_.step.buffers.AddArena(bytes); }
  BufferIndex NewVariable() { return program_.step.buffers.AddFixed(nullptr, 8); }
  // A kernel that may write its output over its first input.
  void Run(std::vector<BufferIndex> inputs, BufferIndex output) {
    lowered::KernelRun run;
    run.inputs = std::move(inputs);
    run.outputs = {output};
    run.in_place = &kOverFirst;
    program_.step.compute.push_back({run});
  }
  void Make(BufferIndex buffer) { program_.step.compute.push_back({lowered::Receive{0, buffer}}); }
  LoweringProgram Merge(bool training = true) {
    return MergeInPlace(std::move(program_), training);
  }
  static bool Share(const LoweringProgram& program, BufferIndex a, BufferIndex b) {
    return program.step.buffers.Root(a) == program.step.buffers.Root(b);
  }

  static inline const InPlace kOverFirst = {{0, 0}};
  LoweringProgram program_;
};

TEST_F(MergeInPlaceTest, AnOutputGoesOverAnInputThatDiesThere) {
  const BufferIndex a = NewBuffer(), b = NewBuffer(), c = NewBuffer();
  Make(a);
  Run({a}, b);
  Run({b}, c);
  const LoweringProgram program = Merge();
  EXPECT_TRUE(Share(program, a, b));
  EXPECT_TRUE(Share(program, a, c));
}

TEST_F(MergeInPlaceTest, NotOverWhatIsReadLaterOrTwiceOrIsSmaller) {
  const BufferIndex a = NewBuffer(), b = NewBuffer(), c = NewBuffer(), d = NewBuffer(16);
  Make(a);
  Run({a}, b);     // a is read below
  Run({a, a}, c);  // twice at once
  Run({c}, d);     // d is larger
  const LoweringProgram program = Merge();
  EXPECT_FALSE(Share(program, a, b));
  EXPECT_FALSE(Share(program, a, c));
  EXPECT_FALSE(Share(program, c, d));
}

TEST_F(MergeInPlaceTest, AVariableIsWrittenOnlyByItsOwnUpdate) {
  const BufferIndex w = NewVariable(), v = NewVariable();
  const BufferIndex new_w = NewBuffer(), of_v = NewBuffer();
  Run({w}, new_w);
  Run({v}, of_v);
  program_.updates = {{new_w, w}};
  const LoweringProgram program = Merge();
  EXPECT_TRUE(Share(program, new_w, w));
  EXPECT_FALSE(Share(program, of_v, v));
  EXPECT_EQ(program.step.compute.size(), 2u);  // no copy
  EXPECT_TRUE(program.updates.empty());
}

TEST_F(MergeInPlaceTest, AnUpdateBesideAReaderOfTheOldValueIsCopiedAtTheEnd) {
  const BufferIndex w = NewVariable(), new_w = NewBuffer(), other = NewBuffer();
  Run({w}, new_w);
  Run({w}, other);
  program_.updates = {{new_w, w}};
  EXPECT_THAT(Describe(Merge()), HasSubstr("  kernel: fixed0 -> b1\n"
                                           "  kernel: fixed0 -> b2\n"
                                           "  copy: b1 -> fixed0\n"));
}

TEST_F(MergeInPlaceTest, VariablesThatSwapKeepTheirOldValuesFirst) {
  const BufferIndex a = NewVariable(), b = NewVariable();
  program_.updates = {{b, a}, {a, b}};
  EXPECT_THAT(Describe(Merge()), HasSubstr("compute:\n"
                                           "  copy: fixed1 -> b2\n"
                                           "  copy: fixed0 -> b3\n"
                                           "  copy: b2 -> fixed0\n"
                                           "  copy: b3 -> fixed1\n"));
}

// Where the caller's memory may be used as it is, nothing is written over it.
TEST_F(MergeInPlaceTest, InputsThatMayBeBorrowedAreNotWrittenTo) {
  for (const int64_t bytes : {kMinMovedBytes - 1, kMinMovedBytes}) {
    for (const bool training : {false, true}) {
      program_ = LoweringProgram();
      const BufferIndex x = NewBuffer(bytes), y = NewBuffer(bytes);
      program_.step.compute.push_back({lowered::Fill{0, x, 0, 1}});
      Run({x}, y);
      const bool is_borrowed = !training && bytes >= kMinMovedBytes;
      EXPECT_EQ(Share(Merge(training), x, y), !is_borrowed) << bytes << training;
    }
  }
}

}  // namespace
}  // namespace weft
