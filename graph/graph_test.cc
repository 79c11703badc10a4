#include "graph/graph.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/testing/test_ops.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using weft::testing::AddInts;
using weft::testing::AddOp;
using weft::testing::Floats;
using weft::testing::FloatsOf;

std::vector<std::string> NamesOf(const Graph& graph, const std::vector<NodeId>& ids) {
  std::vector<std::string> names;
  for (const NodeId id : ids) names.push_back(graph.node(id).name);
  return names;
}

// y = -(x + w); z = x + y.
Graph SmallGraph() {
  Graph graph;
  const ValueId x = graph.AddInput("x", Floats({"N", 2}));
  const ValueId w = graph.AddVariable("w", Floats({1, 2}), FloatsOf({1, 2}, 3), true);
  const ValueId sum = AddOp(graph, "sum", "Add", {x, w});
  const ValueId y = AddOp(graph, "y", "Negate", {sum});
  const ValueId z = AddOp(graph, "z", "Add", {x, y});
  graph.AddOutput(z);
  return graph;
}

TEST(Graph, DebugStringShowsEveryPart) {
  Graph graph = SmallGraph();
  graph.AddInput("rate", Floats({}), InputRole::kStep);
  graph.AddConstant("c", Tensor::Scalar<float>(2));
  graph.AddVariable("m", Floats({1, 2}), Tensor(), false);
  graph.mutable_variables()[1].slot_of = "w";
  Graph::NodeSpec spec;
  spec.name = "update";
  spec.domain = "test";
  spec.op = "Strict";
  spec.attributes = {{"level", int64_t{3}},
                     {"name", std::string("a\"b")},
                     {"rate", 0.5f},
                     {"sizes", std::vector<int64_t>{1, 2}},
                     {"value", Tensor::Scalar<float>(1)}};
  spec.inputs = {*graph.FindValue("w"), kNoValue};
  spec.outputs = {"w_new", ""};
  spec.keep_empty_outputs = true;
  spec.phase = Phase::kUpdate;
  spec.stage = StageId(1);
  graph.AddNode(std::move(spec));
  graph.SetVariableUpdate("w", *graph.FindValue("w_new"));

  EXPECT_EQ(graph.DebugString(),
            "input %x: float32[N,2]\n"
            "input %rate: float32[] per step\n"
            "variable %w: float32[1,2] trainable\n"
            "variable %m: float32[1,2] slot of w\n"
            "constant %c = float32[]{2}\n"
            "%sum: float32[N,2] = test::Add(%x, %w)  # sum_node\n"
            "%y: float32[N,2] = test::Negate(%sum)  # y_node\n"
            "%z: float32[N,2] = test::Add(%x, %y)  # z_node\n"
            "%w_new: invalid[unknown rank], _ = test::Strict(%w, _) {level=3, name=\"a\\\"b\", "
            "rate=0.5, sizes=[1,2], value=float32[]{1}}  # update [update, stage 1]\n"
            "update %w <- %w_new\n"
            "output %z\n");
}

TEST(Graph, TakenAndEmptyNamesGetSuffixes) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Floats({1}));
  const ValueId again = graph.AddInput("x", Floats({1}));
  EXPECT_EQ(graph.value(again).name, "x_1");
  Graph::NodeSpec spec;
  spec.domain = "test";
  spec.op = "Negate";
  spec.inputs = {x};
  spec.outputs = {""};
  const NodeId first = graph.AddNode(spec);
  const NodeId second = graph.AddNode(spec);
  EXPECT_EQ(graph.node(first).name, "Negate");
  EXPECT_EQ(graph.node(second).name, "Negate_1");
  EXPECT_EQ(graph.value(graph.node(second).outputs[0]).name, "Negate_1_out0");
}

TEST(Graph, ManyEqualNamesStayUniqueAndFast) {
  Graph graph;
  for (int i = 0; i < 20000; ++i) graph.AddInput("x", Floats({1}));
  // As many names as values: all are found under their own.
  for (const ValueId id : graph.value_ids()) EXPECT_EQ(graph.FindValue(graph.value(id).name), id);
}

TEST(Graph, OrderPutsProducersFirstAndSmallIdsBefore) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Floats({1}));
  const ValueId late = AddOp(graph, "late", "Negate", {x});
  const ValueId early = AddOp(graph, "early", "Negate", {x});
  AddOp(graph, "free", "Negate", {x});
  graph.node(graph.value(late).producer).inputs = {early};
  const auto order = graph.TopologicalOrder();
  ASSERT_TRUE(order.ok());
  EXPECT_THAT(NamesOf(graph, *order), ElementsAre("early_node", "late_node", "free_node"));
}

// Nodes read any others: of those whose producers have come, the first by id is next.
TEST(Graph, OrderIsThatOfTakingTheSmallestReadyIdEachTime) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    Graph graph;
    const ValueId x = graph.AddInput("x", Floats({1}));
    std::vector<ValueId> made;
    const int nodes = 1 + static_cast<int>(random() % 20);
    for (int i = 0; i < nodes; ++i) made.push_back(AddOp(graph, "v", "Add", {x, x}));
    // Producers come first in a hidden order: that of the ids in every fourth round.
    std::vector<int> hidden(nodes);
    std::iota(hidden.begin(), hidden.end(), 0);
    if (round % 4 != 0) std::shuffle(hidden.begin(), hidden.end(), random);
    for (int i = 1; i < nodes; ++i) {
      for (ValueId& input : graph.node(graph.value(made[hidden[i]]).producer).inputs) {
        if (random() % 3 != 0) input = made[hidden[random() % i]];
      }
    }
    std::vector<NodeId> expected;
    std::vector<bool> done(nodes);
    while (expected.size() < static_cast<size_t>(nodes)) {
      for (int id = 0; id < nodes; ++id) {
        const std::vector<ValueId>& inputs = graph.node(NodeId(id)).inputs;
        const bool is_ready = std::all_of(inputs.begin(), inputs.end(), [&](ValueId input) {
          return input == x || done[graph.value(input).producer.value];
        });
        if (done[id] || !is_ready) continue;
        done[id] = true;
        expected.push_back(NodeId(id));
        break;
      }
    }
    EXPECT_EQ(*graph.TopologicalOrder(), expected);
  }
}

TEST(Graph, CycleErrorNamesTheNodesOfTheCycleAlone) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Floats({1}));
  const ValueId before = AddOp(graph, "before", "Negate", {x});
  const ValueId a = AddOp(graph, "a", "Add", {before, before});
  const ValueId b = AddOp(graph, "b", "Negate", {a});
  AddOp(graph, "after", "Negate", {b});
  graph.node(graph.value(a).producer).inputs[1] = b;
  const absl::Status status = graph.TopologicalOrder().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      status.message(),
      "the graph has a cycle: 'b_node' (Negate) -> 'a_node' (Add) -> 'b_node'; a graph must be "
      "acyclic");
}

TEST(Graph, NodeThatReadsItselfIsACycle) {
  Graph graph;
  const ValueId a = AddOp(graph, "a", "Negate", {graph.AddInput("x", Floats({1}))});
  graph.node(graph.value(a).producer).inputs[0] = a;
  EXPECT_THAT(graph.TopologicalOrder().status().message(),
              HasSubstr("'a_node' (Negate) -> 'a_node'"));
}

TEST(Graph, ChainOfAMillionNodesIsOrdered) {
  Graph graph;
  ValueId value = graph.AddInput("x", Floats({1}));
  constexpr int kNodes = 1000000;
  for (int i = 0; i < kNodes; ++i) {
    Graph::NodeSpec spec;
    spec.name = "n" + std::to_string(i);
    spec.domain = "test";
    spec.op = "Negate";
    spec.inputs = {value};
    spec.outputs = {"v" + std::to_string(i)};
    value = graph.node(graph.AddNode(std::move(spec))).outputs[0];
  }
  const auto order = graph.TopologicalOrder();
  ASSERT_TRUE(order.ok());
  ASSERT_EQ(order->size(), kNodes);
  EXPECT_EQ(order->back(), NodeId(kNodes - 1));
  // The longest cycle there can be.
  graph.node(NodeId(0)).inputs[0] = value;
  EXPECT_THAT(graph.TopologicalOrder().status().message(), HasSubstr("... 999994 more"));
}

TEST(Graph, ReplaceUsesReachesNodesOutputsAndUpdates) {
  Graph graph = SmallGraph();
  const ValueId y = *graph.FindValue("y");
  const ValueId z = *graph.FindValue("z");
  const ValueId sum = *graph.FindValue("sum");
  graph.SetVariableUpdate("w", y);
  graph.AddOutput(y);
  graph.ReplaceUses(y, sum);
  EXPECT_EQ(graph.node(graph.value(z).producer).inputs[1], sum);
  EXPECT_THAT(graph.outputs(), ElementsAre(z, sum));
  EXPECT_EQ(graph.FindVariable("w")->update, sum);
}

TEST(Graph, ManyReplacementsFollowChains) {
  Graph graph = SmallGraph();
  const ValueId x = *graph.FindValue("x");
  const ValueId sum = *graph.FindValue("sum");
  const ValueId y = *graph.FindValue("y");
  std::vector<ValueId> replacement(graph.value_capacity());
  replacement[y.value] = sum;
  replacement[sum.value] = x;
  graph.ReplaceUses(replacement);
  EXPECT_THAT(graph.node(*graph.FindNode("z_node")).inputs, ElementsAre(x, x));
}

TEST(Graph, RemovedNodeLeavesAHoleAndFreesItsNames) {
  Graph graph = SmallGraph();
  const NodeId z = *graph.FindNode("z_node");
  graph.SetOutputs({});
  graph.RemoveNode(z);
  EXPECT_EQ(graph.num_nodes(), 2);
  EXPECT_EQ(graph.node_capacity(), 3);
  EXPECT_FALSE(graph.is_live(z));
  EXPECT_EQ(graph.FindValue("z"), std::nullopt);
  EXPECT_EQ(graph.value(graph.AddInput("z", Floats({1}))).name, "z");
}

TEST(Graph, MakeConstantTakesInputsVariablesAndNodeOutputs) {
  Graph graph = SmallGraph();
  graph.AddVariable("v", Floats({1}), Tensor(), false);
  const ValueId x = *graph.FindValue("x");
  const ValueId w = *graph.FindValue("w");
  const ValueId sum = *graph.FindValue("sum");
  for (const ValueId id : {x, w, sum}) {
    graph.MakeConstant(id, FloatsOf({4, 2}, 1));
    EXPECT_EQ(graph.value(id).source, ValueSource::kConstant);
    EXPECT_EQ(graph.value(id).type.ToString(), "float32[4,2]");
  }
  EXPECT_TRUE(graph.inputs().empty());
  EXPECT_EQ(graph.FindVariable("w"), nullptr);
  EXPECT_EQ(graph.VariableOf(*graph.FindValue("v"))->name, "v");
  EXPECT_THAT(graph.node(*graph.FindNode("sum_node")).outputs, ElementsAre(kNoValue));
}

TEST(Graph, VariablesAreFoundAfterRemovalAndDirectEditing) {
  Graph graph;
  for (const char* name : {"a", "b", "c"}) graph.AddVariable(name, Floats({1}), Tensor(), true);
  const ValueId c = *graph.FindValue("c");
  graph.RemoveVariable("a");
  EXPECT_EQ(graph.VariableOf(c)->name, "c");
  std::swap(graph.mutable_variables()[0], graph.mutable_variables()[1]);
  EXPECT_EQ(graph.VariableOf(c)->name, "c");
  graph.mutable_variables()[0].name = "other";
  EXPECT_EQ(graph.FindVariable("other")->value, c);
  EXPECT_EQ(graph.FindVariable("c"), nullptr);
}

TEST(Graph, CloneIsDeepButSharesTensors) {
  Graph graph = SmallGraph();
  auto body = std::make_shared<Graph>();
  body->name = "body";
  graph.node(NodeId(0)).attributes.Set("body", body);
  Graph copy = graph.Clone();
  EXPECT_EQ(copy.DebugString(), graph.DebugString());
  EXPECT_EQ(copy.variables()[0].initial.buffer(), graph.variables()[0].initial.buffer());
  const Attribute* copied = copy.node(NodeId(0)).attributes.Find("body");
  EXPECT_NE(std::get<std::shared_ptr<Graph>>(*copied), body);
  EXPECT_EQ(std::get<std::shared_ptr<Graph>>(*copied)->name, "body");
  copy.RenameValue(*copy.FindValue("x"), "renamed");
  EXPECT_TRUE(graph.FindValue("x").has_value());
  EXPECT_FALSE(copy.FindValue("x").has_value());
}

TEST(Graph, UsesAreInNodeAndInputOrder) {
  Graph graph = SmallGraph();
  const auto uses = graph.BuildUses();
  const std::vector<Graph::Use>& of_x = uses[graph.FindValue("x")->value];
  ASSERT_EQ(of_x.size(), 2u);
  EXPECT_EQ(graph.node(of_x[0].node).name, "sum_node");
  EXPECT_EQ(graph.node(of_x[1].node).name, "z_node");
  EXPECT_EQ(of_x[1].input_index, 0);
}

TEST(Graph, CompactRenumbersAndKeepsTheMeaning) {
  Graph graph = SmallGraph();
  const ValueId x = *graph.FindValue("x");
  const ValueId sum = *graph.FindValue("sum");
  graph.AddConstant("unused", Tensor::Scalar<float>(1));
  const ValueId first = AddOp(graph, "first", "Negate", {x});
  graph.node(*graph.FindNode("sum_node")).inputs[0] = first;  // the last node comes first now
  graph.ReplaceUses(*graph.FindValue("y"), sum);
  graph.RemoveNode(*graph.FindNode("y_node"));
  graph.SetVariableUpdate("w", sum);
  const std::string after = [&graph] {
    Graph copy = graph.Clone();
    copy.RemoveConstant(*copy.FindValue("unused"));
    return copy.DebugString();
  }();

  ASSERT_TRUE(graph.Compact().ok());
  EXPECT_EQ(graph.DebugString(), after);
  EXPECT_EQ(graph.node_capacity(), 3);
  EXPECT_EQ(graph.value_capacity(), 5);
  EXPECT_THAT(NamesOf(graph, graph.node_ids()), ElementsAre("first_node", "sum_node", "z_node"));
  for (const ValueId id : graph.value_ids()) EXPECT_EQ(graph.FindValue(graph.value(id).name), id);
  for (const NodeId id : graph.node_ids()) EXPECT_EQ(graph.FindNode(graph.node(id).name), id);
  EXPECT_EQ(graph.VariableOf(graph.variables()[0].value)->name, "w");
}

TEST(Graph, DroppedOutputKeepsThePlaces) {
  Graph graph;
  Graph::NodeSpec spec;
  spec.domain = "test";
  spec.op = "Split";
  spec.inputs = {graph.AddInput("x", Floats({4}))};
  spec.outputs = {"first", "second"};
  const NodeId split = graph.AddNode(std::move(spec));
  graph.DropOutput(split, 0);
  EXPECT_THAT(graph.node(split).outputs, ElementsAre(kNoValue, *graph.FindValue("second")));
}

}  // namespace
}  // namespace weft
