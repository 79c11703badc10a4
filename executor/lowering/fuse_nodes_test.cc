// Which nodes of a step are fused, and which borders stay.
#include "executor/lowering/fuse_nodes.h"

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/lowering/node_context.h"
#include "executor/lowering/testing/hand_made_partition.h"
#include "executor/lowering/testing/lowering_fixture.h"
#include "executor/program/compile_step.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/schedule/action_list.h"
#include "gtest/gtest.h"
#include "ops/fusion/fused_node.h"
#include "ops/kernel.h"
#include "ops/testing/gradient_rule.h"
#include "ops/testing/test_tensors.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

FusedRole RoleOfStepNode(const Graph& /*graph*/, const Node& node) {
  return node.op == "Neg" || node.op == "Add" ? FusedRole::kElementwise : FusedRole::kNone;
}
constexpr FusionRules kStepRules{.role_of = RoleOfStepNode};

ValueId RowInput(Graph& graph, const std::string& name, InputRole role = InputRole::kData) {
  return graph.AddInput(name, {ValueKind::kTensor, DType::kFloat32, SymbolicShape(Shape({4}))},
                        role);
}

// A chain of `count` nodes in a phase; the last value.
ValueId NegChain(Graph& graph, ValueId x, int count, Phase phase) {
  GraphBuilder builder(graph);
  builder.set_phase(phase);
  for (int i = 0; i < count; ++i) x = builder.Op("Neg", {x});
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  return x;
}

int FusedNodesOf(const Graph& graph) {
  int count = 0;
  for (const NodeId id : graph.node_ids()) count += graph.node(id).op == kFusedOp ? 1 : 0;
  return count;
}

Partition StepPartition() {
  Partition partition;
  partition.micro.emplace_back();
  Graph& micro = partition.micro[0];
  const ValueId y = NegChain(micro, RowInput(micro, "x"), 3, Phase::kForward);
  const ValueId dx = NegChain(micro, y, 2, Phase::kBackward);
  micro.RenameValue(dx, "dx");
  micro.AddOutput(dx);
  partition.micro_batches = {{.index = 0, .first = 0, .samples = 4, .graph = 0}};
  return partition;
}

TEST(FuseNodesTest, ForwardAndBackwardStayApart) {
  const Partition partition = StepPartition();
  const auto fused = FuseNodes(partition, kStepRules);
  ASSERT_TRUE(fused.ok()) << fused.status();
  EXPECT_EQ(fused->counts.nodes, 5);
  EXPECT_EQ(fused->counts.regions, 2);
  EXPECT_EQ(FusedNodesOf(fused->partition.micro[0]), 2);
  EXPECT_EQ(fused->partition.micro[0].value(fused->partition.micro[0].outputs()[0]).name, "dx");
  // What was given stays.
  EXPECT_EQ(FusedNodesOf(partition.micro[0]), 0);
  EXPECT_EQ(partition.micro[0].num_nodes(), 5);
}

// What the guard needs runs before any variable changes; the rest must not be drawn to it.
TEST(FuseNodesTest, TheGuardIsABorder) {
  Partition partition;
  Graph& end = partition.end;
  const ValueId sum = RowInput(end, "sum", InputRole::kStep);
  const ValueId loss = NegChain(end, sum, 2, Phase::kUpdate);
  end.RenameValue(loss, "loss");
  end.AddOutput(loss);
  const ValueId w = end.AddVariable(
      "w", {ValueKind::kTensor, DType::kFloat32, SymbolicShape(Shape({4}))}, Tensor(), true);
  GraphBuilder builder(end);
  builder.set_phase(Phase::kUpdate);
  const ValueId moved = builder.Op("Add", {w, builder.Op("Neg", {loss})});
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  end.SetVariableUpdate("w", moved);
  partition.guard = "loss";
  const auto fused = FuseNodes(partition, kStepRules);
  ASSERT_TRUE(fused.ok()) << fused.status();
  EXPECT_EQ(fused->counts.regions, 2);
  partition.guard = "";
  const auto without = FuseNodes(partition, kStepRules);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->counts.regions, 1);
}

// ---- Products.

// Neg of a product with a bias.
Partition ProductPartition() {
  return testing::NewPartition(1, [](GraphBuilder& b) {
    const ValueId w = b.Constant(Tensor::Of<float>({2, 2}, {1, 2, 3, 4}));
    const ValueId product = b.Op("MatMul", {testing::Find(b, "x"), w});
    b.Name(product, "product");
    const ValueId sum = b.Op("Add", {product, b.Constant(Tensor::Of<float>({2}, {5, 6}))});
    b.Name(b.Op("Neg", {sum}), "y");
  });
}

TEST(FuseNodesTest, ProductsTakeWhatFollowsThemBeforeRegionsDo) {
  Partition partition = ProductPartition();
  testing::AddSum(partition, "y", "sum_y", 0, 1);
  const auto alone = FuseNodes(partition, kStepRules);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(FusedNodesOf(alone->partition.micro[0]), 1) << "Add and Neg";
  std::vector<std::string> parts;
  const TakesProduct takes = [&parts](const Graph& body) {
    for (const NodeId id : body.node_ids()) parts.push_back(body.node(id).op);
    return true;
  };
  const auto joined = FuseNodes(partition, kStepRules, takes);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_THAT(parts, ::testing::ElementsAre("MatMul", "Add"));
  EXPECT_EQ(joined->counts.nodes, 2);
  EXPECT_EQ(joined->counts.regions, 1);
  EXPECT_EQ(FusedNodesOf(joined->partition.micro[0]), 0) << "Neg has nobody left";
  EXPECT_EQ(joined->partition.micro[0].num_nodes(), 2);
  const TakesProduct refuses = [](const Graph&) { return false; };
  const auto refused = FuseNodes(partition, kStepRules, refuses);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(FusedNodesOf(refused->partition.micro[0]), 1);
  // A product that is summed over the micro-batches is written anyway.
  testing::AddSum(partition, "product", "sum_product", 0, 1);
  const auto kept = FuseNodes(partition, kStepRules, takes);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(FusedNodesOf(kept->partition.micro[0]), 1);
}

// ---- Gradients of attention.

// A micro graph with the gradients of plain attention, as "d0", "d1" and "d2".
Partition AttentionPartition() {
  testing::OpCase attention;
  attention.op = "Attention";
  attention.outputs = {true};
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    attention.inputs.push_back(testing::RandomTensor({4, 2, 3, 8}, seed, -1, 1, DType::kBfloat16));
  }
  Partition partition;
  auto gradient = testing::BuildGradientGraph(attention, {0, 1, 2});
  EXPECT_TRUE(gradient.ok()) << gradient.status();
  Graph& micro = partition.micro.emplace_back(std::move(*gradient->graph));
  for (int i = 0; i < 3; ++i) {
    micro.RenameValue(gradient->input_gradients[i], "d" + std::to_string(i));
    micro.AddOutput(gradient->input_gradients[i]);
  }
  for (const NodeId id : micro.node_ids()) {
    if (micro.node(id).op == "SoftmaxGrad") {
      micro.RenameValue(micro.node(id).outputs[0], "of_scores");
    }
  }
  partition.micro_batches = {{.index = 0, .first = 0, .samples = 4, .graph = 0}};
  return partition;
}

absl::StatusOr<bool> AnyAttention(const AttentionForm&, const Node&) { return true; }

TEST(JoinAttentionTest, IsDoneInACopy) {
  const Partition partition = AttentionPartition();
  const auto joined = JoinAttention(partition, AnyAttention);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->gradients, 1);
  const Graph& micro = joined->partition.micro[0];
  const auto dq = micro.FindValue("d0");
  ASSERT_TRUE(dq.has_value());
  EXPECT_EQ(micro.node(micro.value(*dq).producer).op, kAttentionGradOp);
  EXPECT_FALSE(micro.FindValue("of_scores").has_value());
  EXPECT_TRUE(partition.micro[0].FindValue("of_scores").has_value());
}

TEST(JoinAttentionTest, WhatIsSummedStays) {
  Partition partition = AttentionPartition();
  Accumulation& sum = partition.accumulations.emplace_back();
  sum.micro_output = "of_scores";
  const auto joined = JoinAttention(partition, AnyAttention);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->gradients, 0);
}

// ---- A step with fused nodes.

// Runs the parts of a fused node by their own kernels, on the CPU and the fake device.
class PartsKernel final : public Kernel {
 public:
  static absl::StatusOr<std::unique_ptr<Kernel>> Prepare(const PrepareContext& context) {
    auto made = std::make_unique<PartsKernel>();
    made->body_ = FusedBodyOf(context.node()).Clone();
    for (const ValueId id : made->body_.value_ids()) {
      WEFT_ASSIGN_OR_RETURN(const int64_t bytes, ValueBytes(made->body_, id));
      made->values_[id].resize(static_cast<size_t>(bytes));
    }
    for (const NodeId id : made->body_.node_ids()) {
      WEFT_ASSIGN_OR_RETURN(
          const NodeContext part,
          NodeContext::Create(made->body_, made->body_.node(id), {&context.device(), 1, false}));
      WEFT_ASSIGN_OR_RETURN(made->kernels_[id], KernelRegistry::Global().Prepare(part));
    }
    for (int i = 0; i < context.num_inputs(); ++i) {
      if (context.HasInput(i)) made->given_.push_back(i);
    }
    return made;
  }

  absl::Status Run(const KernelContext& run) override {
    for (size_t k = 0; k < given_.size(); ++k) {
      std::vector<char>& value = values_.at(body_.inputs()[k]);
      std::memcpy(value.data(), run.inputs[given_[k]], value.size());
    }
    for (const NodeId id : body_.node_ids()) {
      KernelContext part = run;
      std::vector<const void*> inputs;
      for (const ValueId input : body_.node(id).inputs) inputs.push_back(values_.at(input).data());
      void* const output = values_.at(body_.node(id).outputs[0]).data();
      part.inputs = inputs.data();
      part.outputs = &output;
      WEFT_RETURN_IF_ERROR(kernels_.at(id)->Run(part));
    }
    for (size_t k = 0; k < body_.outputs().size(); ++k) {
      const std::vector<char>& value = values_.at(body_.outputs()[k]);
      std::memcpy(run.outputs[k], value.data(), value.size());
    }
    return absl::OkStatus();
  }

 private:
  Graph body_;
  std::map<ValueId, std::vector<char>> values_;
  std::map<NodeId, std::unique_ptr<Kernel>> kernels_;
  std::vector<int> given_;
};

WEFT_REGISTER_KERNEL(kWeftDomain, kFusedOp, DeviceKind::kCpu, PartsKernel::Prepare);
[[maybe_unused]] const bool cpu_fuses = RegisterFusionRules(DeviceKind::kCpu, kStepRules);
[[maybe_unused]] const bool fake_fuses = RegisterFusionRules(DeviceKind::kFake, kStepRules);

class FusedStepTest : public testing::LoweringFixture {};
INSTANTIATE_TEST_SUITE_P(Devices, FusedStepTest, testing::LoweringDevices(),
                         testing::LoweringDeviceName);

TEST_P(FusedStepTest, HasTheSumsOfItsParts) {
  Partition partition = testing::NewPartition(3, [](GraphBuilder& b) {
    testing::Scaled(b, "twice", "x", 2);
    const ValueId y = b.Op("Neg", {testing::Find(b, "twice")});
    b.Name(y, "y");
    const ValueId z = b.Op("Add", {y, testing::Find(b, "x")});
    b.Name(z, "z");
  });
  testing::AddSum(partition, "y", "sum_y", 0, 3);
  testing::AddSum(partition, "z", "sum_z", 0, 3);
  testing::ReportSums(partition);
  std::string schedule;
  const LoweringObserver observer = [&](std::string_view pass, std::string_view text) {
    if (pass == "schedule") schedule = std::string(text);
  };
  ExecutorEnvironment environment = Environment();
  partition.fuses_nodes = true;
  environment.observe_lowering = &observer;
  const auto program = CompileStep(partition, environment);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(schedule, ::testing::HasSubstr("(ai.weft::Fused) mb2"));
  EXPECT_THAT(schedule, ::testing::Not(::testing::HasSubstr("(Neg)")));
  // Sample i is (i + 1) (1, 10): y = -2 x, z = -x.
  const auto result = (*program)->Run({});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(Report(result, "got_sum_y"), ::testing::ElementsAre(-12, -120));
  EXPECT_THAT(Report(result, "got_sum_z"), ::testing::ElementsAre(-6, -60));
  // Without being asked nothing is fused.
  partition.fuses_nodes = false;
  ASSERT_TRUE(CompileStep(partition, environment).ok());
  EXPECT_THAT(schedule, ::testing::HasSubstr("(Neg)"));
}

// The device is asked where the partition wants cuDNN, and there alone.
TEST_P(FusedStepTest, AsksTheDeviceAboutGradientsOfAttention) {
  Partition partition = AttentionPartition();
  ExecutorEnvironment environment = Environment();
  const DeviceTakesAttention refuses = [](Device&, const AttentionForm& form,
                                          const Node&) -> absl::StatusOr<bool> {
    return absl::FailedPreconditionError("asked about " + form.query.ToString());
  };
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kFake}) {
    RegisterAttentionTaker(kind, refuses);
  }
  partition.uses_cudnn = true;
  const absl::Status asked = CompileStep(partition, environment).status();
  EXPECT_EQ(asked.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(asked.message()), ::testing::HasSubstr("asked about [4,2,3,8]"));
  partition.uses_cudnn = false;
  const absl::Status without = CompileStep(partition, environment).status();
  EXPECT_THAT(std::string(without.message()), ::testing::Not(::testing::HasSubstr("asked about")));
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kFake}) {
    RegisterAttentionTaker(kind, nullptr);
  }
}

// The device is asked about products where the partition wants fused nodes and is not strict.
TEST_P(FusedStepTest, AsksTheDeviceAboutProducts) {
  Partition partition = ProductPartition();
  testing::AddSum(partition, "y", "sum_y", 0, 1);
  testing::ReportSums(partition);
  ExecutorEnvironment environment = Environment();
  const DeviceTakesProduct refuses = [](Device&, const Graph& body,
                                        bool tf32) -> absl::StatusOr<bool> {
    return absl::FailedPreconditionError(
        absl::StrCat("asked about ", FusedParts(body), tf32 ? " in TF32" : ""));
  };
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kFake}) {
    RegisterProductTaker(kind, refuses);
  }
  partition.fuses_nodes = true;
  partition.tf32 = true;
  const absl::Status asked = CompileStep(partition, environment).status();
  EXPECT_EQ(asked.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(asked.message()),
              ::testing::AllOf(::testing::HasSubstr("(MatMul), "), ::testing::HasSubstr("(Add)"),
                               ::testing::HasSubstr("in TF32")));
  partition.strict = true;
  EXPECT_TRUE(CompileStep(partition, environment).ok());
  partition.strict = partition.fuses_nodes = false;
  EXPECT_TRUE(CompileStep(partition, environment).ok());
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kFake}) {
    RegisterProductTaker(kind, nullptr);
  }
}

}  // namespace
}  // namespace weft
