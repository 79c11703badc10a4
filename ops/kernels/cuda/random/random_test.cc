// Random numbers on the emulated GPU have the bits of the CPU's.
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "ops/concrete_node.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"
#include "platform/status_macros.h"

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

// ---- The step's number, which lies on the device

// What a run is told, besides its operands.
struct RunPlace {
  int64_t step = 0;
  int64_t first_sample = 0;
  int64_t samples = 0;
};

constexpr absl::Duration kDeadline = absl::Minutes(2);

// The node's outputs in each of these runs of one prepared kernel. On a device whose memory the
// host cannot reach, the number of the step is there alone: the host's is wrong.
absl::StatusOr<std::vector<std::vector<Tensor>>> RunsOf(const OpCase& op_case, Device& device,
                                                        const std::vector<RunPlace>& runs) {
  const SingleNodeGraph single = MakeSingleNodeGraph(op_case);
  NodeRunOptions options;
  options.device = &device;
  WEFT_ASSIGN_OR_RETURN(
      const ConcreteNode node,
      ConcreteNode::Create(single.graph->node(single.node), op_case.inputs, options));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel, node.Prepare());
  std::vector<std::shared_ptr<Buffer>> buffers;
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.NewStream("runs"));
  const auto memory = [&](size_t bytes) -> absl::StatusOr<void*> {
    WEFT_ASSIGN_OR_RETURN(buffers.emplace_back(), device.Allocate(bytes));
    return buffers.back()->data();
  };
  std::vector<const void*> inputs;
  for (const Tensor& input : op_case.inputs) {
    WEFT_ASSIGN_OR_RETURN(void* const data, memory(input.bytes()));
    WEFT_RETURN_IF_ERROR(device.CopyFromHost(*stream, input.raw_data(), data, input.bytes()));
    inputs.push_back(data);
  }
  WEFT_ASSIGN_OR_RETURN(void* const number, memory(sizeof(int64_t)));
  WEFT_ASSIGN_OR_RETURN(void* const workspace, memory(kernel->workspace_bytes()));
  std::vector<std::vector<Tensor>> results;
  for (const RunPlace& run : runs) {
    WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> tensors, node.AllocateOutputs());
    std::vector<void*> outputs;
    for (const Tensor& tensor : tensors) {
      outputs.push_back(nullptr);
      if (tensor.valid()) {
        WEFT_ASSIGN_OR_RETURN(outputs.back(), memory(tensor.bytes()));
      }
    }
    WEFT_RETURN_IF_ERROR(device.CopyFromHost(*stream, &run.step, number, sizeof(run.step)));
    KernelContext context;
    context.inputs = inputs.data();
    context.outputs = outputs.data();
    context.workspace = workspace;
    context.stream = stream.get();
    context.first_sample = run.first_sample;
    context.samples = run.samples;
    context.step = run.step;
    if (!device.info().host_accessible) {
      context.step = run.step + 1;
      context.step_on_device = static_cast<const int64_t*>(number);
    }
    WEFT_RETURN_IF_ERROR(kernel->Run(context));
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].valid()) continue;
      WEFT_RETURN_IF_ERROR(
          device.CopyToHost(*stream, outputs[i], tensors[i].raw_data(), tensors[i].bytes()));
    }
    WEFT_RETURN_IF_ERROR(stream->Synchronize(kDeadline));
    results.push_back(std::move(tensors));
  }
  return results;
}

// A job that was resumed has any number; step 0 is that of a node's own seed.
TEST(RandomOnGpu, TheStepOnTheDeviceGivesTheBitsOfTheCpu) {
  if (TestsOnARealGpu()) GTEST_SKIP() << "the device is the emulator's";
  const Tensor p = RandomTensor({6, 8}, 1, 0, 1);
  Attributes drawn = {{"dtype", static_cast<int64_t>(DType::kInt32)}, {"sample_size", int64_t{5}}};
  const std::vector<OpCase> cases = {
      {.op = "RandomUniform", .attributes = RandomOf({6, 8}, DType::kFloat32), .inputs = {}},
      {.op = "RandomNormalLike", .inputs = {p}},
      {.op = "Bernoulli", .inputs = {p}},
      {.op = "Multinomial", .attributes = drawn, .inputs = {p}},
      DropoutCase({6, 8}, DType::kFloat32, true),
      DropoutCase({6, 8}, DType::kBfloat16, false),
      DropoutCase({6, 8}, DType::kFloat32, true, {{"seed", int64_t{7}}}),
      DropoutCase({6, 8}, DType::kFloat32, false, {{"seed", int64_t{7}}})};
  const std::vector<RunPlace> runs = {
      {0}, {1}, {2}, {0, 6, 12}, {3, 0, 6}, {3, 6, 12}, {1000007, 18, 24}, {int64_t{5} << 40}};
  for (const OpCase& op_case : cases) {
    SCOPED_TRACE(op_case.ToString());
    const auto expected = RunsOf(op_case, CpuDevice(), runs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EmulatedDevice device({.seed = 3});
    const auto got = RunsOf(op_case, device, runs);
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t i = 0; i < runs.size(); ++i) {
      for (size_t k = 0; k < (*got)[i].size(); ++k) {
        if (!(*expected)[i][k].valid()) continue;
        EXPECT_TRUE(BitwiseEqual((*got)[i][k], (*expected)[i][k])) << "run " << i;
      }
    }
    EXPECT_FALSE(BitwiseEqual((*got)[0][0], (*got)[1][0])) << "each step has other numbers";
    EXPECT_TRUE(device.Verify().ok()) << device.Verify();
  }
}

// So recordings have them: on a GPU because they read the step there, and on none that computes
// with the CPU's kernels, which ask the host for it.
TEST(RandomOnGpu, KernelsThatDrawSayWhereTheyReadTheStep) {
  const Tensor x = RandomTensor({7}, 1, 0, 1);
  for (const OpCase& op_case :
       {OpCase{.op = "Dropout", .inputs = {x}}, OpCase{.op = "Bernoulli", .inputs = {x}},
        OpCase{.op = "RandomNormalLike", .inputs = {x}},
        OpCase{.op = "Multinomial", .inputs = {RandomTensor({2, 7}, 1)}}}) {
    EmulatedDevice gpu(EmulatedDeviceOptions{});
    const SingleNodeGraph single = MakeSingleNodeGraph(op_case);
    for (Device* const device : {static_cast<Device*>(&gpu), &CpuDevice()}) {
      NodeRunOptions options;
      options.device = device;
      const auto node =
          ConcreteNode::Create(single.graph->node(single.node), op_case.inputs, options);
      ASSERT_TRUE(node.ok()) << node.status();
      const auto kernel = node->Prepare();
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      EXPECT_EQ(dynamic_cast<StepReadingKernel*>(kernel->get()) != nullptr, device == &gpu)
          << op_case.op;
      EXPECT_EQ((*kernel)->depends_on_step(), device != &gpu) << op_case.op;
    }
  }
}

}  // namespace
}  // namespace weft::testing
