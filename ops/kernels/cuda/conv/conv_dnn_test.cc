// Convolutions through cuDNN: on the emulated GPU with a library that computes from definitions, on
// a real GPU with cuDNN itself.
#include "ops/kernels/cuda/conv/conv_dnn.h"

#include <string>
#include <utility>
#include <vector>

#include "graph/attribute.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/dnn/testing/recording_dnn.h"
#include "ops/kernels/cuda/linear/blas_lt.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"
#include "tensor/device_id.h"
#include "tensor/lookup/device_lookup.h"

namespace weft::testing {
namespace {

using Sizes = std::vector<int64_t>;

Tolerance DnnToleranceOf(DType dtype) {
  if (dtype == DType::kBfloat16) return {.of_magnitude = 1e-2};
  if (dtype == DType::kFloat16) return {.of_magnitude = 1e-3};
  return {};
}

OpCase DnnCase(Shape x, Shape w, Attributes attributes = {}, bool bias = false,
               DType dtype = DType::kFloat32) {
  OpCase conv{.op = "Conv",
              .attributes = std::move(attributes),
              .inputs = {RandomTensor(x, 1, -1, 1, dtype), RandomTensor(w, 2, -1, 1, dtype)}};
  if (bias) conv.inputs.push_back(RandomTensor({w.dim(0)}, 3, -1, 1, dtype));
  return conv;
}

// The gradients of a Conv case: dX, and dW with dB.
OpCase DnnGradientOf(const OpCase& conv, bool of_weights) {
  const DType dtype = conv.inputs[0].dtype();
  const auto y = RunOp(conv, Kernels::kReference);
  EXPECT_TRUE(y.ok()) << y.status();
  const Tensor dy = RandomTensor(y.ok() ? (*y)[0].shape() : Shape(), 4, -1, 1, dtype);
  const Shape& x = conv.inputs[0].shape();
  const Shape& w = conv.inputs[1].shape();
  OpCase gradient;
  gradient.domain = "ai.weft";
  gradient.attributes = conv.attributes;
  gradient.attributes.Set("kernel_shape", Sizes(w.dims().begin() + 2, w.dims().end()));
  if (of_weights) {
    gradient.op = "ConvGradWeights";
    gradient.inputs = {conv.inputs[0], dy};
    gradient.outputs = {true, conv.inputs.size() > 2};
  } else {
    gradient.op = "ConvGradInput";
    gradient.inputs = {dy, conv.inputs[1], Int64s(Sizes(x.dims().begin(), x.dims().end()))};
  }
  return gradient;
}

// Tests of a build or machine without cuDNN are skipped aloud.
class CudaConvDnnTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (TestsOnARealGpu()) {
      const auto device = FindDevice(DeviceKind::kCuda, 0);
      ASSERT_TRUE(device.ok()) << device.status();
      const auto library = cuda::DnnOf(**device);
      if (!library.ok()) GTEST_SKIP() << "no cuDNN: " << library.status();
    }
    RecordingDnn::Get().TakeCalls();
  }

  // Runs by cuDNN; returns the calls of the emulator's library.
  static std::vector<RecordingDnn::Call> Check(const OpCase& op_case,
                                               const Tolerance& tolerance = {}) {
    RecordingDnn::Get().TakeCalls();
    EXPECT_TRUE(CheckOnEmulatedGpu(op_case, tolerance, 2, KernelRegistry::Global(),
                                   /*uses_cudnn=*/true))
        << op_case.ToString();
    return RecordingDnn::Get().TakeCalls();
  }

  // Conv and its gradients agree with the reference kernels, and all go through the library.
  static void ExpectThroughDnn(const OpCase& conv) {
    const Tolerance tolerance = DnnToleranceOf(conv.inputs[0].dtype());
    for (const OpCase& op_case : {conv, DnnGradientOf(conv, false), DnnGradientOf(conv, true)}) {
      const auto calls = Check(op_case, tolerance);
      // Two orders of threads, and the second runs twice.
      EXPECT_TRUE(TestsOnARealGpu() || calls.size() == 3) << op_case.ToString();
    }
  }
  // The same by another way.
  static void ExpectAnotherWay(const OpCase& conv) {
    const Tolerance tolerance = DnnToleranceOf(conv.inputs[0].dtype());
    for (const OpCase& op_case : {conv, DnnGradientOf(conv, false), DnnGradientOf(conv, true)}) {
      EXPECT_TRUE(Check(op_case, tolerance).empty()) << op_case.ToString();
    }
  }
};

TEST_F(CudaConvDnnTest, AgreesOnImagesOfOneToThreeAxes) {
  ExpectThroughDnn(DnnCase({2, 3, 9}, {5, 3, 4}, {}, true));
  ExpectThroughDnn(DnnCase({2, 3, 7, 6}, {4, 3, 3, 2}, {}, true));
  ExpectThroughDnn(DnnCase({2, 2, 4, 5, 3}, {3, 2, 2, 3, 2}, {}, true));
  ExpectThroughDnn(DnnCase({3, 5, 3, 4}, {7, 5, 1, 1}));
}

TEST_F(CudaConvDnnTest, AgreesWithPadsStridesAndDilations) {
  ExpectThroughDnn(DnnCase(
      {2, 2, 9, 8}, {3, 2, 3, 2},
      {{"pads", Sizes{2, 1, 2, 1}}, {"strides", Sizes{3, 2}}, {"dilations", Sizes{2, 1}}}, true));
  // A first axis of one element that has padding, and rows that no window holds.
  ExpectThroughDnn(DnnCase({2, 2, 1, 4, 5}, {3, 2, 3, 2, 2}, {{"pads", Sizes{1, 0, 1, 1, 0, 1}}}));
  ExpectThroughDnn(DnnCase({1, 2, 8, 9}, {2, 2, 2, 2}, {{"strides", Sizes{3, 4}}}));
}

TEST_F(CudaConvDnnTest, AgreesWithGroups) {
  const Attributes three = {{"group", int64_t{3}}, {"pads", Sizes{1, 1, 1, 1}}};
  ExpectThroughDnn(DnnCase({2, 15, 4, 5}, {12, 5, 3, 3}, three, true));
  ExpectThroughDnn(DnnCase({3, 3, 5, 4}, {6, 1, 3, 3}, three, true));
}

TEST_F(CudaConvDnnTest, AgreesForAllTypes) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    ExpectThroughDnn(
        DnnCase({3, 3, 6, 5}, {4, 3, 3, 3}, {{"pads", Sizes{1, 1, 1, 1}}}, true, dtype));
  }
}

TEST_F(CudaConvDnnTest, AgreesForTransposedConvolutions) {
  const auto transposed = [](Shape x, Shape w, Attributes attributes, int64_t outputs) {
    OpCase op_case = DnnCase(x, w, std::move(attributes));
    op_case.op = "ConvTranspose";
    op_case.inputs.push_back(RandomTensor({outputs}, 3, -1, 1));
    return op_case;
  };
  EXPECT_EQ(Check(transposed({2, 3, 4, 5}, {3, 4, 3, 2}, {}, 4)).empty(), TestsOnARealGpu());
  const Attributes strided = {{"strides", Sizes{2, 3}},
                              {"pads", Sizes{1, 0, 1, 0}},
                              {"output_padding", Sizes{1, 2}},
                              {"group", int64_t{3}}};
  EXPECT_EQ(Check(transposed({2, 6, 4, 3}, {6, 2, 3, 2}, strided, 6)).empty(), TestsOnARealGpu());
}

TEST_F(CudaConvDnnTest, LeavesOtherPadsAndTypesToColumns) {
  ExpectAnotherWay(DnnCase({2, 2, 9, 8}, {3, 2, 3, 2}, {{"pads", Sizes{0, 2, 1, 3}}}, true));
  ExpectAnotherWay(DnnCase({2, 3, 7, 6}, {4, 3, 3, 2}, {}, true, DType::kFloat64));
}

// Pads that differ where no window reaches are as good as equal ones.
TEST_F(CudaConvDnnTest, TakesPadsThatDifferWhereNoWindowReaches) {
  ExpectThroughDnn(
      DnnCase({1, 2, 7, 7}, {3, 2, 3, 3}, {{"pads", Sizes{1, 1, 2, 1}}, {"strides", Sizes{2, 2}}}));
}

TEST_F(CudaConvDnnTest, AgreesWithoutElements) {
  for (const OpCase& conv :
       {DnnCase({0, 3, 4, 4}, {2, 3, 2, 2}, {}, true),
        DnnCase({2, 0, 4, 4}, {2, 0, 2, 2}, {}, true), DnnCase({2, 3, 4, 4}, {0, 3, 2, 2})}) {
    EXPECT_TRUE(Check(conv).empty());
  }
  EXPECT_TRUE(Check(DnnGradientOf(DnnCase({0, 3, 4, 4}, {2, 3, 2, 2}, {}, true), true)).empty());
}

TEST_F(CudaConvDnnTest, IsUsedOnlyWhereItIsAskedFor) {
  EXPECT_TRUE(CheckOnEmulatedGpu(DnnCase({2, 3, 7, 6}, {4, 3, 3, 2}, {}, true)));
  EXPECT_TRUE(RecordingDnn::Get().TakeCalls().empty());
}

TEST_F(CudaConvDnnTest, LetsTheLibraryAddTheBias) {
  const OpCase conv = DnnCase({2, 3, 7, 6}, {4, 3, 3, 2}, {}, true);
  Check(conv);
  if (TestsOnARealGpu()) return;  // no records there
  std::vector<EmulatedLaunchRecord> launches;
  EmulatedRunOptions options;
  options.uses_cudnn = true;
  const auto y = RunOnEmulatedGpu(conv, options, &launches);
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(launches.size(), 1) << "the convolution alone";
  const auto calls = RecordingDnn::Get().TakeCalls();
  ASSERT_EQ(calls.size(), 1);
  EXPECT_TRUE(calls[0].spec.has_bias);
}

TEST_F(CudaConvDnnTest, AddsToTheBiasWhereTheLibraryHasNone) {
  RecordingDnn::Get().Refuse({.bias = true});
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
    const auto calls =
        Check(DnnCase({2, 3, 7, 6}, {4, 3, 3, 2}, {}, true, dtype), DnnToleranceOf(dtype));
    EXPECT_TRUE(TestsOnARealGpu() || calls.size() == 3) << calls.size();
    for (const auto& call : calls) EXPECT_TRUE(call.spec.adds && !call.spec.has_bias);
  }
  RecordingDnn::Get().Refuse({});
}

TEST_F(CudaConvDnnTest, GoesAnotherWayWhereTheLibraryHasNoPlan) {
  RecordingDnn::Get().Refuse({.bias = true, .adding = true});
  EXPECT_TRUE(Check(DnnCase({2, 3, 7, 6}, {4, 3, 3, 2}, {}, true)).empty());
  RecordingDnn::Get().Refuse({.all = true});
  ExpectAnotherWay(DnnCase({2, 3, 7, 6}, {4, 3, 3, 2}));
  RecordingDnn::Get().Refuse({});
}

TEST_F(CudaConvDnnTest, UsesTf32OnlyWhereItIsAllowed) {
  OpCase conv = DnnCase({2, 3, 7, 6}, {4, 3, 3, 2});
  for (const auto& call : Check(conv)) EXPECT_FALSE(call.spec.tf32);
  conv.tf32 = true;
  const auto calls = Check(conv, {.of_magnitude = 2e-3});
  EXPECT_TRUE(TestsOnARealGpu() || calls.size() == 3) << calls.size();
  for (const auto& call : calls) EXPECT_TRUE(call.spec.tf32);
}

// A provider that finds none.
absl::StatusOr<cuda::Dnn*> NoDnn(Device&) {
  return absl::FailedPreconditionError("cuDNN cannot be opened: looked for libcudnn.so.9");
}
absl::StatusOr<cuda::Dnn*> TheRecordingDnn(Device&) { return &RecordingDnn::Get(); }

TEST_F(CudaConvDnnTest, RefusesADeviceWithoutCudnn) {
  if (TestsOnARealGpu()) GTEST_SKIP() << "takes the library away";
  cuda::SetDnnProvider(NoDnn);
  EmulatedRunOptions options;
  options.uses_cudnn = true;
  const auto y = RunOnEmulatedGpu(DnnCase({2, 3, 7, 6}, {4, 3, 3, 2}), options);
  const auto without = RunOnEmulatedGpu(DnnCase({2, 3, 7, 6}, {4, 3, 3, 2}));
  cuda::SetDnnProvider(nullptr);
  const auto not_built = RunOnEmulatedGpu(DnnCase({2, 3, 7, 6}, {4, 3, 3, 2}), options);
  cuda::SetDnnProvider(TheRecordingDnn);
  EXPECT_EQ(y.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(y.status().message().find("looked for libcudnn.so.9"), std::string::npos) << y.status();
  EXPECT_TRUE(without.ok()) << without.status();
  EXPECT_NE(not_built.status().message().find("built without it"), std::string::npos)
      << not_built.status();
}

}  // namespace
}  // namespace weft::testing
