#include "executor/lowering/group_kernels.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Its joined kernel knows its members.
class NamedKernel final : public JoinableKernel {
 public:
  NamedKernel(std::string key, std::string name) : key_(std::move(key)), name_(std::move(name)) {}
  absl::Status Run(const KernelContext&) override { return absl::OkStatus(); }
  std::string group_key() const override { return key_; }
  absl::StatusOr<std::unique_ptr<Kernel>> Join(
      const std::vector<JoinableKernel*>& members) const override {
    if (key_ == "broken") return absl::InternalError("cannot join");
    std::string names;
    for (const JoinableKernel* const member : members) {
      names += static_cast<const NamedKernel*>(member)->name_;
    }
    return std::make_unique<NamedKernel>(key_, names);
  }
  const std::string& name() const { return name_; }

 private:
  const std::string key_;
  const std::string name_;
};

class PlainKernel final : public Kernel {
 public:
  absl::Status Run(const KernelContext&) override { return absl::OkStatus(); }
};

class GroupKernelsTest : public ::testing::Test {
 protected:
  BufferIndex NewBuffer(int64_t bytes = 8) { return program_.step.buffers.AddArena(bytes); }
  BufferIndex NewVariable() { return program_.step.buffers.AddFixed(nullptr, 8); }
  // A node of one output; with an empty key, of a kernel that joins no other.
  void Run(const std::string& name, const std::string& key, std::vector<BufferIndex> inputs,
           BufferIndex output, int micro_batch = -1) {
    LoweredStep& step = program_.step;
    lowered::KernelRun run;
    if (key.empty()) {
      step.kernels.push_back(std::make_unique<PlainKernel>());
    } else {
      step.kernels.push_back(std::make_unique<NamedKernel>(key, name));
    }
    run.kernel = step.kernels.back().get();
    run.inputs = std::move(inputs);
    run.outputs = {output};
    step.compute.push_back({run, static_cast<int>(step.infos.size()), micro_batch});
    InstructionInfo& info = step.infos.emplace_back();
    info.node = name;
    info.op = "Op";
    info.output_dtypes = {DType::kFloat32};
    info.output_elements = {2};
  }
  // Where `b` is written over `a`, as after the pass before.
  void InPlace(BufferIndex b, BufferIndex a) { program_.step.buffers.Merge(b, a); }

  // The kernels in their new order, "ab" for a group of a and b; other instructions by family.
  std::vector<std::string> Order(int64_t max_held_bytes = kMaxHeldBytes) {
    absl::StatusOr<LoweringProgram> program = GroupKernels(std::move(program_), max_held_bytes);
    EXPECT_TRUE(program.ok()) << program.status();
    if (!program.ok()) return {};
    program_ = *std::move(program);
    std::vector<std::string> order;
    for (const LoweredInstruction& instruction : program_.step.compute) {
      const auto* const run = instruction.As<lowered::KernelRun>();
      if (run == nullptr) {
        order.push_back(FamilyName(instruction));
      } else if (const auto* const named = dynamic_cast<const NamedKernel*>(run->kernel)) {
        order.push_back(named->name());
      } else {
        order.push_back(program_.step.infos[instruction.info].node);
      }
    }
    return order;
  }

  LoweringProgram program_;
};

// Scale and update of three parameters, as the end of a training step has them.
TEST_F(GroupKernelsTest, KernelsOfOneKeyBecomeOneWithTheOperandsOfAll) {
  std::vector<BufferIndex> weights, scaled;
  for (const std::string name : {"1", "2", "3"}) {
    const BufferIndex w = NewVariable(), g = NewBuffer(), new_w = NewBuffer();
    weights.push_back(w);
    scaled.push_back(NewBuffer());
    program_.step.compute.push_back({lowered::Receive{0, g}});
    InPlace(new_w, w);
    InPlace(scaled.back(), g);
  }
  for (int i = 0; i < 3; ++i) {
    Run(absl::StrCat("s", i), "scale", {scaled[i]}, scaled[i]);
    Run(absl::StrCat("u", i), "update", {weights[i], scaled[i]}, weights[i]);
  }
  EXPECT_THAT(Order(), ElementsAre("receive", "receive", "receive", "s0s1s2", "u0u1u2"));
  const LoweredInstruction& update = program_.step.compute.back();
  const auto& run = *update.As<lowered::KernelRun>();
  EXPECT_THAT(run.inputs,
              ElementsAre(weights[0], scaled[0], weights[1], scaled[1], weights[2], scaled[2]));
  EXPECT_THAT(run.outputs, ElementsAre(weights[0], weights[1], weights[2]));
  EXPECT_TRUE(run.in_place->empty());
  const InstructionInfo& info = program_.step.infos[update.info];
  EXPECT_EQ(info.node, "u0 and 2 more");
  EXPECT_EQ(info.output_elements.size(), 3u);
  ASSERT_EQ(info.members.size(), 3u);
  EXPECT_EQ(info.members[2].node, "u2");
  EXPECT_EQ(info.members[2].first_output, 2u);
  EXPECT_EQ(program_.step.infos[5].node, "u2");
  EXPECT_EQ(program_.step.infos[5].group, update.info);
}

TEST_F(GroupKernelsTest, OtherKeysAndKernelsWithoutOneStayAlone) {
  const BufferIndex a = NewBuffer(), b = NewBuffer(), c = NewBuffer(), d = NewBuffer();
  Run("a", "one", {}, a);
  Run("b", "two", {}, b);
  Run("c", "", {}, c);
  Run("d", "", {}, d);
  EXPECT_THAT(Order(), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(program_.step.infos.size(), 4u);
}

// A chain of one key: no member may need what another one makes.
TEST_F(GroupKernelsTest, WhatNeedsAMemberIsInALaterGroup) {
  const BufferIndex a = NewBuffer(), b = NewBuffer(), c = NewBuffer(), d = NewBuffer();
  Run("a", "k", {}, a);
  Run("b", "k", {a}, b);
  Run("c", "k", {}, c);
  Run("d", "k", {c}, d);
  EXPECT_THAT(Order(), ElementsAre("ac", "bd"));
}

// Groups of two keys make no circle.
TEST_F(GroupKernelsTest, GroupsMakeNoCircle) {
  const BufferIndex a = NewBuffer(), b = NewBuffer(), c = NewBuffer(), d = NewBuffer();
  Run("x0", "x", {}, a);
  Run("y0", "y", {a}, b);
  Run("y1", "y", {}, c);
  Run("x1", "x", {c}, d);  // joining both pairs would be a circle
  EXPECT_THAT(Order(), ElementsAre("x0", "y0", "y1", "x1"));
}

TEST_F(GroupKernelsTest, WhatNeedsAKernelBetweenIsInALaterGroup) {
  Run("x0", "x", {}, program_.step.buffers.AddArena(8));
  Run("p", "", {0}, program_.step.buffers.AddArena(8));
  Run("x1", "x", {1}, program_.step.buffers.AddArena(8));
  EXPECT_THAT(Order(), ElementsAre("x0", "p", "x1"));
}

// The old value is read before it is written over; and one buffer is not written twice at once.
TEST_F(GroupKernelsTest, ReadersOfOldValuesComeFirst) {
  const BufferIndex w = NewVariable(), v = NewVariable(), seen = NewBuffer();
  Run("w", "k", {w}, w);
  Run("reader", "", {v}, seen);
  Run("v", "k", {v}, v);
  Run("again", "k", {w}, w);
  EXPECT_THAT(Order(), ElementsAre("reader", "wv", "again"));
}

// A merged buffer is what it is merged with.
TEST_F(GroupKernelsTest, AliasesCount) {
  const BufferIndex a = NewBuffer(), b = NewBuffer(), view = NewBuffer();
  InPlace(view, a);
  Run("a", "k", {}, a);
  Run("b", "k", {view}, b);
  EXPECT_THAT(Order(), ElementsAre("a", "b"));
}

// What starts after an update does not wait for those behind it, and an update before an await does
// not wait for it.
TEST_F(GroupKernelsTest, NothingMovesAcrossWhatWaits) {
  const BufferIndex a = NewBuffer(), b = NewBuffer();
  const auto pair = [&](const std::string& name) {
    Run(name + "0", "k", {}, NewBuffer());
    Run(name + "1", "k", {}, NewBuffer());
  };
  std::vector<LoweredInstruction>& compute = program_.step.compute;
  pair("a");
  compute.push_back({lowered::Signal{1}});
  pair("b");
  compute.push_back({lowered::Await{1}});
  pair("c");
  compute.push_back({lowered::Collective{0, false, {a}, {a}}});
  pair("d");
  compute.push_back({lowered::Guard{b}});
  pair("e");
  compute.push_back({lowered::Copy{a, b, 8}});  // moves
  Run("e2", "k", {}, NewBuffer());
  EXPECT_THAT(Order(), ElementsAre("a0a1", "signal", "b0b1", "await", "c0c1", "collective", "d0d1",
                                   "guard", "copy", "e0e1e2"));
}

TEST_F(GroupKernelsTest, KernelsOfMicroBatchesStay) {
  Run("a", "k", {}, NewBuffer(), 0);
  Run("b", "k", {}, NewBuffer(), 0);
  Run("c", "k", {}, NewBuffer(), 1);
  EXPECT_THAT(Order(), ElementsAre("a", "b", "c"));
}

// Values that one kernel makes and the next one reads would all be alive at once.
TEST_F(GroupKernelsTest, MemoryThatGroupsKeepAliveIsLimited) {
  for (const std::string name : {"0", "1", "2", "3"}) {
    const BufferIndex made = NewBuffer(100), w = NewVariable();
    Run("m" + name, "make", {}, made);
    Run("u" + name, "use", {w, made}, w);
  }
  EXPECT_THAT(Order(200), ElementsAre("m0m1", "u0u1", "m2m3", "u2u3"));
}

// Made long before, the same memory limits nothing.
TEST_F(GroupKernelsTest, MemoryThatIsThereAnywayDoesNotCount) {
  std::vector<BufferIndex> made;
  for (int i = 0; i < 4; ++i) {
    made.push_back(NewBuffer(100));
    program_.step.compute.push_back({lowered::Receive{0, made.back()}});
  }
  for (int i = 0; i < 4; ++i) {
    const BufferIndex w = NewVariable();
    Run(absl::StrCat("u", i), "use", {w, made[i]}, w);
  }
  EXPECT_EQ(Order(200).back(), "u0u1u2u3");
}

TEST_F(GroupKernelsTest, TheErrorOfAKernelComesThrough) {
  Run("a", "broken", {}, NewBuffer());
  Run("b", "broken", {}, NewBuffer());
  const auto program = GroupKernels(std::move(program_));
  EXPECT_THAT(std::string(program.status().message()), HasSubstr("cannot join"));
}

}  // namespace
}  // namespace weft
