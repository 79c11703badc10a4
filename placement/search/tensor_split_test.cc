#include "placement/search/tensor_split.h"

#include <cmath>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "placement/search/collective_costs.h"
#include "placement/sharding/sharding_propagation.h"
#include "placement/testing/transformer_graph.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::Pair;
using testing::TransformerGraph;

// GPUs of one host, whose links are slower than their memory by far.
CostModel Gpus(int count) {
  ClusterSpec cluster = ClusterSpec::Local(count, 1);
  for (WorkerSpec& worker : cluster.workers) {
    worker.device = DeviceKind::kCuda;
    worker.model = "A100-80GB";
  }
  cluster.links.push_back({.from = "*", .to = "", .kind = "loopback"});
  return CostModel::OfSpec(cluster).value();
}

absl::StatusOr<TensorSplit> Find(const Graph& graph, int shards,
                                 int beam = TensorSplitOptions().beam) {
  const CostModel cost = Gpus(shards);
  TensorSplitOptions options;
  for (int worker = 0; worker < shards; ++worker) options.workers.push_back(worker);
  options.beam = beam;
  return FindTensorSplit(graph, cost, options);
}

// The conversions that nodes' inputs need, once for each value.
std::map<CollectiveKind, int> Collectives(const Graph& graph, const TensorSplit& split,
                                          int shards) {
  PropagationOptions options;
  options.shards = shards;
  options.hints = split.shardings;
  const ShardingDecisions decisions = PropagateShardings(graph, options).value();
  std::set<std::pair<ValueId, std::string>> seen;
  std::map<CollectiveKind, int> collectives;
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (!input.valid() || graph.value(input).source == ValueSource::kConstant) continue;
      const AxisSharding& to = decisions.nodes[id.value].inputs[i];
      const auto kind = CollectiveOfConversion(decisions.values[input.value], to);
      if (kind.has_value() && seen.insert({input, to.ToString()}).second) ++collectives[*kind];
    }
  }
  return collectives;
}

// Shoeybi et al. 2019: columns, then rows, in attention and in the feed-forward layer.
TEST(TensorSplitTest, FindsTheSplitOfMegatron) {
  const Graph model = TransformerGraph(1);
  const TensorSplit split = Find(model, 2).value();
  EXPECT_THAT(split.shardings, Contains(Pair("block0.qkv.weight", AxisSharding::Split(1, 3))));
  EXPECT_THAT(split.shardings, Contains(Pair("block0.out.weight", AxisSharding::Split(0))));
  EXPECT_THAT(split.shardings, Contains(Pair("block0.up.weight", AxisSharding::Split(1))));
  EXPECT_THAT(split.shardings, Contains(Pair("block0.down.weight", AxisSharding::Split(0))));
}

TEST(TensorSplitTest, ABlockNeedsTwoAllReducesForwardAndNothingElse) {
  const Graph model = TransformerGraph(3);
  for (const int shards : {2, 4}) {
    const TensorSplit split = Find(model, shards).value();
    EXPECT_THAT(Collectives(model, split, shards),
                ::testing::ElementsAre(Pair(CollectiveKind::kAllReduce, 6)))
        << shards << " shards";
  }
}

TEST(TensorSplitTest, IsTheSameEachTimeAndWithAWiderBeam) {
  const Graph model = TransformerGraph(2);
  const TensorSplit split = Find(model, 2).value();
  EXPECT_EQ(Find(model, 2)->shardings, split.shardings);
  EXPECT_NEAR(Find(model, 2, 512)->seconds, split.seconds, 0.01 * split.seconds);
}

TEST(TensorSplitTest, KeepsWhatIsGiven) {
  const Graph model = TransformerGraph(1);
  const CostModel cost = CostModel::OfSpec(ClusterSpec::Local(2, 1)).value();
  TensorSplitOptions options;
  options.workers = {0, 1};
  options.given = {{"*.up.weight", AxisSharding::Replicated()}};
  const TensorSplit split = FindTensorSplit(model, cost, options).value();
  EXPECT_FALSE(split.shardings.contains("block0.up.weight"));
  EXPECT_TRUE(split.shardings.contains("block0.qkv.weight"));
}

// All that a beam of any width could find, tried one by one on two layers.
TEST(TensorSplitTest, IsAsCheapAsTheBestOfAllChoices) {
  Graph graph;
  GraphBuilder builder(graph);
  ValueId x = graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, Shape{64, 256}});
  for (const char* const name : {"w1", "w2"}) {
    const ValueId weight = graph.AddVariable(
        name, {ValueKind::kTensor, DType::kFloat32, Shape{256, 256}}, Tensor(), true);
    x = builder.Op("Relu", {builder.Op("MatMul", {x, weight})});
  }
  graph.AddOutput(x);
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  const CostModel cost = CostModel::OfSpec(ClusterSpec::Local(2, 1)).value();
  TensorSplitOptions options;
  options.workers = {0, 1};
  double best = 1e9;
  const std::vector<AxisSharding> ways = {AxisSharding::Replicated(), AxisSharding::Split(0),
                                          AxisSharding::Split(1)};
  for (const AxisSharding& first : ways) {
    for (const AxisSharding& second : ways) {
      options.given = {{"w1", first}, {"w2", second}};
      best = std::min(best, FindTensorSplit(graph, cost, options)->seconds);
    }
  }
  options.given.clear();
  EXPECT_NEAR(FindTensorSplit(graph, cost, options)->seconds, best, 1e-12);
}

// Two layers that are narrow: what is sent takes far longer than what is computed.
class NarrowLayers {
 public:
  NarrowLayers() {
    const ValueId x =
        graph_.AddInput("x", {ValueKind::kTensor, DType::kFloat32, Shape{kRows, kWidth}});
    between_ = Layer(x, "w1");
    graph_.AddOutput(Layer(between_, "w2"));
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
  }
  // Each value is read by the backward pass too.
  void AddBackwardReaders() {
    builder_.set_phase(Phase::kBackward);
    std::vector<ValueId> made;
    for (const NodeId id : graph_.node_ids()) made.push_back(graph_.node(id).outputs[0]);
    for (const ValueId value : made) builder_.Op("Relu", {value});
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
  }
  double Seconds(const CostModel& cost, const AxisSharding& w1, const AxisSharding& w2) const {
    TensorSplitOptions options;
    options.workers = {0, 1};
    options.given = {{"w1", w1}, {"w2", w2}};
    return FindTensorSplit(graph_, cost, options)->seconds;
  }
  int64_t BetweenBytes() const { return DTypeBytes(DType::kFloat32, kRows * kWidth); }

 private:
  static constexpr int64_t kRows = 65536;
  static constexpr int64_t kWidth = 64;

  ValueId Layer(ValueId x, const std::string& name) {
    const ValueId weight = graph_.AddVariable(
        name, {ValueKind::kTensor, DType::kFloat32, Shape{kWidth, kWidth}}, Tensor(), true);
    return builder_.Op("Relu", {builder_.Op("MatMul", {x, weight})});
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
  ValueId between_;
};

TEST(TensorSplitTest, ReadersOfTheBackwardPassBearNothingOfWhatTheForwardPassSends) {
  NarrowLayers layers;
  const CostModel cost = Gpus(2);
  const auto seconds = [&] {
    return layers.Seconds(cost, AxisSharding::Split(1), AxisSharding::Split(0));
  };
  const double alone = seconds();
  layers.AddBackwardReaders();
  EXPECT_NEAR(seconds(), alone, 1e-12);
}

// The second layer takes its part of a whole value, whose gradient is then made in parts.
TEST(TensorSplitTest, TheGradientOfASliceIsGathered) {
  const NarrowLayers layers;
  const CostModel cost = Gpus(2);
  CollectiveCosts collectives(cost);
  const int64_t bytes = layers.BetweenBytes();
  const double sum = collectives.Seconds({CollectiveKind::kAllReduce, bytes}, {0, 1});
  const double gather = collectives.Seconds({CollectiveKind::kGatherOrScatter, bytes}, {0, 1});
  const double whole = layers.Seconds(cost, AxisSharding::Replicated(), AxisSharding::Replicated());
  const double sliced = layers.Seconds(cost, AxisSharding::Replicated(), AxisSharding::Split(0));
  EXPECT_NEAR((sliced - whole) / (sum + gather), 1, 0.1);
}

}  // namespace
}  // namespace weft
