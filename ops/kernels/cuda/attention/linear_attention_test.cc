// LinearAttention and its gradient on the emulated GPU. The truth of the gradient is the CPU's
// kernel in float64, which ops/defs/attention/attention_test.cc holds against numeric derivatives.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/attribute.h"
#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

struct Recurrence {
  std::string rule = "gated_delta";
  int64_t q_heads = 2, kv_heads = 2;
  int64_t decay_size = 0;  // of a head; 0: no decay
  int64_t betas = 0;       // of a step; 0: no beta
  bool has_past = true;
  int64_t batch = 2, steps = 5, key_size = 4, value_size = 3;
  DType dtype = DType::kFloat32;
  DType state_dtype = DType::kFloat32;
};

std::vector<Recurrence> EveryRule() {
  return {{"linear", 2, 2, 0, 0},      {"linear", 4, 2, 0, 0, false},
          {"gated", 4, 2, 1, 0},       {"gated", 2, 2, 4, 0, false},
          {"delta", 6, 2, 0, 2},       {"gated_delta", 4, 1, 4, 1},
          {"gated_delta", 4, 2, 1, 2}, {"gated_delta", 3, 3, 4, 1, false}};
}

Tolerance LinearToleranceOf(DType dtype) {
  if (dtype == DType::kBfloat16) return {.of_magnitude = 2e-2};
  if (dtype == DType::kFloat16) return {.of_magnitude = 2e-3};
  return {.of_magnitude = 5e-6};
}

OpCase RecurrenceCase(const Recurrence& r) {
  const auto steps = [&](int64_t size, uint64_t seed, double low, double high) {
    return RandomTensor({r.batch, r.steps, size}, seed, low, high, r.dtype);
  };
  OpCase op_case{
      .op = "LinearAttention",
      .attributes = {{"update_rule", r.rule},
                     {"q_num_heads", r.q_heads},
                     {"kv_num_heads", r.kv_heads}},
      .inputs = {steps(r.q_heads * r.key_size, 1, -1, 1), steps(r.kv_heads * r.key_size, 2, -1, 1),
                 steps(r.kv_heads * r.value_size, 3, -1, 1)},
      .outputs = {true, true}};
  op_case.inputs.resize(6);
  if (r.has_past) {
    op_case.inputs[3] =
        RandomTensor({r.batch, r.kv_heads, r.key_size, r.value_size}, 4, -1, 1, r.state_dtype);
  }
  if (r.decay_size > 0) op_case.inputs[4] = steps(r.kv_heads * r.decay_size, 5, -1, 0);
  if (r.betas > 0) op_case.inputs[5] = steps(r.betas, 6, 0, 1);
  return op_case;
}

// The gradient of RecurrenceCase, of both outputs.
OpCase RecurrenceGradient(const Recurrence& r) {
  const OpCase forward = RecurrenceCase(r);
  OpCase gradient{
      .domain = "ai.weft",
      .op = "LinearAttentionGrad",
      .attributes = {{"q_num_heads", r.q_heads}, {"kv_num_heads", r.kv_heads}},
      .inputs = {RandomTensor({r.batch, r.steps, r.q_heads * r.value_size}, 7, -1, 1, r.dtype),
                 RandomTensor({r.batch, r.kv_heads, r.key_size, r.value_size}, 8, -1, 1,
                              r.has_past ? r.state_dtype : r.dtype)},
      .outputs = {}};
  for (const Tensor& input : forward.inputs) {
    gradient.inputs.push_back(input);
    gradient.outputs.push_back(input.valid());
  }
  return gradient;
}

// Against the CPU in float64, in two orders of the threads, which give the same bits.
void ExpectGradient(const OpCase& gradient, const Tolerance& tolerance) {
  const auto expected = RunOp(InFloat64(gradient));
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto actual = RunOnEmulatedGpu(gradient, {.seed = 1, .runs = 2});
  ASSERT_TRUE(actual.ok()) << actual.status();
  const auto again = RunOnEmulatedGpu(gradient, {.seed = 2});
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(actual->size(), expected->size());
  for (size_t i = 0; i < gradient.outputs.size(); ++i) {
    if (!gradient.outputs[i]) continue;
    EXPECT_TRUE(TensorsNear((*actual)[i], (*expected)[i], tolerance, /*any_dtype=*/true))
        << "output " << i;
    EXPECT_TRUE(TensorsNear((*again)[i], (*actual)[i], {.of_magnitude = 0, .absolute = 0}, false))
        << "output " << i;
  }
}

TEST(CudaLinearAttentionTest, AgreesInEveryRule) {
  for (Recurrence r : EveryRule()) {
    EXPECT_TRUE(CheckOnEmulatedGpu(RecurrenceCase(r), LinearToleranceOf(r.dtype))) << r.rule;
  }
}

TEST(CudaLinearAttentionTest, AgreesInEveryType) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    for (const DType state : {dtype, DType::kFloat32, DType::kFloat64}) {
      Recurrence r{"gated_delta", 4, 2, 4, 2};
      r.dtype = dtype;
      r.state_dtype = state;
      EXPECT_TRUE(CheckOnEmulatedGpu(RecurrenceCase(r), LinearToleranceOf(dtype)))
          << DTypeName(dtype);
      ExpectGradient(RecurrenceGradient(r), LinearToleranceOf(dtype));
    }
  }
}

// More columns than a block has threads, sums of more than a warp and a run; nothing at all.
TEST(CudaLinearAttentionTest, AgreesInManySizes) {
  for (Recurrence r : {Recurrence{"gated_delta", 3, 3, 37, 1, true, 1, 2, 37, 67},
                       Recurrence{"gated_delta", 2, 1, 1, 1, false, 1, 3, 1, 1},
                       Recurrence{"gated_delta", 2, 2, 4, 2, true, 2, 0},
                       Recurrence{"gated_delta", 2, 2, 4, 2, true, 0, 3},
                       Recurrence{"delta", 1, 1, 0, 1, true, 2, 3, 4, 0}}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(RecurrenceCase(r), LinearToleranceOf(r.dtype))) << r.key_size;
    ExpectGradient(RecurrenceGradient(r), {.of_magnitude = 2e-5});
  }
}

TEST(CudaLinearAttentionTest, GradientAgreesInEveryRule) {
  for (Recurrence r : EveryRule()) {
    // Chunks that are full, that are not, and one alone.
    for (const int64_t steps : {1, 2, 5, 9}) {
      r.steps = steps;
      ExpectGradient(RecurrenceGradient(r), {.of_magnitude = 2e-5});
    }
  }
}

TEST(CudaLinearAttentionTest, GradientOfOneOutputAndOfSomeInputs) {
  const OpCase both = RecurrenceGradient({"gated_delta", 4, 2, 1, 1});
  for (const int absent : {0, 1}) {
    OpCase one = both;
    one.inputs[absent] = Tensor();
    ExpectGradient(one, {.of_magnitude = 2e-5});
  }
  for (size_t wanted = 0; wanted < both.outputs.size(); ++wanted) {
    OpCase one = both;
    one.outputs.assign(both.outputs.size(), false);
    one.outputs[wanted] = true;
    ExpectGradient(one, {.of_magnitude = 2e-5});
  }
}

TEST(CudaLinearAttentionTest, RefusesOperandsOfTwoTypes) {
  OpCase mixed = RecurrenceCase({"linear"});
  mixed.inputs[2] = RandomTensor({2, 5, 6}, 3, -1, 1, DType::kFloat16);
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(mixed, absl::StatusCode::kUnimplemented,
                                       {"the query is float32, input 2 is float16"}));
}

}  // namespace
}  // namespace weft::testing
