#include "executor/lowering/load_values.h"

#include <string>

#include "executor/lowering/step_description.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// Slot 0 is made by one run; `loaded` is its value in a buffer.
struct SlotProgram {
  LoweringProgram program;
  BufferIndex loaded = kNoBuffer;
  BufferIndex other = kNoBuffer;

  SlotProgram() {
    loaded = program.step.buffers.AddArena(8);
    other = program.step.buffers.AddArena(8);
    program.step.slots.resize(1);
    lowered::ValueRun run;
    run.results = {0};
    program.step.compute.push_back({run});
    program.loads[loaded] = {lowered::Load{0, DType::kFloat32, Shape{2}, loaded, {}}};
  }
  void Read() { program.step.compute.push_back({lowered::Copy{loaded, other, 8}}); }
  std::string Text() { return Describe(LoadValues(std::move(program))); }
};

TEST(LoadValuesTest, AValueIsLoadedOnceBeforeItsFirstReader) {
  SlotProgram slot;
  slot.Read();
  slot.Read();
  EXPECT_THAT(slot.Text(), HasSubstr("compute:\n"
                                     "  values: -> s0\n"
                                     "  load: s0 -> b0, releases s0\n"
                                     "  copy: b0 -> b1\n"
                                     "  copy: b0 -> b1\n"));
}

TEST(LoadValuesTest, WhatNobodyReadsInABufferIsNotLoaded) {
  SlotProgram slot;
  EXPECT_THAT(slot.Text(), HasSubstr("compute:\n  values: -> s0, releases s0\nbuffers:\n"));
}

TEST(LoadValuesTest, UpdatesAndReportsAreReadersToo) {
  for (const bool is_report : {false, true}) {
    SlotProgram slot;
    if (is_report) {
      slot.program.step.reports.push_back({"r", slot.loaded, DType::kFloat32, Shape{2}, kNoSlot});
    } else {
      slot.program.updates.push_back({slot.loaded, slot.other});
    }
    EXPECT_THAT(slot.Text(), HasSubstr("  load: s0 -> b0, releases s0\nbuffers"));
  }
}

TEST(LoadValuesTest, ASlotIsReleasedByTheLastThatUsesItButReportsAndConstantsAreKept) {
  SlotProgram slot;
  LoweredStep& step = slot.program.step;
  step.slots.emplace_back();                                                    // 1: a report
  step.slots.emplace_back(Tensor::Of<float>(Shape{1}, std::vector<float>{1}));  // 2: a constant
  step.reports.push_back({"r", kNoBuffer, DType::kInvalid, Shape{}, 1});
  lowered::ValueRun run;
  run.operands.resize(2);
  run.operands[0].slot = 0;
  run.operands[1].slot = 2;
  run.results = {1};
  step.compute.push_back({run});
  run.results = {kNoSlot};
  step.compute.push_back({run});
  EXPECT_THAT(slot.Text(), HasSubstr("  values: -> s0\n"
                                     "  values: s0 s2 -> s1\n"
                                     "  values: s0 s2, releases s0\n"));
}

}  // namespace
}  // namespace weft
