// Which nodes become one, and that a graph stays what it was: small graphs by hand, and random ones
// against checks by brute force.
#include "ops/fusion/fuse_regions.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/expansion.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "graph/verifier.h"
#include "gtest/gtest.h"
#include "ops/fusion/fused_node.h"
#include "ops/fusion/region_finder.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/test_tensors.h"
#include "platform/random.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using weft::testing::EvaluateGraph;
using weft::testing::RandomTensor;

FusedRole RoleOfTestNode(const Graph& /*graph*/, const Node& node) {
  static const auto* const elementwise =
      new std::set<std::string>{"Add", "Mul", "Sub", "Relu", "Neg", "Tanh"};
  if (elementwise->contains(node.op)) return FusedRole::kElementwise;
  return node.op == "ReduceSum" ? FusedRole::kReduction : FusedRole::kNone;
}

// No limit that these graphs would reach.
constexpr FusionRules kTestRules{
    .role_of = RoleOfTestNode, .max_nodes = 100, .max_inputs = 100, .max_outputs = 100};

class FuseRegionsTest : public ::testing::Test {
 protected:
  ValueId Input(const std::string& name, const Shape& shape) {
    return graph_.AddInput(name, {ValueKind::kTensor, DType::kFloat32, shape});
  }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    const ValueId value = builder_.Op(op, std::move(inputs), std::move(attributes));
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
    return value;
  }
  ValueId SumOfRows(ValueId x) { return Op("ReduceSum", {x, builder_.Ints({-1})}); }
  void Output(ValueId value, const std::string& name) {
    builder_.Name(value, name);
    graph_.AddOutput(value);
  }
  const Node& ProducerOf(const std::string& value) {
    return graph_.node(graph_.value(*graph_.FindValue(value)).producer);
  }

  FusionCounts Fused(const std::vector<int>& colors = {}) {
    const auto counts = FuseRegions(graph_, kTestRules, colors);
    EXPECT_TRUE(counts.ok()) << counts.status();
    EXPECT_TRUE(VerifyGraph(graph_).ok()) << VerifyGraph(graph_);
    return counts.ok() ? *counts : FusionCounts();
  }
  std::vector<std::string> PartsOf(const Node& node) {
    std::vector<std::string> ops;
    if (node.op != kFusedOp) return ops;
    const Graph& body = FusedBodyOf(node);
    for (const NodeId id : body.node_ids()) ops.push_back(body.node(id).op);
    return ops;
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
};

TEST_F(FuseRegionsTest, AChainIsOneNodeWithTheNamesOfItsOutputs) {
  const ValueId x = Input("x", Shape({4, 6}));
  const ValueId bias = Input("bias", Shape({6}));
  const ValueId sum = Op("Add", {x, bias});
  const ValueId positive = Op("Relu", {sum});
  Output(Op("Mul", {positive, sum}), "y");
  const FusionCounts counts = Fused();
  EXPECT_EQ(counts.nodes, 3);
  EXPECT_EQ(counts.regions, 1);
  EXPECT_EQ(graph_.num_nodes(), 1);
  EXPECT_THAT(PartsOf(ProducerOf("y")), ElementsAre("Add", "Relu", "Mul"));
  EXPECT_EQ(graph_.value(graph_.outputs()[0]).name, "y");
  EXPECT_THAT(FusedParts(FusedBodyOf(ProducerOf("y"))), HasSubstr("(Relu), '"));
}

TEST_F(FuseRegionsTest, AValueThatOthersNeedIsAnOutput) {
  const ValueId x = Input("x", Shape({4, 6}));
  const ValueId y = Op("Relu", {x});
  Output(y, "y");
  Output(Op("Tanh", {Op("Neg", {y})}), "z");
  Fused();
  EXPECT_EQ(graph_.num_nodes(), 1);
  EXPECT_EQ(ProducerOf("y").id, ProducerOf("z").id);
  EXPECT_EQ(ProducerOf("z").outputs.size(), 2u);
}

// Between two parts lies a node that stays: together they would wait for themselves.
TEST_F(FuseRegionsTest, APathThroughAnotherNodeKeepsNodesApart) {
  const ValueId x = Input("x", Shape({6, 6}));
  const ValueId y = Op("Relu", {x});
  const ValueId product = Op("MatMul", {y, y});
  Output(Op("Add", {product, y}), "z");
  EXPECT_EQ(Fused().regions, 0);
}

TEST_F(FuseRegionsTest, AReductionOfTheLastAxesEndsARegion) {
  const ValueId x = Input("x", Shape({4, 6}));
  const ValueId square = Op("Mul", {x, x});
  const ValueId total = SumOfRows(square);
  Output(Op("Sub", {x, total}), "centered");  // reads the reduction
  const FusionCounts counts = Fused();
  EXPECT_EQ(counts.regions, 1);
  EXPECT_THAT(PartsOf(ProducerOf(graph_.value(total).name)), ElementsAre("Mul", "ReduceSum"));
  EXPECT_EQ(ProducerOf("centered").op, "Sub");
}

TEST_F(FuseRegionsTest, OneReductionIsEnough) {
  const ValueId x = Input("x", Shape({4, 6}));
  const ValueId a = Op("Neg", {x});
  Output(SumOfRows(a), "first");
  Output(SumOfRows(Op("Tanh", {a})), "second");
  const FusionCounts counts = Fused();
  EXPECT_EQ(counts.nodes, 3);
  EXPECT_NE(ProducerOf("first").id, ProducerOf("second").id);
}

TEST_F(FuseRegionsTest, ShapesPhasesAndColorsKeepNodesApart) {
  const ValueId x = Input("x", Shape({6}));
  const ValueId wide = Input("wide", Shape({4, 6}));
  Output(Op("Add", {Op("Neg", {x}), wide}), "other_shape");
  const ValueId forward = Op("Neg", {wide});
  builder_.set_phase(Phase::kBackward);
  builder_.set_origin({.forward_node = graph_.node(graph_.value(forward).producer).name,
                       .logical_value = "",
                       .is_gradient = false});
  const ValueId backward = Op("Relu", {forward});
  Output(Op("Tanh", {backward}), "y");
  EXPECT_EQ(Fused({0, 0, 0, 0, 1}).regions, 0);
  const FusionCounts counts = Fused();
  EXPECT_EQ(counts.regions, 1);
  EXPECT_THAT(PartsOf(ProducerOf("y")), ElementsAre("Relu", "Tanh"));
}

TEST_F(FuseRegionsTest, NoElementsAndUnknownShapesStayAlone) {
  Output(Op("Relu", {Op("Neg", {Input("none", Shape({0, 6}))})}), "y");
  const ValueId open = graph_.AddInput(
      "open", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), Dim(6)})});
  Output(Op("Relu", {Op("Neg", {open})}), "z");
  EXPECT_EQ(Fused().regions, 0);
}

// Outputs come before an operand that only the region reads; a number lies in the body.
TEST_F(FuseRegionsTest, OperandsThatMayBeWrittenOverComeFirst) {
  const ValueId x = Input("x", Shape({6, 6}));
  const ValueId bias = Input("bias", Shape({6}));
  const ValueId product = Op("MatMul", {x, x});
  const ValueId sum = Op("Add", {bias, Op("Mul", {product, builder_.Float(0.5f)})});
  Output(sum, "y");
  Output(Op("Relu", {sum}), "z");
  Fused();
  const Node& fused = ProducerOf("y");
  EXPECT_THAT(fused.inputs, ElementsAre(product, kNoValue, bias));
  EXPECT_EQ(FusedBodyOf(fused).inputs().size(), 2u);
}

// Tensors and infinities are read from memory; numbers and axes lie in the body.
TEST_F(FuseRegionsTest, OnlyNumbersAndAxesLieInTheBody) {
  const ValueId x = Input("x", Shape({4, 6}));
  const ValueId row = builder_.Constant(RandomTensor({6}, 1));
  const ValueId infinite = builder_.Float(std::numeric_limits<float>::infinity());
  const ValueId sum = Op("Add", {Op("Add", {x, row}), infinite});
  Output(SumOfRows(Op("Mul", {sum, builder_.Float(0.5f)})), "y");
  Fused();
  const Node& fused = ProducerOf("y");
  EXPECT_THAT(fused.inputs, UnorderedElementsAre(kNoValue, x, row, infinite));
}

TEST_F(FuseRegionsTest, AVariableIsWrittenOverByItsOwnUpdateAlone) {
  const ValueType type{ValueKind::kTensor, DType::kFloat32, Shape({6})};
  const ValueId w = graph_.AddVariable("w", type, RandomTensor({6}, 1), true);
  const ValueId v = graph_.AddVariable("v", type, RandomTensor({6}, 2), true);
  builder_.set_phase(Phase::kUpdate);
  const ValueId moved = Op("Add", {v, w});
  const ValueId damped = Op("Mul", {moved, builder_.Float(0.9f)});
  graph_.SetVariableUpdate("w", damped);
  EXPECT_EQ(Fused().regions, 1);
  EXPECT_THAT(graph_.node(graph_.value(damped).producer).inputs, ElementsAre(w, v));
}

TEST_F(FuseRegionsTest, ARegionHasAsManyNodesAsTheDeviceTakes) {
  ValueId x = Input("x", Shape({6}));
  for (int i = 0; i < 7; ++i) x = Op("Neg", {x});
  Output(x, "y");
  FusionRules rules = kTestRules;
  rules.max_nodes = 3;
  const auto counts = FuseRegions(graph_, rules);
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->regions, 2);
  EXPECT_EQ(counts->nodes, 6);
}

TEST_F(FuseRegionsTest, IdsMustBeInTopologicalOrder) {
  const ValueId x = Input("x", Shape({6}));
  const ValueId y = Op("Neg", {x});
  const ValueId z = Op("Relu", {x});
  graph_.node(graph_.value(y).producer).inputs[0] = z;
  const auto counts = FuseRegions(graph_, kTestRules);
  EXPECT_EQ(counts.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(counts.status().message()), HasSubstr("comes before what it reads"));
}

// ---- Random graphs.

class RandomFusionTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    RandomSequence random(RandomKey(static_cast<uint64_t>(GetParam()), "fusion"));
    GraphBuilder builder(graph_);
    std::vector<ValueId> wide;  // [6, 6]
    std::vector<ValueId> narrow = {builder.Float(0.75f)};
    const auto any = [&](const std::vector<ValueId>& of) { return of[random.Below(of.size())]; };
    for (int i = 0; i < 3; ++i) {
      wide.push_back(AddFeed("x" + std::to_string(i), Shape({6, 6}), 10 + i));
    }
    narrow.push_back(AddFeed("row", Shape({6}), 20));
    narrow.push_back(AddFeed("column", Shape({6, 1}), 21));
    const int nodes = 6 + static_cast<int>(random.Below(20));
    for (int i = 0; i < nodes; ++i) {
      constexpr const char* kOfTwo[] = {"Add", "Mul", "Sub"};
      constexpr const char* kOfOne[] = {"Relu", "Neg", "Tanh"};
      const uint64_t kind = random.Below(12);
      if (kind < 4) {
        const ValueId other = any(random.Below(3) == 0 ? narrow : wide);
        wide.push_back(builder.Op(kOfTwo[random.Below(3)], {any(wide), other}));
      } else if (kind < 8) {
        wide.push_back(builder.Op(kOfOne[random.Below(3)], {any(wide)}));
      } else if (kind < 10) {
        wide.push_back(builder.Op(random.Below(2) == 0 ? "Softmax" : "Transpose", {any(wide)}));
      } else {
        narrow.push_back(builder.Op("ReduceSum", {any(wide), builder.Ints({1})}));
      }
    }
    ASSERT_TRUE(builder.status().ok()) << builder.status();
    const auto uses = graph_.BuildUses();
    for (const NodeId id : graph_.node_ids()) {
      const ValueId output = graph_.node(id).outputs[0];
      if (uses[output.value].empty() || random.Below(8) == 0) graph_.AddOutput(output);
    }
    ASSERT_TRUE(graph_.Compact().ok());
  }

  ValueId AddFeed(const std::string& name, const Shape& shape, int seed) {
    const ValueId value = graph_.AddInput(name, {ValueKind::kTensor, DType::kFloat32, shape});
    tensors_[name] = RandomTensor(shape, seed, -1, 1);
    return value;
  }

  std::vector<Tensor> Outputs(const Graph& graph) {
    std::map<ValueId, Tensor> feeds;
    for (const ValueId input : graph.inputs()) feeds[input] = tensors_[graph.value(input).name];
    const auto outputs = EvaluateGraph(graph, feeds, graph.outputs());
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return outputs.ok() ? *outputs : std::vector<Tensor>();
  }

  // By id: which nodes are reached from a node.
  std::vector<std::set<int>> Reached() const {
    const auto uses = graph_.BuildUses();
    std::vector<std::set<int>> reached(graph_.node_capacity());
    for (int i = graph_.node_capacity() - 1; i >= 0; --i) {
      for (const ValueId output : graph_.node(NodeId(i)).outputs) {
        for (const Graph::Use& use : uses[output.value]) {
          reached[i].insert(use.node.value);
          reached[i].insert(reached[use.node.value].begin(), reached[use.node.value].end());
        }
      }
    }
    return reached;
  }

  // Whether the nodes can stand at the place of one of them, with all others where they are.
  bool HasSeat(const std::set<int>& nodes) const {
    return std::any_of(nodes.begin(), nodes.end(), [&](int seat) {
      const auto place = [&](int id) { return nodes.contains(id) ? seat : id; };
      for (const NodeId id : graph_.node_ids()) {
        for (const ValueId input : graph_.node(id).inputs) {
          if (graph_.value(input).source != ValueSource::kNode) continue;
          const int producer = graph_.value(input).producer.value;
          if (nodes.contains(producer) && nodes.contains(id.value)) continue;
          if (place(producer) >= place(id.value)) return false;
        }
      }
      return true;
    });
  }

  Graph graph_;
  std::map<std::string, Tensor> tensors_;
};

TEST_P(RandomFusionTest, RegionsAreConvexAndTheFirstIsMaximal) {
  const auto regions = FindRegions(graph_, kTestRules);
  ASSERT_TRUE(regions.ok()) << regions.status();
  const std::vector<std::set<int>> reached = Reached();
  std::set<int> taken;
  for (const Region& region : *regions) {
    std::set<int> nodes;
    for (const NodeId id : region.nodes) {
      nodes.insert(id.value);
      EXPECT_TRUE(taken.insert(id.value).second) << id.value;
    }
    for (int outside = 0; outside < graph_.node_capacity(); ++outside) {
      if (nodes.contains(outside)) continue;
      const bool is_behind = std::any_of(nodes.begin(), nodes.end(),
                                         [&](int i) { return reached[i].contains(outside); });
      const bool is_before = std::any_of(nodes.begin(), nodes.end(),
                                         [&](int i) { return reached[outside].contains(i); });
      EXPECT_FALSE(is_behind && is_before) << graph_.DebugString();
    }
  }
  if (regions->empty()) return;
  const Region& first = regions->front();
  std::set<int> nodes;
  for (const NodeId id : first.nodes) nodes.insert(id.value);
  EXPECT_TRUE(HasSeat(nodes));
  const Shape space({6, 6});
  for (const NodeId id : graph_.node_ids()) {
    const Node& node = graph_.node(id);
    if (nodes.contains(id.value) || RoleOfTestNode(graph_, node) != FusedRole::kElementwise) {
      continue;
    }
    if (*graph_.value(node.outputs[0]).type.shape.ToConcrete() != space) continue;
    const auto is_part = [&](ValueId value, bool folded) {
      const ValueDef& def = graph_.value(value);
      return def.source == ValueSource::kNode && nodes.contains(def.producer.value) &&
             (graph_.node(def.producer).op == "ReduceSum") == folded;
    };
    bool is_neighbour = false;
    bool reads_total = false;
    for (const ValueId input : node.inputs) {
      is_neighbour |= is_part(input, false);
      reads_total |= is_part(input, true);
    }
    for (const NodeId part : first.nodes) {
      const auto& inputs = graph_.node(part).inputs;
      is_neighbour |= std::count(inputs.begin(), inputs.end(), node.outputs[0]) > 0;
    }
    if (!is_neighbour || reads_total) continue;
    std::set<int> larger = nodes;
    larger.insert(id.value);
    EXPECT_FALSE(HasSeat(larger)) << node.name << " fits too:\n" << graph_.DebugString();
  }
}

TEST_P(RandomFusionTest, OrderAndResultsStay) {
  const std::vector<Tensor> expected = Outputs(graph_);
  const Graph before = graph_.Clone();
  const auto counts = FuseRegions(graph_, kTestRules);
  ASSERT_TRUE(counts.ok()) << counts.status();
  ASSERT_TRUE(VerifyGraph(graph_).ok()) << VerifyGraph(graph_) << graph_.DebugString();
  EXPECT_EQ(graph_.num_nodes(), before.num_nodes() - counts->nodes + counts->regions);
  // The order of execution is that of ids, as before.
  const auto order = graph_.TopologicalOrder();
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_TRUE(std::is_sorted(order->begin(), order->end()));
  for (const NodeId id : *order) {
    if (graph_.node(id).op == kFusedOp) continue;
    EXPECT_EQ(graph_.node(id).name, before.node(id).name);
  }
  // The parts, put back.
  for (const NodeId id : *order) {
    if (graph_.node(id).op != kFusedOp) continue;
    const absl::Status status = ExpandNode(graph_, id);
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(graph_.num_nodes(), before.num_nodes());
  const std::vector<Tensor> outputs = Outputs(graph_);
  ASSERT_EQ(outputs.size(), expected.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_TRUE(BitwiseEqual(outputs[i], expected[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomFusionTest, ::testing::Range(0, 120));

}  // namespace
}  // namespace weft
