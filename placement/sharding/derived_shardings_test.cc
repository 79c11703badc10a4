#include "placement/sharding/derived_shardings.h"

#include "graph/graph_builder.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr int64_t kRows = 40;
constexpr int64_t kWidth = 8;

ValueType Float(SymbolicShape shape) { return {ValueKind::kTensor, DType::kFloat32, shape}; }

// An embedding whose rows are read whole (by a softmax), and the gradient of its table.
Graph EmbeddingGraph() {
  Graph graph;
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kForward);
  const ValueId ids = graph.AddInput(
      "ids", {ValueKind::kTensor, DType::kInt64, SymbolicShape({Dim::Symbol("N"), Dim(4)})});
  const ValueId labels =
      graph.AddInput("labels", Float(SymbolicShape({Dim::Symbol("N"), Dim(4), Dim(kWidth)})));
  const ValueId table =
      graph.AddVariable("table", Float(SymbolicShape({Dim(kRows), Dim(kWidth)})), Tensor(), true);
  builder.set_name_prefix("embed/");
  const ValueId rows = builder.Op("Gather", {table, ids});
  const ValueId shares = builder.Op("Softmax", {rows}, {{"axis", int64_t{-1}}});
  const ValueId error = builder.WeftOp("SquaredErrorSum", {shares, labels});
  builder.set_phase(Phase::kBackward);
  builder.set_name_prefix("grad/");
  builder.set_origin({"embed/Gather", "table", true});
  const ValueId slope =
      builder.WeftOp("SquaredErrorGrad", {builder.Scalar(DType::kFloat32, 1), shares, labels});
  const ValueId shape = builder.Op("Shape", {table});
  const ValueId gradient =
      builder.WeftOp("GatherGrad", {slope, ids, shape}, {{"axis", int64_t{0}}});
  builder.Name(gradient, "table gradient");
  builder.set_phase(Phase::kUpdate);
  builder.set_name_prefix("update/");
  const ValueId sum = builder.WeftOp("Accumulate", {gradient});
  const ValueId rate = graph.AddInput("rate", Float(Shape{}), InputRole::kStep);
  graph.SetVariableUpdate("table", builder.WeftOp("SgdUpdate", {table, sum, rate}));
  builder.set_origin({});
  graph.AddOutput(builder.WeftOp("Accumulate", {error}));
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  return graph;
}

// Each rank made the whole dense gradient of the table and kept its columns of it.
TEST(DerivedShardingsTest, TheGradientOfAnEmbeddingSplitByColumnsIsMadeInColumns) {
  std::map<std::string, AxisSharding> shardings = {{"table", AxisSharding::Split(1)}};
  ASSERT_TRUE(DeriveShardings(EmbeddingGraph(), 2, 6, shardings).ok());
  ASSERT_TRUE(shardings.contains("table gradient"));
  EXPECT_EQ(shardings.at("table gradient"), AxisSharding::Split(1));
}

TEST(DerivedShardingsTest, TheGradientOfAWholeTableStaysAsItIs) {
  std::map<std::string, AxisSharding> shardings;
  ASSERT_TRUE(DeriveShardings(EmbeddingGraph(), 2, 6, shardings).ok());
  EXPECT_TRUE(shardings.empty());
}

}  // namespace
}  // namespace weft
