// BatchNormalization over the samples of all replicas, and its gradient. There is one replica here:
// what it sums over replicas is its own, and the gradient is that of the nodes as they were.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "graph/expansion.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "gtest/gtest.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 6;
constexpr DType kDouble = DType::kFloat64;

// x [6,3] is normalized twice with the same scale: first by "given/BatchNormalization" with
// statistics that are inputs, then by "own/BatchNormalization" with those of the samples. The
// gradient is of the latter.
class WholeBatchNormalization : public ::testing::Test {
 protected:
  WholeBatchNormalization() {
    const ValueId x = Input("x", {kSamples, 3}, -3, 5);
    const ValueId dy = Input("dy", {kSamples, 3}, -1, 1);
    const ValueId scale = Input("scale", {3}, 0.5, 1.5);
    const std::vector<ValueId> inputs = {x, scale, Input("bias", {3}, -1, 1),
                                         Input("mean", {3}, -1, 1), Input("variance", {3}, 1, 2)};
    GraphBuilder forward(graph_);
    forward.set_name_prefix("given/");
    graph_.AddOutput(forward.Op("BatchNormalization", inputs));
    forward.set_name_prefix("own/");
    const ValueId y = forward.Op("BatchNormalization", inputs, {{"training_mode", int64_t{1}}});
    graph_.AddOutput(y);
    forward_ = graph_.value(y).producer;
    GraphBuilder backward(graph_);
    backward.set_phase(Phase::kBackward);
    backward.set_origin({graph_.node(forward_).name, "y", true});
    backward.set_name_prefix("grad/");
    const std::vector<ValueId> gradients =
        backward.Ops(std::string(kWeftDomain), "BatchNormalizationGrad", {dy, x, scale},
                     {{"training_mode", int64_t{1}}}, {true, true, true});
    EXPECT_TRUE(forward.status().ok()) << forward.status();
    EXPECT_TRUE(backward.status().ok()) << backward.status();
    for (const ValueId gradient : gradients) graph_.AddOutput(gradient);
    backward_ = graph_.value(gradients[0]).producer;
  }

  ValueId Input(const std::string& name, const Shape& shape, double low, double high) {
    const ValueId value = graph_.AddInput(name, {ValueKind::kTensor, kDouble, shape});
    feeds_[value] = RandomTensor(shape, static_cast<uint64_t>(value.value), low, high, kDouble);
    return value;
  }

  // Whether the node became nodes of the whole batch.
  absl::StatusOr<bool> Replace(NodeId id) {
    const WholeBatchFn& whole_batch = graph_.node(id).schema->whole_batch();
    const BatchPart part = {kSamples, kSamples, 1};
    return ReplaceNode(graph_, id,
                       [&](ExpandContext& context) { return whole_batch(context, part); });
  }

  // The sum over one replica is what it sums.
  void RemoveSums() {
    for (const NodeId id : graph_.node_ids()) {
      if (graph_.node(id).op != "SumOverReplicas") continue;
      const std::vector<ValueId> sums = graph_.node(id).outputs;
      const std::vector<ValueId> parts = graph_.node(id).inputs;
      for (size_t i = 0; i < sums.size(); ++i) {
        if (sums[i].valid()) graph_.ReplaceUses(sums[i], parts[i]);
      }
      graph_.RemoveNode(id);
    }
  }

  std::vector<Tensor> Outputs() {
    auto outputs = EvaluateGraph(graph_, feeds_, graph_.outputs());
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return outputs.ok() ? *std::move(outputs) : std::vector<Tensor>();
  }

  Graph graph_;
  std::map<ValueId, Tensor> feeds_;
  NodeId forward_;
  NodeId backward_;
};

// The gradient took the statistics of the first node that reads the same x and scale.
TEST_F(WholeBatchNormalization, TheGradientHasTheStatisticsOfItsOwnForwardNode) {
  const std::vector<Tensor> expected = Outputs();
  ASSERT_EQ(expected.size(), 5u);
  for (const NodeId id : {forward_, backward_}) {
    const auto replaced = Replace(id);
    ASSERT_TRUE(replaced.ok()) << replaced.status();
    ASSERT_TRUE(*replaced);
  }
  RemoveSums();
  const std::vector<Tensor> actual = Outputs();
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(TensorsNear(actual[i], expected[i], {.of_magnitude = 1e-9})) << i;
  }
}

TEST_F(WholeBatchNormalization, TheGradientStaysWhereTheForwardNodeDoes) {
  const auto replaced = Replace(backward_);
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  EXPECT_FALSE(*replaced);
}

TEST_F(WholeBatchNormalization, AGradientOfNoNodeIsRefused) {
  graph_.node(backward_).origin.forward_node = "other";
  const auto replaced = Replace(backward_);
  EXPECT_EQ(replaced.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(replaced.status().message()),
              AllOf(HasSubstr("grad/BatchNormalizationGrad"),
                    HasSubstr("neither its forward node 'other' is in the graph")));
}

}  // namespace
}  // namespace weft::testing
