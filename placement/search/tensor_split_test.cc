#include "placement/search/tensor_split.h"

#include <cmath>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "placement/search/collective_costs.h"
#include "placement/sharding_propagation.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::Pair;
using Ints = std::vector<int64_t>;

// Blocks of attention and feed-forward layers for 8 samples of 128 tokens of 8192 numbers, with the
// three projections of attention in one product.
class Transformer {
 public:
  explicit Transformer(int blocks) {
    const Shape shape{8, kTokens, kWidth};
    ValueId x = graph_.AddInput("x", {ValueKind::kTensor, DType::kFloat32, shape});
    for (int i = 0; i < blocks; ++i) x = Block(x, "block" + std::to_string(i));
    builder_.set_name_prefix("");
    graph_.AddOutput(Normalize(x, "last"));
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
  }
  Graph& graph() { return graph_; }

 private:
  static constexpr int64_t kTokens = 128;
  static constexpr int64_t kWidth = 8192;
  static constexpr int64_t kHeads = 64;

  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.Op(op, std::move(inputs), std::move(attributes));
  }
  ValueId Weight(const std::string& name, const Shape& shape) {
    return graph_.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape}, Tensor(), true);
  }
  ValueId Linear(ValueId x, const std::string& name, int64_t from, int64_t to) {
    return Op("Add", {Op("MatMul", {x, Weight(name + ".weight", {from, to})}),
                      Weight(name + ".bias", {to})});
  }
  ValueId Normalize(ValueId x, const std::string& name) {
    return Op("LayerNormalization",
              {x, Weight(name + ".scale", {kWidth}), Weight(name + ".shift", {kWidth})},
              {{"axis", int64_t{-1}}});
  }
  ValueId SplitHeads(ValueId x, const Ints& order) {
    const ValueId sizes = builder_.Ints({0, 0, kHeads, kWidth / kHeads});
    return Op("Transpose", {Op("Reshape", {x, sizes})}, {{"perm", order}});
  }
  ValueId Attention(ValueId x, const std::string& name) {
    const std::vector<ValueId> parts = builder_.Ops(
        "", "Split",
        {Linear(x, name + ".qkv", kWidth, 3 * kWidth), builder_.Ints({kWidth, kWidth, kWidth})},
        {{"axis", int64_t{2}}}, {true, true, true});
    if (parts.size() != 3) return kNoValue;
    const ValueId scores =
        Op("MatMul", {SplitHeads(parts[0], {0, 2, 1, 3}), SplitHeads(parts[1], {0, 2, 3, 1})});
    const ValueId weights = Op("Softmax", {scores}, {{"axis", int64_t{-1}}});
    const ValueId mixed =
        Op("Transpose", {Op("MatMul", {weights, SplitHeads(parts[2], {0, 2, 1, 3})})},
           {{"perm", Ints{0, 2, 1, 3}}});
    return Linear(Op("Reshape", {mixed, builder_.Ints({0, 0, kWidth})}), name + ".out", kWidth,
                  kWidth);
  }
  ValueId Block(ValueId x, const std::string& name) {
    builder_.set_name_prefix(name + "/");
    x = Op("Add", {x, Attention(Normalize(x, name + ".norm1"), name)});
    const ValueId up = Linear(Normalize(x, name + ".norm2"), name + ".up", kWidth, 4 * kWidth);
    return Op("Add", {x, Linear(Op("Tanh", {up}), name + ".down", 4 * kWidth, kWidth)});
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
};

// GPUs of one host, whose links are slower than their memory by far.
CostModel Gpus(int count) {
  ClusterSpec cluster = ClusterSpec::Local(count, 1);
  for (WorkerSpec& worker : cluster.workers) {
    worker.device = DeviceKind::kCuda;
    worker.model = "A100-80GB";
  }
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
  options.wishes = split.shardings;
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
  Transformer model(1);
  const TensorSplit split = Find(model.graph(), 2).value();
  EXPECT_THAT(split.shardings, Contains(Pair("block0.qkv.weight", AxisSharding::Split(1, 3))));
  EXPECT_THAT(split.shardings, Contains(Pair("block0.out.weight", AxisSharding::Split(0))));
  EXPECT_THAT(split.shardings, Contains(Pair("block0.up.weight", AxisSharding::Split(1))));
  EXPECT_THAT(split.shardings, Contains(Pair("block0.down.weight", AxisSharding::Split(0))));
}

TEST(TensorSplitTest, ABlockNeedsTwoAllReducesForwardAndNothingElse) {
  Transformer model(3);
  for (const int shards : {2, 4}) {
    const TensorSplit split = Find(model.graph(), shards).value();
    EXPECT_THAT(Collectives(model.graph(), split, shards),
                ::testing::ElementsAre(Pair(CollectiveKind::kAllReduce, 6)))
        << shards << " shards";
  }
}

TEST(TensorSplitTest, IsTheSameEachTimeAndWithAWiderBeam) {
  Transformer model(2);
  const TensorSplit split = Find(model.graph(), 2).value();
  EXPECT_EQ(Find(model.graph(), 2)->shardings, split.shardings);
  EXPECT_NEAR(Find(model.graph(), 2, 512)->seconds, split.seconds, 0.01 * split.seconds);
}

TEST(TensorSplitTest, KeepsWhatIsGiven) {
  Transformer model(1);
  const CostModel cost = CostModel::OfSpec(ClusterSpec::Local(2, 1)).value();
  TensorSplitOptions options;
  options.workers = {0, 1};
  options.given = {{"*.up.weight", AxisSharding::Replicated()}};
  const TensorSplit split = FindTensorSplit(model.graph(), cost, options).value();
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
  const double gather = collectives.Seconds({CollectiveKind::kRing, bytes}, {0, 1});
  const double whole = layers.Seconds(cost, AxisSharding::Replicated(), AxisSharding::Replicated());
  const double sliced = layers.Seconds(cost, AxisSharding::Replicated(), AxisSharding::Split(0));
  EXPECT_NEAR((sliced - whole) / (sum + gather), 1, 0.1);
}

}  // namespace
}  // namespace weft
