#include "ops/concrete_node.h"

#include <cmath>

#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using testing::Cast;
using testing::ExpectOutputs;
using testing::MakeSingleNodeGraph;
using testing::RandomTensor;
using testing::RunOp;

TEST(ConcreteNode, AnOpWithoutSchemaIsRefusedByName) {
  const auto single = MakeSingleNodeGraph({.op = "Frobnicate", .inputs = {RandomTensor({2}, 1)}});
  const auto node = ConcreteNode::Create(single.graph->node(single.node), {RandomTensor({2}, 1)});
  ASSERT_FALSE(node.ok());
  EXPECT_EQ(node.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(node.status().message().find("Frobnicate"), absl::string_view::npos);
}

TEST(ConcreteNode, KnowsTheValuesOfValueInputsOnly) {
  const std::vector<Tensor> inputs = {RandomTensor({2, 3}, 1), testing::Int64s({1})};
  const auto single = MakeSingleNodeGraph({.op = "ReduceSum", .inputs = inputs});
  const auto node = ConcreteNode::Create(single.graph->node(single.node), inputs);
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->InputValue(0), nullptr);
  ASSERT_NE(node->InputValue(1), nullptr);
  EXPECT_EQ(node->InputValue(1)->data<int64_t>()[0], 1);
}

TEST(ConcreteNode, PlacementsDefaultToTheWholeTensor) {
  const std::vector<Tensor> inputs = {RandomTensor({2, 3}, 1)};
  const auto single = MakeSingleNodeGraph({.op = "Relu", .inputs = inputs});
  const auto node = ConcreteNode::Create(single.graph->node(single.node), inputs);
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->InputSlice(0).global_shape, (Shape{2, 3}));
  EXPECT_EQ(node->OutputSlice(0).offset, (std::vector<int64_t>{0, 0}));
}

TEST(ConcreteNode, CopiesUnalignedInputs) {
  const Tensor rows = RandomTensor({5, 3}, 1).Rows(1, 5);  // 12 bytes into its buffer
  ASSERT_NE(reinterpret_cast<uintptr_t>(rows.raw_data()) % kAlignment, 0u);
  EXPECT_TRUE(ExpectOutputs({.op = "Relu", .inputs = {rows}},
                            *RunOp({.op = "Relu", .inputs = {*rows.Clone()}})));
}

TEST(NodeRunner, EvaluatesWithBothRegistries) {
  const std::vector<Tensor> inputs = {Cast(RandomTensor({4}, 1), DType::kFloat64)};
  const auto single = MakeSingleNodeGraph({.op = "Exp", .inputs = inputs});
  const Node& node = single.graph->node(single.node);
  for (NodeEvaluator* evaluator : {&CpuNodeEvaluator(), &ReferenceNodeEvaluator()}) {
    const auto outputs = evaluator->Evaluate(*single.graph, node, inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_DOUBLE_EQ(outputs->at(0).data<double>()[2], std::exp(inputs[0].data<double>()[2]));
  }
}

TEST(NodeRunner, TheWrongNumberOfInputsIsAnError) {
  const auto single =
      MakeSingleNodeGraph({.op = "Add", .inputs = {RandomTensor({2}, 1), RandomTensor({2}, 2)}});
  const auto outputs = CpuNodeEvaluator().Evaluate(*single.graph, single.graph->node(single.node),
                                                   {RandomTensor({2}, 1)});
  EXPECT_EQ(outputs.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(KernelRegistry, RefusesASecondKernelForAnOp) {
  KernelRegistry registry;
  const KernelFactory factory =
      [](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    return context.Unimplemented("never");
  };
  EXPECT_TRUE(registry.Register("", "Relu", DeviceKind::kCpu, factory).ok());
  EXPECT_EQ(registry.Register("ai.onnx", "Relu", DeviceKind::kCpu, factory).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(registry.Register("", "Relu", DeviceKind::kCuda, factory).ok());
}

TEST(KernelRegistry, TheFakeDeviceUsesTheKernelsOfTheCpu) {
  EXPECT_NE(KernelRegistry::Global().Find("", "Relu", DeviceKind::kFake), nullptr);
  EXPECT_EQ(KernelRegistry::Global().Find("", "Frobnicate", DeviceKind::kCpu), nullptr);
}

}  // namespace
}  // namespace weft
