// Normalizations through cuDNN: on the emulated GPU with a library that computes from definitions,
// on a real GPU with cuDNN itself.
#include "ops/kernels/cuda/normalization/normalization_dnn.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/dnn/testing/recording_dnn.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"
#include "tensor/device_id.h"
#include "tensor/lookup/device_lookup.h"

namespace weft::testing {
namespace {

const std::string kOurDomain(kWeftDomain);
constexpr DType kDnnTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBfloat16};

Shape RowOf(const Shape& x, int64_t axis) {
  return Shape(x.dims().subspan(static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)));
}

OpCase LayerRows(const Shape& x, int64_t axis, std::vector<bool> outputs = {true},
                 DType dtype = DType::kFloat32) {
  return {.op = "LayerNormalization",
          .attributes = {{"axis", axis}, {"epsilon", 1e-3f}},
          .inputs = {Cast(RandomTensor(x, 1, -3, 5), dtype),
                     Cast(RandomTensor(RowOf(x, axis), 2), dtype),
                     Cast(RandomTensor(RowOf(x, axis), 3), dtype)},
          .outputs = std::move(outputs)};
}

OpCase LayerRowsGrad(const Shape& x, std::vector<bool> outputs, DType dtype = DType::kFloat32) {
  Shape statistics = x;
  statistics.set_dim(x.rank() - 1, 1);
  const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  return {.domain = kOurDomain,
          .op = "LayerNormalizationGrad",
          .attributes = {{"axis", int64_t{-1}}},
          .inputs = {Cast(RandomTensor(x, 1), dtype), Cast(RandomTensor(x, 2), dtype),
                     Cast(RandomTensor(RowOf(x, -1), 3), dtype),
                     Cast(RandomTensor(statistics, 4), wide),
                     Cast(RandomTensor(statistics, 5, 0.5, 2), wide)},
          .outputs = std::move(outputs)};
}

OpCase RmsRows(const Shape& x, int64_t axis, const Shape& scale, DType dtype = DType::kFloat32,
               DType of_scale = DType::kFloat32) {
  return {
      .op = "RMSNormalization",
      .attributes = {{"axis", axis}, {"epsilon", 1e-3f}},
      .inputs = {Cast(RandomTensor(x, 1, -3, 5), dtype), Cast(RandomTensor(scale, 2), of_scale)}};
}

OpCase RmsRowsGrad(const Shape& x, std::vector<bool> outputs, DType dtype = DType::kFloat32) {
  return {.domain = kOurDomain,
          .op = "RMSNormalizationGrad",
          .attributes = {{"epsilon", 1e-3f}},
          .inputs = {Cast(RandomTensor(x, 1), dtype), Cast(RandomTensor(x, 2, -3, 5), dtype),
                     Cast(RandomTensor(RowOf(x, -1), 3), dtype)},
          .outputs = std::move(outputs)};
}

OpCase DnnImages(const Shape& x, std::vector<bool> outputs = {true}, DType dtype = DType::kFloat32,
                 DType parameters = DType::kFloat32, DType running = DType::kFloat32) {
  const Shape channels{x.dim(1)};
  return {.op = "BatchNormalization",
          .attributes = {{"epsilon", 1e-3f}, {"momentum", 0.8f}, {"training_mode", int64_t{1}}},
          .inputs = {Cast(RandomTensor(x, 1, -3, 5), dtype),
                     Cast(RandomTensor(channels, 2, 0.5, 2), parameters),
                     Cast(RandomTensor(channels, 3), parameters),
                     Cast(RandomTensor(channels, 4), running),
                     Cast(RandomTensor(channels, 5, 0.5, 2), running)},
          .outputs = std::move(outputs)};
}

OpCase DnnImagesGrad(const Shape& x, std::vector<bool> outputs, DType dtype = DType::kFloat32,
                     DType parameters = DType::kFloat32) {
  return {.domain = kOurDomain,
          .op = "BatchNormalizationGrad",
          .attributes = {{"epsilon", 1e-3f}, {"training_mode", int64_t{1}}},
          .inputs = {Cast(RandomTensor(x, 1), dtype), Cast(RandomTensor(x, 2, -3, 5), dtype),
                     Cast(RandomTensor({x.dim(1)}, 3, 0.5, 2), parameters)},
          .outputs = std::move(outputs)};
}

// Tests of a build or machine without cuDNN are skipped aloud.
class CudaNormalizationDnnTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (TestsOnARealGpu()) {
      const auto device = FindDevice(DeviceKind::kCuda, 0);
      ASSERT_TRUE(device.ok()) << device.status();
      const auto library = cuda::DnnOf(**device);
      if (!library.ok()) GTEST_SKIP() << "no cuDNN: " << library.status();
    }
    RecordingDnn::Get().TakeNormalizations();
  }
  void TearDown() override { RecordingDnn::Get().Refuse({}); }

  // Runs with cuDNN; returns the calls of the emulator's library.
  static std::vector<RecordingDnn::NormalizationCall> Check(const OpCase& op_case) {
    RecordingDnn::Get().TakeNormalizations();
    // Of the type with the fewest digits: a result has that of x, or of a scale.
    Tolerance tolerance = {.of_magnitude = 5e-6};
    for (const Tensor& input : op_case.inputs) {
      if (input.dtype() == DType::kBfloat16) tolerance.of_magnitude = 2e-2;
      if (input.dtype() != DType::kFloat16) continue;
      tolerance.of_magnitude = std::max(tolerance.of_magnitude, 3e-3);
    }
    EXPECT_TRUE(CheckOnEmulatedGpu(op_case, tolerance, 2, KernelRegistry::Global(),
                                   /*uses_cudnn=*/true))
        << op_case.ToString();
    return RecordingDnn::Get().TakeNormalizations();
  }
  // Agrees with the reference kernel, and goes through the library.
  static void ExpectThrough(const OpCase& op_case) {
    const auto calls = Check(op_case);
    // Two orders of threads, and the second runs twice.
    EXPECT_TRUE(TestsOnARealGpu() || calls.size() == 3) << op_case.ToString();
  }
  // The same by another way.
  static void ExpectOtherWay(const OpCase& op_case) {
    EXPECT_TRUE(Check(op_case).empty()) << op_case.ToString();
  }
};

TEST_F(CudaNormalizationDnnTest, LayersAgreeAtManySizes) {
  for (const int64_t axis : {0, 1, -1}) {
    for (const std::vector<bool>& outputs :
         {std::vector<bool>{true}, {true, true, true}, {true, false, true}, {true, true, false}}) {
      ExpectThrough(LayerRows({3, 5, 37}, axis, outputs));
    }
  }
  ExpectThrough(LayerRows({7, 64}, -1));
  ExpectThrough(LayerRows({1, 1}, -1));
}

TEST_F(CudaNormalizationDnnTest, GradientsOfLayersAgree) {
  for (const Shape& x : {Shape{3, 5, 37}, Shape{9, 64}, Shape{1, 8}}) {
    for (const std::vector<bool>& outputs :
         {std::vector<bool>{true, true, true}, {true, false, false}, {true, false, true}}) {
      ExpectThrough(LayerRowsGrad(x, outputs));
    }
  }
}

TEST_F(CudaNormalizationDnnTest, RmsAgrees) {
  ExpectThrough(RmsRows({3, 5, 37}, -1, {37}));
  ExpectThrough(RmsRows({3, 5, 8}, 1, {5, 8}));
  for (const Shape& x : {Shape{9, 37}, Shape{6, 64}}) {
    for (const std::vector<bool>& outputs : {std::vector<bool>{true, true}, {true, false}}) {
      ExpectThrough(RmsRowsGrad(x, outputs));
    }
  }
}

TEST_F(CudaNormalizationDnnTest, BatchesAgreeAtManyShapes) {
  for (const Shape& x : {Shape{7, 5}, Shape{3, 4, 7, 5}, Shape{2, 2, 31}, Shape{2, 3, 2, 3, 4}}) {
    ExpectThrough(DnnImages(x, {true, true, true}));
    ExpectThrough(DnnImagesGrad(x, {true, true, true}));
    ExpectThrough(DnnImagesGrad(x, {true, false, false}));
  }
  ExpectThrough(DnnImages({3, 2, 8, 8}, {true, false, true}));
  ExpectThrough(DnnImages({3, 2, 8, 8}, {true}));
}

TEST_F(CudaNormalizationDnnTest, EveryTypeAgrees) {
  for (const DType dtype : kDnnTypes) {
    ExpectThrough(LayerRows({9, 24}, -1, {true, true, true}, dtype));
    ExpectThrough(LayerRowsGrad({9, 24}, {true, true, true}, dtype));
    ExpectThrough(RmsRows({9, 24}, -1, {24}, dtype, dtype));
    ExpectThrough(RmsRowsGrad({9, 24}, {true, true}, dtype));
    ExpectThrough(DnnImages({4, 3, 8}, {true, true, true}, dtype, DType::kFloat32, dtype));
    ExpectThrough(DnnImagesGrad({4, 3, 8}, {true, true, true}, dtype));
  }
}

// A running variance is that of the population: with two samples, half of what a sample's is.
TEST_F(CudaNormalizationDnnTest, RunningStatisticsAreThoseOfThePopulation) {
  OpCase two = DnnImages({2, 1}, {true, true, true});
  two.inputs[0] = Tensor::Of<float>({2, 1}, std::vector<float>{1, 5});
  two.inputs[3] = Tensor::Of<float>({1}, std::vector<float>{10});
  two.inputs[4] = Tensor::Of<float>({1}, std::vector<float>{20});
  EmulatedRunOptions options;
  options.uses_cudnn = true;
  const auto outputs = RunOnEmulatedGpu(two, options);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_NEAR((*outputs)[1].data<float>()[0], 0.8 * 10 + 0.2 * 3, 1e-5);
  EXPECT_NEAR((*outputs)[2].data<float>()[0], 0.8 * 20 + 0.2 * 4, 1e-5);
}

TEST_F(CudaNormalizationDnnTest, AsksForWhatTheLibraryKnows) {
  if (TestsOnARealGpu()) GTEST_SKIP() << "the library's calls are not recorded there";
  auto calls = Check(LayerRows({3, 5, 8}, 1, {true}, DType::kBfloat16));
  ASSERT_FALSE(calls.empty());
  EXPECT_EQ(calls[0].spec.ToString(), "bfloat16 layer normalization of [3,40,1,1]");
  EXPECT_EQ(calls[0].spec.parameter_dtype, DType::kBfloat16);
  EXPECT_EQ(calls[0].spec.x.strides, (std::vector<int64_t>{40, 1, 40, 40}));
  EXPECT_FLOAT_EQ(static_cast<float>(calls[0].spec.epsilon), 1e-3f);
  calls = Check(DnnImagesGrad({2, 3, 2, 3, 4}, {true}, DType::kFloat16));
  ASSERT_FALSE(calls.empty());
  EXPECT_EQ(calls[0].spec.ToString(), "float16 gradient of batch normalization of [2,3,24,1]");
  EXPECT_EQ(calls[0].spec.parameter_dtype, DType::kFloat32);
}

TEST_F(CudaNormalizationDnnTest, LeavesOtherTypesToOurKernels) {
  ExpectOtherWay(LayerRows({3, 24}, -1, {true}, DType::kFloat64));
  ExpectOtherWay(LayerRowsGrad({3, 24}, {true, true, true}, DType::kFloat64));
  ExpectOtherWay(RmsRows({3, 24}, -1, {24}, DType::kFloat32, DType::kFloat16));
  ExpectOtherWay(RmsRows({3, 24}, -1, {24}, DType::kBfloat16, DType::kFloat32));
  ExpectOtherWay(DnnImages({4, 3, 6}, {true}, DType::kFloat64, DType::kFloat64, DType::kFloat64));
  ExpectOtherWay(DnnImages({4, 3, 8}, {true}, DType::kFloat16, DType::kFloat16));
  ExpectOtherWay(DnnImagesGrad({4, 3, 8}, {true, true}, DType::kFloat16, DType::kFloat16));
  OpCase stash = LayerRows({3, 24}, -1, {true, true, true}, DType::kBfloat16);
  stash.attributes.Set("stash_type", static_cast<int64_t>(DType::kBfloat16));
  ExpectOtherWay(stash);
}

TEST_F(CudaNormalizationDnnTest, LeavesOtherFormsToOurKernels) {
  OpCase plain = LayerRows({3, 24}, -1);
  plain.inputs.pop_back();
  ExpectOtherWay(plain);
  ExpectOtherWay(LayerRowsGrad({3, 24}, {false, true, true}));
  ExpectOtherWay(RmsRowsGrad({9, 24}, {false, true}));
  ExpectOtherWay(RmsRows({3, 5, 8}, 1, {5, 1}));
  ExpectOtherWay(DnnImagesGrad({4, 3, 8}, {false, true, true}));
  OpCase given = DnnImages({4, 3, 8});
  given.attributes.Set("training_mode", int64_t{0});
  ExpectOtherWay(given);
  ExpectOtherWay(LayerRows({0, 8}, -1, {true, true, true}));
  ExpectOtherWay(DnnImages({0, 3, 2}, {true, true, true}));
}

TEST_F(CudaNormalizationDnnTest, GoesAnotherWayWhereTheLibraryHasNoPlan) {
  if (TestsOnARealGpu()) GTEST_SKIP() << "cuDNN has plans there";
  RecordingDnn::Get().Refuse({.all = true});
  ExpectOtherWay(LayerRows({7, 64}, -1));
  ExpectOtherWay(LayerRowsGrad({7, 64}, {true, true, true}));
  ExpectOtherWay(RmsRows({7, 64}, -1, {64}));
  ExpectOtherWay(RmsRowsGrad({7, 64}, {true, true}));
  ExpectOtherWay(DnnImages({4, 3, 8}));
  ExpectOtherWay(DnnImagesGrad({4, 3, 8}, {true, true, true}));
}

TEST_F(CudaNormalizationDnnTest, IsUsedOnlyWhereItIsAskedFor) {
  EXPECT_TRUE(CheckOnEmulatedGpu(LayerRows({7, 64}, -1)));
  EXPECT_TRUE(CheckOnEmulatedGpu(DnnImages({4, 3, 8})));
  EXPECT_TRUE(RecordingDnn::Get().TakeNormalizations().empty());
}

absl::StatusOr<cuda::Dnn*> NormalizationHasNoDnn(Device&) {
  return absl::FailedPreconditionError("cuDNN cannot be opened: looked for libcudnn.so.9");
}
absl::StatusOr<cuda::Dnn*> NormalizationHasADnn(Device&) { return &RecordingDnn::Get(); }

TEST_F(CudaNormalizationDnnTest, RefusesADeviceWithoutCudnn) {
  if (TestsOnARealGpu()) GTEST_SKIP() << "takes the library away";
  cuda::SetDnnProvider(NormalizationHasNoDnn);
  EmulatedRunOptions options;
  options.uses_cudnn = true;
  const auto y = RunOnEmulatedGpu(DnnImages({4, 3, 8}), options);
  cuda::SetDnnProvider(NormalizationHasADnn);
  EXPECT_EQ(y.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(
      absl::StrContains(y.status().message(), "(BatchNormalization): cuDNN cannot be opened"))
      << y.status();
}

}  // namespace
}  // namespace weft::testing
