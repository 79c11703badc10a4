// Products with an epilogue on the emulated GPU, against the reference kernels of their parts.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/fusion/fused_node.h"
#include "ops/fusion/join_products.h"
#include "ops/kernels/cuda/linear/testing/joined_products.h"
#include "ops/kernels/cuda/linear/testing/recording_blas_lt.h"
#include "ops/testing/emulator/emulated_device.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

const Attributes kTanhForm = {{"approximate", std::string("tanh")}};

// Of a value that is rounded once. What other values than Y are rounded from is not.
Tolerance RoundedOnce(DType dtype) {
  switch (dtype) {
    case DType::kBfloat16:
      return {.of_magnitude = 1e-6, .of_element = 0x1p-8};
    case DType::kFloat16:
      return {.of_magnitude = 1e-6, .of_element = 0x1p-11};
    default:
      return {};
  }
}

class JoinedProductTest : public ::testing::TestWithParam<DType> {
 protected:
  ValueId Input(const Shape& shape) {
    const ValueId value =
        graph_.AddInput("x", {ValueKind::kTensor, GetParam(), SymbolicShape(shape)});
    tensors_[value] = RandomTensor(shape, 1 + tensors_.size(), -1, 1, GetParam());
    return value;
  }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.Op(op, std::move(inputs), std::move(attributes));
  }
  ValueId WeftOp(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.WeftOp(op, std::move(inputs), std::move(attributes));
  }
  ValueId Product(int64_t columns) { return Op("MatMul", {Input({2, 3, 5}), Input({5, columns})}); }
  void Output(ValueId value) { graph_.AddOutput(value); }

  // The graph, joined to one node, is one call of the library, whose description is returned. It
  // gives what the parts give in float64, rounded once, with the same bits in each order of
  // threads.
  cuda::MatrixProductSpec Check(bool tf32 = false) {
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
    absl::StatusOr<JoinedCase> made = JoinedCaseOf(graph_, tensors_);
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return {};
    made->joined.tf32 = tf32;
    const auto expected = OutputsOfJoinedParts(made->joined, [](const OpCase& part) {
      return RunOp(InFloat64(part), Kernels::kReference);
    });
    EXPECT_TRUE(expected.ok()) << expected.status();
    RecordingBlasLt::Get().TakeCalls();
    std::vector<Tensor> first;
    for (const uint64_t seed : {1, 2, 3}) {
      EmulatedRunOptions options;
      options.seed = seed;
      options.runs = 2;
      const auto outputs = RunOnEmulatedGpu(made->joined, options);
      // A card may lack a plan. Its nodes are then not joined.
      if (TestsOnARealGpu() && absl::IsUnimplemented(outputs.status())) return {};
      EXPECT_TRUE(outputs.ok()) << outputs.status();
      if (!outputs.ok() || !expected.ok()) return {};
      for (size_t i = 0; i < outputs->size(); ++i) {
        EXPECT_EQ((*outputs)[i].dtype(), GetParam());
        EXPECT_TRUE(TensorsNear((*outputs)[i], (*expected)[i],
                                tf32 ? Tolerance{.of_magnitude = 2e-3} : RoundedOnce(GetParam()),
                                /*any_dtype=*/true))
            << "output " << i;
        EXPECT_TRUE(first.empty() || BitwiseEqual((*outputs)[i], first[i])) << "seed " << seed;
      }
      first = *outputs;
    }
    if (TestsOnARealGpu()) return {};  // NVIDIA's library counts no calls
    const auto calls = RecordingBlasLt::Get().TakeCalls();
    EXPECT_EQ(calls.size(), 6u);
    return calls.empty() ? cuda::MatrixProductSpec() : calls.front().spec;
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
  std::map<ValueId, Tensor> tensors_;
};

INSTANTIATE_TEST_SUITE_P(Types, JoinedProductTest,
                         ::testing::Values(DType::kFloat32, DType::kFloat16, DType::kBfloat16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST_P(JoinedProductTest, AddsABias) {
  Output(Op("Add", {Input({1, 7}), Product(7)}));
  const cuda::MatrixProductSpec spec = Check();
  if (TestsOnARealGpu()) return;
  EXPECT_TRUE(spec.has_bias);
  EXPECT_EQ(spec.m, 6) << "rows of all matrices";
  EXPECT_EQ(spec.epilogue, cuda::ProductEpilogue::kNone);
}

TEST_P(JoinedProductTest, AddsABiasAndAMatrix) {
  Output(Op("Add", {Input({2, 3, 7}), Op("Add", {Product(7), Input({7})})}));
  const cuda::MatrixProductSpec spec = Check();
  if (TestsOnARealGpu()) return;
  EXPECT_TRUE(spec.has_bias);
  EXPECT_EQ(spec.beta, 1);
}

TEST_P(JoinedProductTest, AddsAMatrixOfOneRowBesideTheBias) {
  const ValueId product = Op("MatMul", {Input({1, 5}), Input({5, 7})});
  Output(Op("Add", {Op("Add", {product, Input({7})}), Input({1, 7})}));
  const cuda::MatrixProductSpec spec = Check();
  if (TestsOnARealGpu()) return;
  EXPECT_TRUE(spec.has_bias);
  EXPECT_EQ(spec.beta, 1);
}

TEST_P(JoinedProductTest, AddsAMatrixToEachOfABatch) {
  Output(Op("Add", {Op("MatMul", {Input({2, 3, 5}), Input({2, 5, 7})}), Input({2, 3, 7})}));
  const cuda::MatrixProductSpec spec = Check();
  if (TestsOnARealGpu()) return;
  EXPECT_EQ(spec.batches, 2);
  EXPECT_EQ(spec.beta, 1);
  EXPECT_FALSE(spec.has_bias);
}

TEST_P(JoinedProductTest, AddsABiasToEachMatrixOfABatch) {
  Output(Op("Add", {Op("MatMul", {Input({2, 3, 5}), Input({2, 5, 7})}), Input({7})}));
  const cuda::MatrixProductSpec spec = Check();
  if (TestsOnARealGpu()) return;
  EXPECT_EQ(spec.batches, 2);
}

TEST_P(JoinedProductTest, ComputesGelu) {
  Output(Op("Gelu", {Op("Add", {Product(7), Input({7})})}, kTanhForm));
  const cuda::MatrixProductSpec spec = Check();
  if (TestsOnARealGpu()) return;
  EXPECT_TRUE(spec.has_bias);
  EXPECT_EQ(spec.epilogue, cuda::ProductEpilogue::kTanhGelu);
  EXPECT_FALSE(spec.has_aux);
}

TEST_P(JoinedProductTest, GivesWhatGeluReads) {
  const ValueId z = Op("Add", {Product(16), Input({16})});
  Output(Op("Gelu", {z}, kTanhForm));
  Output(z);
  const cuda::MatrixProductSpec spec = Check();
  if (TestsOnARealGpu()) return;
  EXPECT_TRUE(spec.has_aux);
  EXPECT_EQ(spec.y_row, 16);
}

TEST_P(JoinedProductTest, GivesWhatGeluReadsOfEachMatrixOfABatch) {
  const ValueId z = Op("MatMul", {Input({2, 1, 3, 5}), Input({1, 3, 5, 8})});
  Output(z);
  Output(Op("Gelu", {z}, kTanhForm));
  EXPECT_TRUE(builder_.status().ok());
  absl::StatusOr<JoinedCase> made = JoinedCaseOf(graph_, tensors_);
  ASSERT_TRUE(made.ok()) << made.status();
  // A loop of two calls, each a batch of three.
  const auto outputs = RunOnEmulatedGpu(made->joined);
  if (TestsOnARealGpu() && absl::IsUnimplemented(outputs.status())) return;
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const auto expected = OutputsOfJoinedParts(
      made->joined, [](const OpCase& part) { return RunOp(InFloat64(part), Kernels::kReference); });
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(TensorsNear((*outputs)[i], (*expected)[i], RoundedOnce(GetParam()), true)) << i;
  }
}

TEST_P(JoinedProductTest, ReadsAGemm) {
  Output(Op("Gelu",
            {Op("Gemm", {Input({5, 3}), Input({9, 5}), Input({9})},
                {{"transA", int64_t{1}}, {"transB", int64_t{1}}, {"alpha", 0.75f}})},
            kTanhForm));
  const cuda::MatrixProductSpec spec = Check();
  if (TestsOnARealGpu()) return;
  EXPECT_EQ(spec.alpha, 0.75);
  EXPECT_EQ(spec.beta, 0);
  EXPECT_TRUE(spec.has_bias);
}

TEST_P(JoinedProductTest, MultipliesByTheSlopeOfGelu) {
  const ValueId product =
      WeftOp("MatMul", {Input({2, 3, 5}), Input({16, 5})}, {{"transB", int64_t{1}}});
  Output(WeftOp("TanhGeluGrad", {product, Input({2, 3, 16})}));
  const cuda::MatrixProductSpec spec = Check();
  if (TestsOnARealGpu()) return;
  EXPECT_EQ(spec.epilogue, cuda::ProductEpilogue::kTanhGeluGrad);
}

TEST_P(JoinedProductTest, AddsUpTheRowsOfTheSecondOperand) {
  const ValueId dy = Input({2, 3, 7});
  Output(WeftOp("MatMulReduceBatch", {Input({2, 3, 5}), dy}));
  Output(WeftOp("SumToShape", {dy, builder_.Ints({7})}));
  const cuda::MatrixProductSpec spec = Check();
  if (TestsOnARealGpu()) return;
  EXPECT_EQ(spec.sums, cuda::SummedOperand::kB);
}

TEST_P(JoinedProductTest, AddsUpTheRowsOfTheFirstOperand) {
  const ValueId dy = Input({6, 7});
  Output(Op("ReduceSum", {dy, builder_.Ints({0})}));
  Output(WeftOp("MatMul", {dy, Input({6, 5})}, {{"transA", int64_t{1}}}));
  const cuda::MatrixProductSpec spec = Check();
  if (TestsOnARealGpu()) return;
  EXPECT_EQ(spec.sums, cuda::SummedOperand::kA);
}

TEST_P(JoinedProductTest, RoundsToTf32WhereItIsAllowed) {
  if (GetParam() != DType::kFloat32) return;
  Output(Op("Add", {Product(7), Input({7})}));
  const cuda::MatrixProductSpec spec = Check(/*tf32=*/true);
  if (TestsOnARealGpu()) return;
  EXPECT_TRUE(spec.tf32);
}

TEST_P(JoinedProductTest, AllFormsOfALayerRunJoinedAndApart) {
  const auto cases = JoinedCasesOfLayer(5, 3, 8, GetParam(), [](const Shape& shape, DType dtype) {
    return RandomTensor(shape, 9, -1, 1, dtype);
  });
  ASSERT_TRUE(cases.ok()) << cases.status();
  EXPECT_EQ(cases->size(), 6u);
  for (const JoinedCase& joined : *cases) {
    const auto outputs = RunOnEmulatedGpu(joined.joined);
    if (TestsOnARealGpu() && absl::IsUnimplemented(outputs.status())) continue;
    ASSERT_TRUE(outputs.ok()) << joined.name << outputs.status();
    EXPECT_GE(joined.parts.size(), 2u);
    for (const OpCase& part : joined.parts) {
      const auto apart = RunOp(InFloat64(part), Kernels::kReference);
      EXPECT_TRUE(apart.ok()) << joined.name << " " << part.ToString() << apart.status();
    }
  }
}

// What the device is asked before nodes are joined.
TEST(JoinedProductTakerTest, TakesWhatTheLibraryHasAPlanFor) {
  const DeviceTakesProduct takes = FindProductTaker(DeviceKind::kCuda);
  ASSERT_NE(takes, nullptr);
  if (TestsOnARealGpu()) GTEST_SKIP() << "asks the recording library";
  EmulatedDevice device({.seed = 1});
  const auto parts_of = [&] {
    Graph graph;
    GraphBuilder builder(graph);
    const auto input = [&graph](const Shape& shape) {
      return graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape(shape)});
    };
    const ValueId product = builder.Op("MatMul", {input({6, 5}), input({5, 7})});
    graph.AddOutput(builder.Op("Gelu", {builder.Op("Add", {product, input({7})})}, kTanhForm));
    const auto counts =
        JoinProducts(graph, [&](const Graph& body) { return takes(device, body, /*tf32=*/false); });
    EXPECT_TRUE(counts.ok()) << counts.status();
    return counts.ok() ? counts->nodes : -1;
  };
  EXPECT_EQ(parts_of(), 3);
  RecordingBlasLt::Get().RefuseEpilogues(true);
  EXPECT_EQ(parts_of(), 2) << "the bias alone";
  RecordingBlasLt::Get().RefuseBias(true);
  EXPECT_EQ(parts_of(), 0);
  RecordingBlasLt::Get().RefuseEpilogues(false);
  RecordingBlasLt::Get().RefuseBias(false);
}

// What the recording library holds against its callers.
TEST(RecordingBlasLtTest, OperandsOfEpiloguesThatDoNotFitAreErrors) {
  cuda::MatrixProductSpec spec;
  spec.m = spec.n = spec.k = 8;
  spec.a_row = spec.b_row = spec.y_row = 8;
  spec.has_bias = spec.has_aux = true;
  spec.epilogue = cuda::ProductEpilogue::kTanhGelu;
  const auto product = RecordingBlasLt::Get().Prepare(spec);
  ASSERT_TRUE(product.ok()) << product.status();
  // None of these addresses is used.
  const auto address = [](uintptr_t at) { return reinterpret_cast<void*>(at); };
  const cuda::ProductOperands right{.a = address(0x1000),
                                    .b = address(0x2000),
                                    .y = address(0x3000),
                                    .bias = address(0x4000),
                                    .aux = address(0x5000)};
  const auto error_of = [&](const cuda::ProductOperands& operands) {
    return std::string((*product)
                           ->Multiply(operands, address(0x6000), cuda::LaunchQueue{address(0x51)})
                           .message());
  };
  cuda::ProductOperands wrong = right;
  wrong.aux = nullptr;
  EXPECT_THAT(error_of(wrong), ::testing::HasSubstr("Aux against the spec"));
  wrong = right;
  wrong.sums = address(0x7000);
  EXPECT_THAT(error_of(wrong), ::testing::HasSubstr("sums against the spec"));
  wrong = right;
  wrong.aux = address(0x5020);
  EXPECT_THAT(error_of(wrong), ::testing::HasSubstr("less aligned"));
  wrong.aux = address(0x1000);
  EXPECT_THAT(error_of(wrong), ::testing::HasSubstr("over an operand"));
  wrong.aux = address(0x3000);
  EXPECT_THAT(error_of(wrong), ::testing::HasSubstr("two results lie at one place"));
  wrong = right;
  wrong.bias = address(0x4010);
  EXPECT_THAT(error_of(wrong), ::testing::HasSubstr("less aligned"));
}

}  // namespace
}  // namespace weft::testing
