// The cases of gpu_benchmark are nodes that kernels for GPUs are made for: else a row would be an
// error, on a card.
#include "ops/kernels/cuda/testing/benchmark_cases.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/concrete_node.h"
#include "ops/testing/emulator/emulated_device.h"
#include "ops/testing/op_case.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

class BenchmarkCasesTest : public ::testing::TestWithParam<DType> {
 protected:
  // Of the kernel, which is not run.
  static absl::Status Prepared(const OpCase& op_case, bool uses_cudnn = false) {
    EmulatedDevice device({.seed = 1});
    const SingleNodeGraph single = MakeSingleNodeGraph(op_case);
    NodeRunOptions options;
    options.device = &device;
    options.strict = false;
    options.uses_cudnn = uses_cudnn;
    const auto node =
        ConcreteNode::Create(single.graph->node(single.node), op_case.inputs, options);
    return node.ok() ? node->Prepare().status() : node.status();
  }
  static void ExpectPrepared(const std::vector<BenchmarkCase>& cases, bool uses_cudnn) {
    EXPECT_FALSE(cases.empty());
    for (const BenchmarkCase& one : cases) {
      const absl::Status status = Prepared(one.op_case, uses_cudnn);
      EXPECT_TRUE(status.ok()) << one.name << ": " << status;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Types, BenchmarkCasesTest,
                         ::testing::Values(DType::kFloat32, DType::kBfloat16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST_P(BenchmarkCasesTest, OfMemoryHaveKernels) {
  ExpectPrepared(MemoryCases(GetParam()), /*uses_cudnn=*/false);
}

TEST_P(BenchmarkCasesTest, OfWorkHaveKernelsAndCountTheirOperations) {
  const std::vector<BenchmarkCase> cases = WorkCases(GetParam());
  ExpectPrepared(cases, /*uses_cudnn=*/false);
  for (const BenchmarkCase& one : cases) EXPECT_GT(one.operations, 1e9) << one.name;
}

TEST_P(BenchmarkCasesTest, OfLibrariesHaveKernelsBothWays) {
  for (const bool uses_cudnn : {false, true}) {
    ExpectPrepared(ConvolutionCases(GetParam()), uses_cudnn);
    ExpectPrepared(NormalizationCases(GetParam()), uses_cudnn);
  }
}

TEST(AttentionCasesTest, TheGradientIsOneNodeOrThoseOfTheRule) {
  const auto gradient = AttentionBackward(DType::kBfloat16);
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  std::vector<std::string> ops;
  EmulatedDevice device({.seed = 1});
  std::vector<OpCase> all = gradient->own;
  all.push_back(gradient->joined);
  for (const OpCase& op_case : all) {
    ops.push_back(op_case.op);
    const SingleNodeGraph single = MakeSingleNodeGraph(op_case);
    NodeRunOptions options;
    options.device = &device;
    options.uses_cudnn = true;
    const auto node =
        ConcreteNode::Create(single.graph->node(single.node), op_case.inputs, options);
    ASSERT_TRUE(node.ok()) << op_case.ToString() << ": " << node.status();
    const absl::Status status = node->Prepare().status();
    EXPECT_TRUE(status.ok()) << op_case.ToString() << ": " << status;
  }
  EXPECT_EQ(ops.front(), "Attention") << "for its probabilities";
  EXPECT_EQ(ops.back(), "AttentionGrad");
  std::sort(ops.begin(), ops.end());
  // Products for values, probabilities, queries and keys; two of them are scaled.
  EXPECT_THAT(ops, ElementsAre("Attention", "AttentionGrad", "MatMul", "MatMul", "MatMul", "MatMul",
                               "Mul", "Mul", "SoftmaxGrad"));
}

}  // namespace
}  // namespace weft::testing
