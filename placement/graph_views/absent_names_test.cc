#include "placement/graph_views/absent_names.h"

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(DropAbsentNamesTest, KeepsWhatTheGraphHas) {
  Graph graph;
  const ValueType type{ValueKind::kTensor, DType::kFloat32, Shape{2, 2}};
  const ValueId x = graph.AddInput("x", type);
  const ValueId w = graph.AddVariable("w", type, Tensor::Of<float>({2, 2}, {1, 2, 3, 4}), true);
  Graph::NodeSpec spec;
  spec.name = "block/up";
  spec.op = "MatMul";
  spec.inputs = {x, w};
  spec.outputs = {"y"};
  graph.AddNode(std::move(spec));
  Plan plan;
  plan.stages = {{"block/up", 0}, {"block/*", 0}, {"gone", 1}, {"other/*", 1}};
  plan.tensor_shardings = {{"w", AxisSharding::Split(0)},
                           {"y", AxisSharding::Split(1)},
                           {"gone", AxisSharding::Split(0)}};
  DropAbsentNames(graph, plan);
  EXPECT_THAT(plan.stages, ElementsAre(Pair("block/*", 0), Pair("block/up", 0)));
  EXPECT_THAT(plan.tensor_shardings,
              ElementsAre(Pair("w", AxisSharding::Split(0)), Pair("y", AxisSharding::Split(1))));
}

}  // namespace
}  // namespace weft
