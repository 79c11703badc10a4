#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

struct Sizes {
  int64_t batch = 2, q_heads = 3, kv_heads = 3, queries = 4, keys = 6, key_size = 8, value_size = 8;
};

// Inputs of rank 4, without mask or past.
OpCase Heads(const Sizes& s, Attributes attributes = {}) {
  return {.op = "Attention",
          .attributes = std::move(attributes),
          .inputs = {RandomTensor({s.batch, s.q_heads, s.queries, s.key_size}, 1, -2, 2),
                     RandomTensor({s.batch, s.kv_heads, s.keys, s.key_size}, 2, -2, 2),
                     RandomTensor({s.batch, s.kv_heads, s.keys, s.value_size}, 3, -2, 2)}};
}

// The same, packed.
OpCase Packed(const Sizes& s, Attributes attributes = {}) {
  attributes.Set("q_num_heads", s.q_heads);
  attributes.Set("kv_num_heads", s.kv_heads);
  return {.op = "Attention",
          .attributes = std::move(attributes),
          .inputs = {RandomTensor({s.batch, s.queries, s.q_heads * s.key_size}, 1, -2, 2),
                     RandomTensor({s.batch, s.keys, s.kv_heads * s.key_size}, 2, -2, 2),
                     RandomTensor({s.batch, s.keys, s.kv_heads * s.value_size}, 3, -2, 2)}};
}

OpCase With(OpCase op_case, int input, Tensor tensor) {
  if (static_cast<int>(op_case.inputs.size()) <= input) op_case.inputs.resize(input + 1);
  op_case.inputs[input] = std::move(tensor);
  return op_case;
}

OpCase WithPast(OpCase op_case, const Sizes& s, int64_t past) {
  op_case =
      With(std::move(op_case), 4, RandomTensor({s.batch, s.kv_heads, past, s.key_size}, 5, -2, 2));
  op_case = With(std::move(op_case), 5,
                 RandomTensor({s.batch, s.kv_heads, past, s.value_size}, 6, -2, 2));
  op_case.outputs = {true, true, true, true};
  return op_case;
}

const Tolerance kTolerance = {.of_magnitude = 5e-6};

TEST(Attention, AgreesWithTheReferenceAtManySizes) {
  for (const Sizes& s : {Sizes{}, Sizes{1, 1, 1, 1, 1, 1, 1}, Sizes{1, 6, 2, 5, 7, 3, 5},
                         Sizes{2, 4, 1, 1, 130, 16, 32}, Sizes{1, 2, 2, 131, 67, 16, 16}}) {
    for (const bool causal : {false, true}) {
      const Attributes attributes = {{"is_causal", int64_t{causal}}};
      EXPECT_TRUE(CheckKernelAgainstReference(Heads(s, attributes), kTolerance));
      EXPECT_TRUE(CheckKernelAgainstReference(Packed(s, attributes), kTolerance));
    }
  }
}

TEST(Attention, LeavesOutKeysThatNoQueryOfABlockMayAttend) {
  const Attributes causal = {{"is_causal", int64_t{1}}};
  const Sizes s{2, 2, 1, 150, 150, 8, 8};
  EXPECT_TRUE(CheckKernelAgainstReference(Heads(s, causal), kTolerance));
  EXPECT_TRUE(CheckKernelAgainstReference(Packed(s, causal), kTolerance));
  OpCase with_past = WithPast(Heads(s, causal), s, 21);
  with_past.outputs = {true, true, true};
  EXPECT_TRUE(CheckKernelAgainstReference(with_past, kTolerance));
  EXPECT_TRUE(CheckKernelAgainstReference(With(Heads(s, causal), 6, Int64s({149, 3})), kTolerance));
  EXPECT_TRUE(CheckKernelAgainstReference(With(Heads(s), 6, Int64s({0, 33})), kTolerance));
  EXPECT_TRUE(CheckKernelAgainstReference(
      Heads(s, {{"left_window_size", int64_t{20}}, {"right_window_size", int64_t{5}}}),
      kTolerance));
  EXPECT_TRUE(SameBitsOnTwoThreads(Heads(s, causal)));
}

TEST(Attention, ThreadsDoNotChangeBits) {
  EXPECT_TRUE(SameBitsOnTwoThreads(Heads(Sizes{2, 4, 2, 150, 70, 16, 16})));
}

TEST(Attention, NothingToAttend) {
  EXPECT_TRUE(CheckKernelAgainstReference(Heads(Sizes{2, 1, 1, 3, 0, 4, 4})));
  EXPECT_TRUE(CheckKernelAgainstReference(Heads(Sizes{0, 1, 1, 3, 2, 4, 4})));
  EXPECT_TRUE(CheckKernelAgainstReference(Heads(Sizes{2, 1, 1, 0, 2, 4, 4})));
  EXPECT_TRUE(CheckKernelAgainstReference(Heads(Sizes{2, 1, 1, 3, 2, 4, 0})));
}

TEST(Attention, MasksBroadcastAndMayBeShort) {
  const Sizes s;
  for (const Shape& shape : {Shape{4, 6}, Shape{3, 4, 6}, Shape{2, 1, 4, 6}, Shape{2, 3, 1, 6},
                             Shape{6}, Shape{4, 5}, Shape{4, 1}}) {
    const Tensor bias = RandomTensor(shape, 7);
    EXPECT_TRUE(CheckKernelAgainstReference(With(Heads(s), 3, bias), kTolerance));
    const Tensor choice = RandomTensor(shape, 8, 0, 2, DType::kBool);
    OpCase boolean = With(Packed(s, {{"is_causal", int64_t{1}}}), 3, choice);
    EXPECT_TRUE(CheckKernelAgainstReference(boolean, kTolerance)) << shape.ToString();
  }
}

TEST(Attention, AQueryWithoutKeysGivesZeros) {
  const Sizes s{1, 1, 1, 2, 2, 4, 4};
  const Tensor mask = Tensor::Of<float>({2, 2}, std::vector<float>{kNever, kNever, 0, kNever});
  const auto outputs = RunOp(With(Heads(s), 3, mask));
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  for (int i = 0; i < 4; ++i) EXPECT_EQ((*outputs)[0].data<float>()[i], 0);
  for (int i = 4; i < 8; ++i) {
    EXPECT_FLOAT_EQ((*outputs)[0].data<float>()[i],
                    RandomTensor({8}, 3, -2, 2).data<float>()[i - 4]);
  }
}

// The reference kernel took a row of nothing but NaN for one without keys.
TEST(Attention, NanOfAMaskPasses) {
  const Sizes s{1, 1, 1, 3, 2, 4, 4};
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Tensor mask = Tensor::Of<float>({3, 2}, std::vector<float>{kNan, kNan, 0, kNan, 0, kNever});
  const OpCase single = With(Heads(s), 3, mask);
  for (const OpCase& op_case : {single, InFloat64(single)}) {
    for (const Kernels kernels : {Kernels::kProduction, Kernels::kReference}) {
      const auto outputs = RunOp(op_case, kernels);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      const std::vector<double> y = ToDoubles((*outputs)[0]).value();
      ASSERT_EQ(y.size(), 12u);
      for (size_t i = 0; i < 12; ++i) EXPECT_EQ(std::isnan(y[i]), i < 8) << i;
    }
  }
}

TEST(Attention, PastCapsWindowsAndEveryKindOfScores) {
  const Sizes s{2, 4, 2, 3, 5, 4, 6};
  for (int64_t mode = 0; mode < 4; ++mode) {
    const Attributes attributes = {{"qk_matmul_output_mode", mode},
                                   {"is_causal", int64_t{1}},
                                   {"softcap", 1.5f},
                                   {"scale", 0.3f}};
    EXPECT_TRUE(CheckKernelAgainstReference(WithPast(Heads(s, attributes), s, 7), kTolerance));
    EXPECT_TRUE(CheckKernelAgainstReference(WithPast(Packed(s, attributes), s, 1), kTolerance));
  }
  for (const auto& [left, right] : {std::pair<int64_t, int64_t>{1, -1}, {2, 1}, {-1, 0}, {0, 0}}) {
    const Attributes windows = {{"left_window_size", left}, {"right_window_size", right}};
    EXPECT_TRUE(CheckKernelAgainstReference(Heads(s, windows), kTolerance));
    EXPECT_TRUE(CheckKernelAgainstReference(WithPast(Heads(s, windows), s, 2), kTolerance));
  }
}

TEST(Attention, LengthsWithoutPadding) {
  const Sizes s;
  for (const bool causal : {false, true}) {
    const Attributes attributes = {{"is_causal", int64_t{causal}}};
    EXPECT_TRUE(
        CheckKernelAgainstReference(With(Heads(s, attributes), 6, Int64s({5, 2})), kTolerance));
  }
  EXPECT_TRUE(ExpectError(With(Heads(s), 6, Int64s({5, 7})), absl::StatusCode::kInvalidArgument,
                          {"nonpad_kv_seqlen[1] is 7", "0 to the 6 keys"}));
}

TEST(Attention, OtherTypes) {
  const Sizes s{2, 4, 2, 3, 5, 4, 6};
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::kFloat64, 1e-12}, {DType::kFloat16, 4e-3}, {DType::kBfloat16, 3e-2}}) {
    OpCase op_case = WithPast(Packed(s, {{"is_causal", int64_t{1}}, {"softcap", 2.0f}}), s, 2);
    for (Tensor& input : op_case.inputs) {
      if (input.valid()) input = Cast(input, dtype);
    }
    EXPECT_TRUE(CheckKernelAgainstReference(op_case, {.of_magnitude = tolerance}));
  }
  const OpCase in_double = Heads(s, {{"softmax_precision", int64_t{11}}});
  EXPECT_TRUE(CheckKernelAgainstReference(in_double, kTolerance));
}

TEST(Attention, MisfitsAreNamed) {
  const Sizes s;
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_TRUE(ExpectError(With(Heads(s), 3, RandomTensor({4, 7}, 1)), invalid,
                          {"attn_mask [4,7]", "[2,3,4,6]"}));
  EXPECT_TRUE(ExpectError(Heads(Sizes{2, 3, 2, 4, 6, 8, 8}), invalid, {"3 query heads", "2 key"}));
  EXPECT_TRUE(ExpectError(Heads(s, {{"qk_matmul_output_mode", int64_t{4}}}), invalid,
                          {"qk_matmul_output_mode is 4"}));
  OpCase packed = Packed(s);
  packed.attributes.Set("q_num_heads", int64_t{5});
  EXPECT_TRUE(ExpectError(packed, invalid, {"[2,4,24]", "5 heads (q_num_heads)"}));
  EXPECT_TRUE(ExpectError(With(Heads(s), 4, RandomTensor({2, 3, 2, 8}, 1)), invalid,
                          {"past_key and past_value belong together"}));
}

// ---- RotaryEmbedding

OpCase Rotated(const Shape& x, int64_t length, int64_t size, Attributes attributes) {
  const int64_t turned = attributes.Int("rotary_embedding_dim", 0);
  const int64_t half = (turned == 0 ? size : turned) / 2;
  return {.op = "RotaryEmbedding",
          .attributes = std::move(attributes),
          .inputs = {RandomTensor(x, 1), RandomTensor({x.dim(0), length, half}, 2),
                     RandomTensor({x.dim(0), length, half}, 3)}};
}

TEST(RotaryEmbedding, AgreesWithTheReference) {
  for (const int64_t interleaved : {0, 1}) {
    for (const int64_t turned : {0, 4}) {
      const Attributes attributes = {{"interleaved", interleaved},
                                     {"num_heads", int64_t{3}},
                                     {"rotary_embedding_dim", turned}};
      OpCase heads = Rotated({2, 3, 5, 8}, 5, 8, attributes);
      EXPECT_TRUE(CheckKernelAgainstReference(heads));
      OpCase packed = Rotated({2, 5, 24}, 5, 8, attributes);
      EXPECT_TRUE(CheckKernelAgainstReference(packed));
      for (OpCase* op_case : {&heads, &packed}) {
        const int64_t half = op_case->inputs[1].shape().dim(2);
        op_case->inputs[1] = RandomTensor({11, half}, 2);
        op_case->inputs[2] = RandomTensor({11, half}, 3);
        op_case->inputs.push_back(RandomTensor({2, 5}, 4, 0, 11, DType::kInt64));
        EXPECT_TRUE(CheckKernelAgainstReference(*op_case));
      }
    }
  }
}

TEST(RotaryEmbedding, PositionsOutsideOfTheCacheAreNamed) {
  OpCase op_case = Rotated({1, 1, 2, 4}, 2, 4, {});
  op_case.inputs[1] = RandomTensor({3, 2}, 1);
  op_case.inputs[2] = RandomTensor({3, 2}, 1);
  op_case.inputs.push_back(Int64s({0, 3}).Reshaped({1, 2}));
  EXPECT_TRUE(ExpectError(op_case, absl::StatusCode::kInvalidArgument,
                          {"position_ids[0,1] is 3", "0 to 2"}));
}

// ---- LinearAttention

OpCase Recurrent(const std::string& rule, int64_t q_heads, int64_t kv_heads, int64_t decay_size,
                 int64_t betas) {
  OpCase op_case{
      .op = "LinearAttention",
      .attributes = {{"update_rule", rule}, {"q_num_heads", q_heads}, {"kv_num_heads", kv_heads}},
      .inputs = {RandomTensor({2, 5, q_heads * 4}, 1), RandomTensor({2, 5, kv_heads * 4}, 2),
                 RandomTensor({2, 5, kv_heads * 3}, 3), RandomTensor({2, kv_heads, 4, 3}, 4)},
      .outputs = {true, true}};
  op_case.inputs.resize(6);
  if (decay_size > 0) op_case.inputs[4] = RandomTensor({2, 5, kv_heads * decay_size}, 5, -1, 0);
  if (betas > 0) op_case.inputs[5] = RandomTensor({2, 5, betas}, 6, 0, 1);
  return op_case;
}

TEST(LinearAttention, AgreesWithTheReferenceInEveryRule) {
  for (const OpCase& op_case :
       {Recurrent("linear", 2, 2, 0, 0), Recurrent("gated", 4, 2, 1, 0),
        Recurrent("gated", 2, 2, 4, 0), Recurrent("delta", 6, 2, 0, 2),
        Recurrent("gated_delta", 4, 1, 4, 1), Recurrent("gated_delta", 4, 2, 1, 2)}) {
    EXPECT_TRUE(CheckKernelAgainstReference(op_case));
    OpCase from_nothing = op_case;
    from_nothing.inputs[3] = Tensor();
    EXPECT_TRUE(CheckKernelAgainstReference(from_nothing));
    OpCase half = op_case;
    for (const int i : {0, 1, 2, 4, 5}) {
      if (half.inputs[i].valid()) half.inputs[i] = Cast(half.inputs[i], DType::kFloat16);
    }
    EXPECT_TRUE(CheckKernelAgainstReference(half, {.of_magnitude = 1e-3}));
  }
}

TEST(LinearAttention, MisfitsAreNamed) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_TRUE(
      ExpectError(Recurrent("gated", 2, 2, 0, 0), invalid, {"'gated' wants the input decay"}));
  EXPECT_TRUE(ExpectError(Recurrent("mean", 2, 2, 0, 0), invalid, {"update_rule is 'mean'"}));
  EXPECT_TRUE(ExpectError(Recurrent("linear", 3, 2, 0, 0), invalid, {"q_num_heads is 3"}));
}

// ---- Gradients.

TEST(AttentionGradient, IsTheDerivativeForSharedAndPackedHeads) {
  for (const Sizes& s : {Sizes{2, 2, 2, 3, 4, 3, 2}, Sizes{2, 4, 2, 3, 2, 2, 3}}) {
    for (const bool causal : {false, true}) {
      const Attributes attributes = {{"is_causal", int64_t{causal}}};
      EXPECT_TRUE(CheckGradient(Heads(s, attributes)));
      EXPECT_TRUE(CheckGradient(Packed(s, attributes)));
    }
  }
}

TEST(AttentionGradient, IsTheDerivativeWithPastCapAndEveryKindOfScores) {
  const Sizes s{2, 4, 2, 2, 3, 2, 3};
  for (int64_t mode = 0; mode < 4; ++mode) {
    const Attributes attributes = {
        {"qk_matmul_output_mode", mode}, {"softcap", 1.5f}, {"scale", 0.3f}};
    EXPECT_TRUE(CheckGradient(WithPast(Heads(s, attributes), s, 2)));
    EXPECT_TRUE(CheckGradient(WithPast(Packed(s, attributes), s, 1)));
  }
  OpCase present = WithPast(Heads(s, {{"is_causal", int64_t{1}}}), s, 2);
  present.outputs = {true, true, true};
  EXPECT_TRUE(CheckGradient(present));
}

TEST(AttentionGradient, IsTheDerivativeOfMasks) {
  const Sizes s{2, 2, 2, 3, 4, 2, 2};
  for (const Shape& shape :
       {Shape{3, 4}, Shape{2, 3, 4}, Shape{2, 1, 3, 4}, Shape{2, 2, 1, 4}, Shape{4}, Shape{3, 2}}) {
    EXPECT_TRUE(CheckGradient(With(Heads(s), 3, RandomTensor(shape, 7))));
  }
  EXPECT_TRUE(CheckGradient(With(Packed(Sizes{1, 4, 2, 3, 4, 2, 2}), 3, RandomTensor({3, 4}, 7))));
  const Tensor choice =
      Cast(Tensor::Of<float>({3, 4}, std::vector<float>{1, 0, 1, 1, 0, 1, 0, 1, 0, 0, 0, 0}),
           DType::kBool);
  EXPECT_TRUE(CheckGradient(With(Heads(s), 3, choice)));
}

TEST(AttentionGradient, WindowsAndLengthsLetNothingThrough) {
  const Sizes s{2, 2, 2, 3, 4, 2, 2};
  const Attributes window = {{"left_window_size", int64_t{1}}, {"right_window_size", int64_t{0}}};
  EXPECT_TRUE(CheckGradient(Heads(s, window)));
  EXPECT_TRUE(CheckGradient(With(Heads(s), 6, Int64s({4, 2}))));
}

TEST(AttentionGradient, OfNothingIsNothing) {
  EXPECT_TRUE(CheckGradient(Heads(Sizes{2, 1, 1, 3, 0, 4, 4})));
  EXPECT_TRUE(CheckGradient(Heads(Sizes{0, 2, 1, 3, 2, 4, 4})));
  EXPECT_TRUE(CheckGradient(Heads(Sizes{2, 2, 1, 0, 2, 4, 4})));
}

}  // namespace
}  // namespace weft::testing
