// Attention and RotaryEmbedding on the emulated GPU.
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "graph/attribute.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/attention/attention_kernel.h"
#include "ops/kernels/cuda/linear/testing/recording_blas_lt.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
const std::vector<DType> kTypes = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                   DType::kBfloat16};

Tolerance ToleranceOf(DType dtype) {
  if (dtype == DType::kBfloat16) return {.of_magnitude = 2e-2};
  if (dtype == DType::kFloat16) return {.of_magnitude = 2e-3};
  return {.of_magnitude = 5e-6};
}

struct Sizes {
  int64_t batch = 2, q_heads = 3, kv_heads = 3, queries = 4, keys = 6, key_size = 8, value_size = 8;
};

// Inputs of rank 4, without mask or past.
OpCase Heads(const Sizes& s, Attributes attributes = {}, DType dtype = DType::kFloat32) {
  return {.op = "Attention",
          .attributes = std::move(attributes),
          .inputs = {RandomTensor({s.batch, s.q_heads, s.queries, s.key_size}, 1, -2, 2, dtype),
                     RandomTensor({s.batch, s.kv_heads, s.keys, s.key_size}, 2, -2, 2, dtype),
                     RandomTensor({s.batch, s.kv_heads, s.keys, s.value_size}, 3, -2, 2, dtype)}};
}

// The same, packed.
OpCase Packed(const Sizes& s, Attributes attributes = {}, DType dtype = DType::kFloat32) {
  attributes.Set("q_num_heads", s.q_heads);
  attributes.Set("kv_num_heads", s.kv_heads);
  return {.op = "Attention",
          .attributes = std::move(attributes),
          .inputs = {RandomTensor({s.batch, s.queries, s.q_heads * s.key_size}, 1, -2, 2, dtype),
                     RandomTensor({s.batch, s.keys, s.kv_heads * s.key_size}, 2, -2, 2, dtype),
                     RandomTensor({s.batch, s.keys, s.kv_heads * s.value_size}, 3, -2, 2, dtype)}};
}

OpCase With(OpCase op_case, int input, Tensor tensor) {
  if (static_cast<int>(op_case.inputs.size()) <= input) op_case.inputs.resize(input + 1);
  op_case.inputs[input] = std::move(tensor);
  return op_case;
}

OpCase WithPast(OpCase op_case, const Sizes& s, int64_t past, DType dtype = DType::kFloat32) {
  op_case = With(std::move(op_case), 4,
                 RandomTensor({s.batch, s.kv_heads, past, s.key_size}, 5, -2, 2, dtype));
  return With(std::move(op_case), 5,
              RandomTensor({s.batch, s.kv_heads, past, s.value_size}, 6, -2, 2, dtype));
}

::testing::AssertionResult Check(const OpCase& op_case, DType dtype = DType::kFloat32) {
  return CheckOnEmulatedGpu(op_case, ToleranceOf(dtype));
}

TEST(CudaAttentionTest, AgreesAtManySizes) {
  for (const Sizes& s :
       {Sizes{}, Sizes{1, 1, 1, 1, 1, 1, 1}, Sizes{1, 6, 2, 5, 7, 3, 5},
        Sizes{2, 4, 1, 1, 67, 4, 3}, Sizes{1, 2, 2, 13, 11, 4, 4}, Sizes{1, 1, 1, 2, 307, 2, 2}}) {
    for (const bool causal : {false, true}) {
      const Attributes attributes = {{"is_causal", int64_t{causal}}};
      EXPECT_TRUE(Check(Heads(s, attributes)));
      EXPECT_TRUE(Check(Packed(s, attributes)));
    }
  }
}

TEST(CudaAttentionTest, AgreesForAllTypes) {
  const Sizes s{2, 4, 2, 3, 5, 4, 6};
  for (const DType dtype : kTypes) {
    EXPECT_TRUE(Check(Heads(s, {}, dtype), dtype));
    OpCase all = WithPast(Packed(s, {{"is_causal", int64_t{1}}}, dtype), s, 3, dtype);
    all.outputs = {true, true, true, true};
    EXPECT_TRUE(Check(all, dtype));
  }
}

TEST(CudaAttentionTest, AgreesWithoutElements) {
  EXPECT_TRUE(Check(Heads(Sizes{2, 1, 1, 3, 0, 4, 4})));
  EXPECT_TRUE(Check(Heads(Sizes{0, 1, 1, 3, 2, 4, 4})));
  EXPECT_TRUE(Check(Heads(Sizes{2, 1, 1, 0, 2, 4, 4})));
  EXPECT_TRUE(Check(Heads(Sizes{2, 1, 1, 3, 2, 4, 0})));
  EXPECT_TRUE(Check(Heads(Sizes{2, 1, 1, 3, 2, 0, 4})));
}

TEST(CudaAttentionTest, MasksBroadcastAndMayBeShort) {
  const Sizes s{2, 3, 3, 4, 6, 2, 2};
  for (const Shape& shape : {Shape{4, 6}, Shape{3, 4, 6}, Shape{2, 1, 4, 6}, Shape{2, 3, 1, 6},
                             Shape{6}, Shape{4, 5}, Shape{4, 1}}) {
    EXPECT_TRUE(Check(With(Heads(s), 3, RandomTensor(shape, 7)))) << shape.ToString();
    const Tensor choice = RandomTensor(shape, 8, 0, 2, DType::kBool);
    EXPECT_TRUE(Check(With(Packed(s, {{"is_causal", int64_t{1}}}), 3, choice))) << shape.ToString();
  }
}

TEST(CudaAttentionTest, MasksMayBeOfOtherTypes) {
  const Sizes s{1, 2, 2, 3, 5, 2, 2};
  for (const DType mask : {DType::kFloat64, DType::kFloat16, DType::kBfloat16, DType::kInt8,
                           DType::kInt16, DType::kInt32, DType::kInt64, DType::kUint8,
                           DType::kUint16, DType::kUint32, DType::kUint64}) {
    EXPECT_TRUE(Check(With(Heads(s), 3, RandomTensor({3, 5}, 7, 0, 3, mask))));
  }
  EXPECT_TRUE(Check(With(Heads(s, {}, DType::kFloat64), 3, RandomTensor({3, 5}, 7))));
  EXPECT_TRUE(
      Check(With(Heads(s, {}, DType::kFloat16), 3, RandomTensor({3, 5}, 7)), DType::kFloat16));
}

TEST(CudaAttentionTest, AQueryWithoutKeysGivesZerosAndNanOfAMaskPasses) {
  const Sizes s{1, 1, 1, 3, 2, 4, 4};
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Tensor mask =
      Tensor::Of<float>({3, 2}, std::vector<float>{kNever, kNever, kNan, 0, 0, kNever});
  const auto outputs = RunOnEmulatedGpu(With(Heads(s), 3, mask));
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const auto y = (*outputs)[0].data<float>();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(y[i], 0);
  for (int i = 4; i < 8; ++i) EXPECT_TRUE(std::isnan(y[i]));
  const Tensor values = RandomTensor({8}, 3, -2, 2);
  for (int i = 8; i < 12; ++i) EXPECT_FLOAT_EQ(y[i], values.data<float>()[i - 8]);
}

TEST(CudaAttentionTest, PastCapsWindowsAndEveryKindOfScores) {
  const Sizes s{2, 4, 2, 3, 5, 4, 6};
  for (int64_t mode = 0; mode < 4; ++mode) {
    const Attributes attributes = {{"qk_matmul_output_mode", mode},
                                   {"softcap", 1.5f},
                                   {"scale", 0.4f},
                                   {"left_window_size", int64_t{4}},
                                   {"right_window_size", int64_t{1}}};
    for (OpCase op_case : {Heads(s, attributes), Packed(s, attributes)}) {
      op_case = WithPast(std::move(op_case), s, 3);
      op_case.outputs = {true, true, true, true};
      EXPECT_TRUE(Check(op_case)) << mode;
    }
  }
}

TEST(CudaAttentionTest, JoinsThePastInItsWorkspaceWhereNobodyWantsIt) {
  const Sizes s{2, 2, 1, 3, 5, 4, 6};
  EXPECT_TRUE(Check(WithPast(Heads(s), s, 3)));
  EXPECT_TRUE(Check(WithPast(Packed(s, {{"is_causal", int64_t{1}}}), s, 2)));
  OpCase present = Packed(s);
  present.outputs = {true, true, true};
  EXPECT_TRUE(Check(present)) << "a present without a past";
}

TEST(CudaAttentionTest, EndsAtValidLengths) {
  const Sizes s{2, 2, 1, 3, 5, 4, 4};
  EXPECT_TRUE(Check(With(Heads(s), 6, Int64s({0, 4}))));
  EXPECT_TRUE(Check(With(Heads(s, {{"is_causal", int64_t{1}}}), 6, Int64s({5, 3}))));
}

TEST(CudaAttentionTest, ReportsALengthThatIsNone) {
  const Sizes s{2, 2, 1, 3, 5, 4, 4};
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(With(Heads(s), 6, Int64s({5, 6})),
                                       absl::StatusCode::kInvalidArgument,
                                       {"nonpad_kv_seqlen", "6"}));
}

TEST(CudaAttentionTest, RefusesOperandsOfTwoTypes) {
  const Sizes s{1, 1, 1, 2, 2, 2, 2};
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
      With(Heads(s), 2, RandomTensor({1, 1, 2, 2}, 3, -1, 1, DType::kFloat16)),
      absl::StatusCode::kUnimplemented, {"the query is float32, input 2 is float16"}));
}

// Whatever fits: samples, heads, queries of a head.
TEST(CudaAttentionTest, AgreesInPieces) {
  const Sizes s{3, 4, 2, 5, 7, 4, 3};
  const OpCase cases[] = {
      Heads(s), Packed(s, {{"is_causal", int64_t{1}}}),
      With(Heads(s, {{"left_window_size", int64_t{2}}}), 3, RandomTensor({4, 5, 7}, 7))};
  // Scores of a query 56 bytes, of a head 280, of a sample 560.
  for (const int64_t bytes : {1200, 600, 300, 120, 1}) {
    KernelRegistry registry;
    ASSERT_TRUE(registry
                    .Register("", "Attention", DeviceKind::kCuda,
                              [bytes](const PrepareContext& context) {
                                return cuda::MakeAttention(context, bytes);
                              })
                    .ok());
    EmulatedRunOptions options;
    options.registry = &registry;
    for (OpCase op_case : cases) {
      op_case.outputs = {true, false, false, true};
      const auto actual = RunOnEmulatedGpu(op_case, options);
      ASSERT_TRUE(actual.ok()) << actual.status();
      const auto expected = RunOp(InFloat64(op_case), Kernels::kReference);
      ASSERT_TRUE(expected.ok()) << expected.status();
      for (const int i : {0, 3}) {
        EXPECT_TRUE(TensorsNear((*actual)[i], (*expected)[i], {.of_magnitude = 5e-6},
                                /*any_dtype=*/true))
            << bytes;
      }
    }
  }
}

// The heads of a sample are one call of the library, whether packed or not.
TEST(CudaAttentionTest, MakesFewCalls) {
  const Sizes s{1, 4, 4, 5, 7, 4, 3};
  for (const OpCase& op_case : {Heads(s), Packed(s)}) {
    RecordingBlasLt::Get().TakeCalls();
    const auto actual = RunOnEmulatedGpu(op_case);
    ASSERT_TRUE(actual.ok()) << actual.status();
    const auto expected = RunOp(InFloat64(op_case), Kernels::kReference);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_TRUE(TensorsNear((*actual)[0], (*expected)[0], {.of_magnitude = 5e-6},
                            /*any_dtype=*/true));
    if (TestsOnARealGpu()) continue;  // NVIDIA's library counts no calls
    EXPECT_EQ(RecordingBlasLt::Get().TakeCalls().size(), 2);
  }
}

// ---- RotaryEmbedding

OpCase Rotary(Shape x, Shape cache, Attributes attributes, std::vector<int64_t> positions = {},
              DType dtype = DType::kFloat32) {
  OpCase op_case{.op = "RotaryEmbedding",
                 .attributes = std::move(attributes),
                 .inputs = {RandomTensor(x, 1, -1, 1, dtype), RandomTensor(cache, 2, -1, 1, dtype),
                            RandomTensor(cache, 3, -1, 1, dtype)}};
  if (!positions.empty()) {
    const int64_t batch = x.dim(0);
    const auto length = static_cast<int64_t>(positions.size()) / batch;
    op_case.inputs.push_back(Tensor::Of<int64_t>({batch, length}, positions));
  }
  return op_case;
}

TEST(CudaRotaryEmbeddingTest, Agrees) {
  for (const DType dtype : kTypes) {
    EXPECT_TRUE(Check(Rotary({2, 3, 5, 8}, {2, 5, 4}, {}, {}, dtype), dtype));
  }
  EXPECT_TRUE(
      Check(Rotary({2, 3, 4, 8}, {7, 4}, {{"interleaved", int64_t{1}}}, {0, 6, 2, 1, 5, 4, 3, 0})));
  EXPECT_TRUE(Check(Rotary({2, 3, 12}, {2, 3, 2},
                           {{"num_heads", int64_t{2}}, {"rotary_embedding_dim", int64_t{4}}})));
  EXPECT_TRUE(
      Check(Rotary({1, 2, 3, 7}, {4, 3}, {{"rotary_embedding_dim", int64_t{6}}}, {3, 0, 2})));
  EXPECT_TRUE(Check(Rotary({0, 3, 5, 8}, {0, 5, 4}, {})));
}

TEST(CudaRotaryEmbeddingTest, ReportsAPositionOutsideOfTheCache) {
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(Rotary({1, 2, 3, 4}, {4, 2}, {}, {3, 4, 2}),
                                       absl::StatusCode::kInvalidArgument, {"position_ids", "4"}));
}

}  // namespace
}  // namespace weft::testing
