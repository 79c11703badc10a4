// Attention through cuDNN: on the emulated GPU with a library that computes from definitions, on a
// real GPU with cuDNN itself.
#include "ops/kernels/cuda/attention/attention_dnn.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "graph/attribute.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/dnn/testing/recording_dnn.h"
#include "ops/kernels/cuda/linear/testing/recording_blas_lt.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"
#include "tensor/device_id.h"
#include "tensor/lookup/device_lookup.h"

namespace weft::testing {
namespace {

struct HeadSizes {
  int64_t batch = 2, q_heads = 4, kv_heads = 4, queries = 5, keys = 7, key_size = 8, value_size = 8;
};

OpCase DnnHeads(const HeadSizes& s, Attributes attributes = {}, DType dtype = DType::kBfloat16) {
  return {.op = "Attention",
          .attributes = std::move(attributes),
          .inputs = {RandomTensor({s.batch, s.q_heads, s.queries, s.key_size}, 1, -2, 2, dtype),
                     RandomTensor({s.batch, s.kv_heads, s.keys, s.key_size}, 2, -2, 2, dtype),
                     RandomTensor({s.batch, s.kv_heads, s.keys, s.value_size}, 3, -2, 2, dtype)}};
}

OpCase DnnPacked(const HeadSizes& s, Attributes attributes = {}, DType dtype = DType::kBfloat16) {
  attributes.Set("q_num_heads", s.q_heads);
  attributes.Set("kv_num_heads", s.kv_heads);
  return {.op = "Attention",
          .attributes = std::move(attributes),
          .inputs = {RandomTensor({s.batch, s.queries, s.q_heads * s.key_size}, 1, -2, 2, dtype),
                     RandomTensor({s.batch, s.keys, s.kv_heads * s.key_size}, 2, -2, 2, dtype),
                     RandomTensor({s.batch, s.keys, s.kv_heads * s.value_size}, 3, -2, 2, dtype)}};
}

OpCase WithInput(OpCase op_case, int input, Tensor tensor) {
  if (static_cast<int>(op_case.inputs.size()) <= input) op_case.inputs.resize(input + 1);
  op_case.inputs[input] = std::move(tensor);
  return op_case;
}

// Tests of a build or machine without cuDNN are skipped aloud.
class CudaAttentionDnnTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (TestsOnARealGpu()) {
      const auto device = FindDevice(DeviceKind::kCuda, 0);
      ASSERT_TRUE(device.ok()) << device.status();
      const auto library = cuda::DnnOf(**device);
      if (!library.ok()) GTEST_SKIP() << "no cuDNN: " << library.status();
    }
    RecordingDnn::Get().TakeAttentions();
  }
  void TearDown() override { RecordingDnn::Get().Refuse({}); }

  // Runs with cuDNN; returns the calls of the emulator's library.
  static std::vector<RecordingDnn::AttentionCall> CheckAttention(const OpCase& op_case) {
    RecordingDnn::Get().TakeAttentions();
    const DType dtype = op_case.inputs[0].dtype();
    const Tolerance tolerance = {.of_magnitude = dtype == DType::kBfloat16  ? 2e-2
                                                 : dtype == DType::kFloat16 ? 2e-3
                                                                            : 5e-6};
    EXPECT_TRUE(CheckOnEmulatedGpu(op_case, tolerance, 2, KernelRegistry::Global(),
                                   /*uses_cudnn=*/true))
        << op_case.ToString();
    return RecordingDnn::Get().TakeAttentions();
  }
  // Agrees with the reference kernel, and goes through the library.
  static void ExpectThroughDnn(const OpCase& op_case) {
    const auto calls = CheckAttention(op_case);
    // Two orders of threads, and the second runs twice.
    EXPECT_TRUE(TestsOnARealGpu() || calls.size() == 3) << op_case.ToString();
  }
  // The same by another way.
  static void ExpectAnotherWay(const OpCase& op_case) {
    EXPECT_TRUE(CheckAttention(op_case).empty()) << op_case.ToString();
  }
};

TEST_F(CudaAttentionDnnTest, AgreesAtManySizes) {
  for (const HeadSizes& s :
       {HeadSizes{}, HeadSizes{1, 1, 1, 1, 1, 8, 8}, HeadSizes{2, 6, 2, 7, 5, 16, 8},
        HeadSizes{1, 4, 1, 3, 11, 8, 24}, HeadSizes{3, 2, 2, 13, 13, 8, 8}}) {
    for (const bool causal : {false, true}) {
      const Attributes attributes = {{"is_causal", int64_t{causal}}};
      ExpectThroughDnn(DnnHeads(s, attributes));
      ExpectThroughDnn(DnnPacked(s, attributes));
    }
  }
}

TEST_F(CudaAttentionDnnTest, AgreesForBothTypesAndAScale) {
  const HeadSizes s{2, 4, 2, 5, 7, 8, 16};
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    ExpectThroughDnn(DnnHeads(s, {{"scale", 0.7f}}, dtype));
    ExpectThroughDnn(DnnPacked(s, {{"scale", -0.2f}, {"is_causal", int64_t{1}}}, dtype));
  }
}

TEST_F(CudaAttentionDnnTest, WritesNoScores) {
  if (TestsOnARealGpu()) GTEST_SKIP() << "the library's launches are not recorded there";
  std::vector<EmulatedLaunchRecord> launches;
  EmulatedRunOptions options;
  options.uses_cudnn = true;
  const auto y = RunOnEmulatedGpu(DnnHeads({}), options, &launches);
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(launches.size(), 1) << "the library's alone";
}

TEST_F(CudaAttentionDnnTest, LeavesOtherTypesToProducts) {
  ExpectAnotherWay(DnnHeads({}, {}, DType::kFloat32));
  ExpectAnotherWay(DnnHeads({}, {}, DType::kFloat64));
}

TEST_F(CudaAttentionDnnTest, LeavesMasksLengthsWindowsAndCapsToProducts) {
  const HeadSizes s;
  ExpectAnotherWay(WithInput(DnnHeads(s), 3, RandomTensor({5, 7}, 7, -1, 1, DType::kBfloat16)));
  ExpectAnotherWay(WithInput(DnnPacked(s), 3, RandomTensor({5, 7}, 8, 0, 2, DType::kBool)));
  ExpectAnotherWay(WithInput(DnnHeads(s), 6, Int64s({3, 7})));
  ExpectAnotherWay(DnnHeads(s, {{"left_window_size", int64_t{2}}}));
  ExpectAnotherWay(DnnHeads(s, {{"right_window_size", int64_t{1}}}));
  ExpectAnotherWay(DnnHeads(s, {{"softcap", 1.5f}}));
}

TEST_F(CudaAttentionDnnTest, LeavesAPastAndOtherOutputsToProducts) {
  const HeadSizes s;
  OpCase past = WithInput(DnnHeads(s), 4, RandomTensor({2, 4, 3, 8}, 5, -2, 2, DType::kBfloat16));
  ExpectAnotherWay(
      WithInput(std::move(past), 5, RandomTensor({2, 4, 3, 8}, 6, -2, 2, DType::kBfloat16)));
  OpCase scores = DnnHeads(s);
  scores.outputs = {true, false, false, true};
  ExpectAnotherWay(scores);
  OpCase present = DnnPacked(s);
  present.outputs = {true, true, true};
  ExpectAnotherWay(present);
}

TEST_F(CudaAttentionDnnTest, LeavesOddSizesAndNoElementsToProducts) {
  ExpectAnotherWay(DnnHeads({2, 2, 2, 3, 5, 7, 8}));
  ExpectAnotherWay(DnnPacked({2, 2, 2, 3, 5, 8, 5}));
  ExpectAnotherWay(DnnHeads({2, 1, 1, 3, 0, 8, 8}));
  ExpectAnotherWay(DnnHeads({0, 1, 1, 3, 2, 8, 8}));
}

TEST_F(CudaAttentionDnnTest, GoesAnotherWayWhereTheLibraryHasNoPlan) {
  if (TestsOnARealGpu()) GTEST_SKIP() << "cuDNN has plans there";
  RecordingDnn::Get().Refuse({.all = true});
  ExpectAnotherWay(DnnHeads({}));
}

TEST_F(CudaAttentionDnnTest, IsUsedOnlyWhereItIsAskedFor) {
  EXPECT_TRUE(CheckOnEmulatedGpu(DnnHeads({}), {.of_magnitude = 2e-2}));
  EXPECT_TRUE(RecordingDnn::Get().TakeAttentions().empty());
}

absl::StatusOr<cuda::Dnn*> AttentionHasNoDnn(Device&) {
  return absl::FailedPreconditionError("cuDNN cannot be opened: looked for libcudnn.so.9");
}
absl::StatusOr<cuda::Dnn*> AttentionHasADnn(Device&) { return &RecordingDnn::Get(); }

TEST_F(CudaAttentionDnnTest, RefusesADeviceWithoutCudnn) {
  if (TestsOnARealGpu()) GTEST_SKIP() << "takes the library away";
  cuda::SetDnnProvider(AttentionHasNoDnn);
  EmulatedRunOptions options;
  options.uses_cudnn = true;
  const auto y = RunOnEmulatedGpu(DnnHeads({}), options);
  cuda::SetDnnProvider(AttentionHasADnn);
  EXPECT_EQ(y.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(y.status().message(), "(Attention): cuDNN cannot be opened"))
      << y.status();
}

}  // namespace
}  // namespace weft::testing
