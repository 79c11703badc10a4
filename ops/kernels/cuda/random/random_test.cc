// Random numbers on the emulated GPU have the bits of the CPU's.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

// Each output, bit by bit, of the whole tensor or of a slice of it.
::testing::AssertionResult HasBitsOfCpu(const OpCase& op_case, const OperandSlice& slice = {}) {
  NodeRunOptions cpu;
  EmulatedRunOptions gpu;
  if (slice.global_shape.rank() > 0) {
    OperandSlice scalar;  // what the ratio and the mode are
    cpu.input_slices.assign(op_case.inputs.size(), scalar);
    if (!op_case.inputs.empty()) cpu.input_slices[0] = slice;
    cpu.output_slices.assign(op_case.outputs.size(), slice);
    gpu.input_slices = cpu.input_slices;
    gpu.output_slices = cpu.output_slices;
  }
  const auto expected = RunCase(op_case, cpu);
  if (!expected.ok()) return ::testing::AssertionFailure() << "CPU: " << expected.status();
  for (const uint64_t seed : {1, 2}) {
    gpu.seed = seed;
    const auto actual = RunOnEmulatedGpu(op_case, gpu);
    if (!actual.ok()) return ::testing::AssertionFailure() << actual.status();
    for (size_t i = 0; i < expected->size(); ++i) {
      if (!expected->at(i).valid()) continue;
      const auto same =
          TensorsNear(actual->at(i), expected->at(i), {.of_magnitude = 0, .absolute = 0});
      if (!same) return same;
    }
  }
  return ::testing::AssertionSuccess();
}

const DType kFloatTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16};

Attributes RandomOf(std::vector<int64_t> shape, DType dtype) {
  return {{"shape", std::move(shape)}, {"dtype", static_cast<int64_t>(dtype)}, {"seed", 2.5f}};
}

TEST(RandomOnGpu, Tensors) {
  for (const char* op : {"RandomUniform", "RandomNormal"}) {
    for (const DType dtype : kFloatTypes) {
      for (const std::vector<int64_t>& shape :
           std::vector<std::vector<int64_t>>{{}, {0}, {3, 691}, {8, 4}}) {
        Attributes attributes = RandomOf(shape, dtype);
        attributes.Set(op == std::string("RandomNormal") ? "mean" : "low", 1.25f);
        attributes.Set(op == std::string("RandomNormal") ? "scale" : "high", 3.1f);
        EXPECT_TRUE(HasBitsOfCpu({.op = op, .attributes = attributes, .inputs = {}}));
      }
    }
  }
  EXPECT_TRUE(HasBitsOfCpu({.op = "RandomNormalLike", .inputs = {RandomTensor({1031}, 1)}}));
  EXPECT_TRUE(HasBitsOfCpu({.op = "RandomUniformLike", .inputs = {RandomTensor({1031}, 1)}}));
}

// Rows of fours, rows of others, and a single axis that begins anywhere.
std::vector<std::pair<Shape, OperandSlice>> Slices() {
  return {{{6, 8}, {{12, 20}, {5, 7}}},
          {{6, 7}, {{12, 20}, {5, 8}}},
          {{65}, {{300}, {131}}},
          {{3, 4, 5}, {{6, 4, 10}, {2, 0, 5}}}};
}

TEST(RandomOnGpu, SlicesOfATensor) {
  for (const auto& [shape, slice] : Slices()) {
    const std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
    for (const char* op : {"RandomUniform", "RandomNormal"}) {
      EXPECT_TRUE(HasBitsOfCpu(
          {.op = op, .attributes = RandomOf(dims, DType::kFloat32), .inputs = {}}, slice))
          << shape.ToString();
    }
    EXPECT_TRUE(HasBitsOfCpu({.op = "Bernoulli", .inputs = {RandomTensor(shape, 1, 0, 1)}}, slice));
  }
}

TEST(RandomOnGpu, Bernoulli) {
  for (const DType from : kFloatTypes) {
    for (const DType to :
         {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16, DType::kInt8,
          DType::kUint16, DType::kInt32, DType::kInt64, DType::kBool}) {
      EXPECT_TRUE(HasBitsOfCpu({.op = "Bernoulli",
                                .attributes = {{"dtype", static_cast<int64_t>(to)}},
                                .inputs = {RandomTensor({1031}, 1, 0, 1, from)}}));
    }
  }
}

TEST(RandomOnGpu, Multinomial) {
  for (const DType from : kFloatTypes) {
    for (const DType to : {DType::kInt32, DType::kInt64}) {
      EXPECT_TRUE(HasBitsOfCpu({.op = "Multinomial",
                                .attributes = {{"dtype", static_cast<int64_t>(to)},
                                               {"sample_size", int64_t{37}},
                                               {"seed", 4.0f}},
                                .inputs = {RandomTensor({5, 11}, 1, -3, 3, from)}}));
    }
  }
}

// ---- Dropout.

OpCase DropoutCase(const Shape& shape, DType dtype, bool wants_mask, Attributes attributes = {}) {
  return {.op = "Dropout",
          .attributes = std::move(attributes),
          .inputs = {RandomTensor(shape, 1, -2, 2, dtype), Tensor::Scalar<float>(0.3f),
                     Cast(Tensor::Scalar<float>(1), DType::kBool)},
          .outputs = wants_mask ? std::vector<bool>{true, true} : std::vector<bool>{true}};
}

TEST(DropoutOnGpu, HasTheMaskOfTheCpu) {
  const Attributes seeded = {{"seed", int64_t{1234}}};
  for (const DType dtype : kFloatTypes) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{17}, Shape{3, 691}, Shape{16, 64}}) {
      for (const bool wants_mask : {false, true}) {
        EXPECT_TRUE(HasBitsOfCpu(DropoutCase(shape, dtype, wants_mask)));
        // The twister's numbers, more than it makes at once.
        EXPECT_TRUE(HasBitsOfCpu(DropoutCase(shape, dtype, wants_mask, seeded)));
      }
    }
  }
  EXPECT_TRUE(HasBitsOfCpu(DropoutCase({900}, DType::kFloat32, true, {{"seed", int64_t{-5}}})));
}

TEST(DropoutOnGpu, SlicesOfATensor) {
  for (const auto& [shape, slice] : Slices()) {
    for (const bool wants_mask : {false, true}) {
      EXPECT_TRUE(HasBitsOfCpu(DropoutCase(shape, DType::kFloat32, wants_mask), slice));
      EXPECT_TRUE(HasBitsOfCpu(
          DropoutCase(shape, DType::kFloat32, wants_mask, {{"seed", int64_t{7}}}), slice));
    }
  }
}

TEST(DropoutOnGpu, RatiosOfEachType) {
  for (const DType ratio : kFloatTypes) {
    OpCase typed = DropoutCase({257}, DType::kFloat32, true);
    typed.inputs[1] = Cast(typed.inputs[1], ratio);
    EXPECT_TRUE(HasBitsOfCpu(typed));
  }
  OpCase by_default = DropoutCase({257}, DType::kFloat32, true);
  by_default.inputs[1] = Tensor();
  EXPECT_TRUE(HasBitsOfCpu(by_default));
}

TEST(DropoutOnGpu, PassesOutsideOfTraining) {
  OpCase passing = DropoutCase({257}, DType::kFloat16, true);
  passing.inputs[2] = Cast(Tensor::Scalar<float>(0), DType::kBool);
  EXPECT_TRUE(HasBitsOfCpu(passing));
  passing.inputs.resize(1);
  EXPECT_TRUE(HasBitsOfCpu(passing));
  passing.attributes = {{"seed", int64_t{3}}};
  EXPECT_TRUE(HasBitsOfCpu(passing));
}

TEST(DropoutOnGpu, RatiosOutOfRangeAreFaults) {
  for (const float ratio : {1.0f, 1.5f, -0.25f, std::numeric_limits<float>::quiet_NaN()}) {
    OpCase wrong = DropoutCase({257}, DType::kFloat32, true);
    wrong.inputs[1] = Tensor::Scalar<float>(ratio);
    EXPECT_TRUE(
        ExpectErrorOnEmulatedGpu(wrong, absl::StatusCode::kInvalidArgument, {"Dropout", "ratio"}));
  }
}

TEST(DropoutOnGpu, EightBitFloatsAreRefused) {
  OpCase small = DropoutCase({5}, DType::kFloat32, false);
  small.inputs[0] = Cast(small.inputs[0], DType::kFloat8E5M2);
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(small, absl::StatusCode::kUnimplemented, {"float8e5m2"}));
}

TEST(DropoutGradOnGpu, ScalesWhatWasKept) {
  for (const DType dtype : kFloatTypes) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{17}, Shape{3, 691}}) {
      for (const float training : {0.0f, 1.0f}) {
        const OpCase gradient{
            .domain = "ai.weft",
            .op = "DropoutGrad",
            .inputs = {RandomTensor(shape, 1, -2, 2, dtype),
                       RandomTensor(shape, 2, 0, 1, DType::kBool), Tensor::Scalar<float>(0.3f),
                       Cast(Tensor::Scalar<float>(training), DType::kBool)}};
        EXPECT_TRUE(HasBitsOfCpu(gradient));
        if (dtype == DType::kFloat32) {
          EXPECT_TRUE(CheckOnEmulatedGpu(gradient));
        }
      }
    }
  }
}

// Recordings of a step must not repeat what they draw.
TEST(RandomOnGpu, KernelsThatDrawSayThatTheyDependOnTheStep) {
  const Tensor x = RandomTensor({7}, 1, 0, 1);
  for (const OpCase& op_case :
       {OpCase{.op = "Dropout", .inputs = {x}}, OpCase{.op = "Bernoulli", .inputs = {x}},
        OpCase{.op = "RandomNormalLike", .inputs = {x}}}) {
    EmulatedDevice device(EmulatedDeviceOptions{});
    const SingleNodeGraph single = MakeSingleNodeGraph(op_case);
    NodeRunOptions options;
    options.device = &device;
    const auto node =
        ConcreteNode::Create(single.graph->node(single.node), op_case.inputs, options);
    ASSERT_TRUE(node.ok()) << node.status();
    const auto kernel = node->Prepare();
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    EXPECT_TRUE((*kernel)->depends_on_step()) << op_case.op;
  }
}

}  // namespace
}  // namespace weft::testing
