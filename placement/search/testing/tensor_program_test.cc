#include "placement/search/testing/tensor_program.h"

#include <random>
#include <set>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "placement/search/collective_costs.h"
#include "placement/search/tensor_split.h"
#include "placement/testing/transformer_graph.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::TransformerGraph;

// GPUs of one host.
CostModel Gpus(int count) {
  ClusterSpec cluster = ClusterSpec::Local(count, 1);
  for (WorkerSpec& worker : cluster.workers) {
    worker.device = DeviceKind::kCuda;
    worker.model = "A100-80GB";
  }
  // Where messages are cheap more is split than what these tests speak of.
  cluster.links.push_back({.from = "*", .to = "", .kind = "loopback"});
  return CostModel::OfSpec(cluster).value();
}

TensorSplitOptions OptionsFor(int shards) {
  TensorSplitOptions options;
  for (int worker = 0; worker < shards; ++worker) options.workers.push_back(worker);
  return options;
}

double SecondsOf(const Graph& graph, const CostModel& cost, const TensorSplitOptions& options,
                 const std::map<std::string, AxisSharding>& hints) {
  return TensorCosts::Create(graph, cost, options).value()->SecondsOf(hints).value();
}

// Some nodes over square matrices, of which each reads what is there already, and two weights.
class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : random_(seed) {
    const int64_t size = int64_t{64} << Pick(5);
    const ValueType type = {ValueKind::kTensor, DType::kFloat32, Shape{size, size}};
    std::vector<ValueId> values = {graph_.AddInput("x", type)};
    for (const char* const name : {"v", "w"}) {
      values.push_back(graph_.AddVariable(name, type, Tensor(), true));
    }
    for (int i = 0; i < 4; ++i) {
      // The last value, so that all hang together, and any.
      const ValueId last = values.back();
      const ValueId any = values[Pick(values.size())];
      switch (Pick(5)) {
        case 0:
          values.push_back(
              builder_.Op("Transpose", {last}, {{"perm", std::vector<int64_t>{1, 0}}}));
          break;
        case 1:
          values.push_back(builder_.Op("Add", {last, any}));
          break;
        case 2:
          values.push_back(builder_.Op("Softmax", {last}, {{"axis", int64_t{1}}}));
          break;
        default:
          values.push_back(builder_.Op("MatMul", {any, last}));
      }
      made_.push_back(graph_.value(values.back()).name);
    }
    graph_.AddOutput(values.back());
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
  }
  const Graph& graph() const { return graph_; }
  const std::vector<std::string>& made() const { return made_; }

 private:
  size_t Pick(size_t count) { return random_() % count; }

  std::mt19937_64 random_;
  Graph graph_;
  GraphBuilder builder_{graph_};
  std::vector<std::string> made_;
};

// The least that any hints for these names cost, each tried with all others.
double MinOfAllHints(TensorCosts& costs, const std::vector<std::string>& names, size_t from,
                     std::map<std::string, AxisSharding>& hints) {
  if (from == names.size()) return costs.SecondsOf(hints).value();
  double min_seconds = MinOfAllHints(costs, names, from + 1, hints);
  for (const AxisSharding& hint :
       {AxisSharding::Replicated(), AxisSharding::Split(0), AxisSharding::Split(1)}) {
    hints[names[from]] = hint;
    min_seconds = std::min(min_seconds, MinOfAllHints(costs, names, from + 1, hints));
  }
  hints.erase(names[from]);
  return min_seconds;
}

TEST(TensorProgramTest, IsAsCheapAsTheBestOfAllHints) {
  int hinted = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const RandomGraph random(seed);
    for (const CostModel& cost : {Gpus(2), CostModel::OfSpec(ClusterSpec::Local(2, 1)).value()}) {
      const TensorSplitOptions options = OptionsFor(2);
      const auto costs = TensorCosts::Create(random.graph(), cost, options).value();
      std::vector<std::string> names = random.made();
      names.insert(names.end(), {"v", "w"});
      std::map<std::string, AxisSharding> hints;
      const double min_seconds = MinOfAllHints(*costs, names, 0, hints);
      const TensorSplit split = SolveTensorSplit(random.graph(), cost, options).value();
      EXPECT_NEAR(split.seconds, min_seconds, 1e-8) << "seed " << seed;
      EXPECT_EQ(split.min_seconds, split.seconds) << "seed " << seed;
      EXPECT_NEAR(costs->SecondsOf(split.shardings).value(), split.seconds, 1e-12);
      for (const std::string& name : random.made()) hinted += split.shardings.contains(name);
    }
  }
  EXPECT_GT(hinted, 0) << "no graph needs a hint for what a node makes";
}

// Shoeybi et al. 2019: columns, then rows, in attention and in the feed-forward layer.
TEST(TensorProgramTest, FindsTheSplitOfMegatronAndHintsForNothingElse) {
  const Graph model = TransformerGraph(2);
  const TensorSplit split = SolveTensorSplit(model, Gpus(2), OptionsFor(2)).value();
  for (const std::string block : {"block0", "block1"}) {
    EXPECT_THAT(split.shardings, Contains(Pair(block + ".qkv.weight", AxisSharding::Split(1, 3))));
    EXPECT_THAT(split.shardings, Contains(Pair(block + ".out.weight", AxisSharding::Split(0))));
    EXPECT_THAT(split.shardings, Contains(Pair(block + ".up.weight", AxisSharding::Split(1))));
    EXPECT_THAT(split.shardings, Contains(Pair(block + ".down.weight", AxisSharding::Split(0))));
  }
  for (const auto& [name, sharding] : split.shardings) {
    EXPECT_NE(model.FindVariable(name), nullptr) << name << " is " << sharding.ToString();
  }
}

TEST(TensorProgramTest, ABlockNeedsTwoAllReducesForwardAndNothingElse) {
  const Graph model = TransformerGraph(3);
  for (const int shards : {2, 4}) {
    const TensorSplit split = SolveTensorSplit(model, Gpus(shards), OptionsFor(shards)).value();
    PropagationOptions options;
    options.shards = shards;
    options.hints = split.shardings;
    const ShardingDecisions decisions = PropagateShardings(model, options).value();
    std::set<std::pair<ValueId, std::string>> converted;
    for (const NodeId id : model.node_ids()) {
      const Node& node = model.node(id);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId input = node.inputs[i];
        if (!input.valid() || model.value(input).source == ValueSource::kConstant) continue;
        const AxisSharding& to = decisions.nodes[id.value].inputs[i];
        const auto kind = CollectiveOfConversion(decisions.values[input.value], to);
        if (!kind.has_value()) continue;
        EXPECT_EQ(*kind, CollectiveKind::kAllReduce);
        converted.insert({input, to.ToString()});
      }
    }
    EXPECT_EQ(converted.size(), 6u) << shards << " shards";
  }
}

TEST(TensorProgramTest, CostsNoMoreThanWhatTheBeamFinds) {
  for (const int blocks : {1, 4}) {
    const Graph model = TransformerGraph(blocks);
    for (const int shards : {2, 3, 8}) {
      for (const CostModel& cost :
           {Gpus(shards), CostModel::OfSpec(ClusterSpec::Local(shards, 1)).value()}) {
        const TensorSplitOptions options = OptionsFor(shards);
        const TensorSplit beam = FindTensorSplit(model, cost, options).value();
        const TensorSplit split = SolveTensorSplit(model, cost, options).value();
        EXPECT_LE(split.seconds, beam.seconds * (1 + 1e-9));
        EXPECT_EQ(split.min_seconds, split.seconds);
        EXPECT_NEAR(SecondsOf(model, cost, options, split.shardings), split.seconds,
                    1e-9 * split.seconds);
        // The beam prices a hinted value as a gather. With the hint, its node may run another way.
        EXPECT_NEAR(SecondsOf(model, cost, options, beam.shardings), beam.seconds,
                    5e-3 * beam.seconds);
      }
    }
  }
}

TEST(TensorProgramTest, SameInputSameHintsMergedOrNot) {
  const Graph model = TransformerGraph(2);
  const CostModel cost = Gpus(2);
  const TensorSplit split = SolveTensorSplit(model, cost, OptionsFor(2)).value();
  EXPECT_EQ(SolveTensorSplit(model, cost, OptionsFor(2))->shardings, split.shardings);
  for (const int64_t rows : {500, 50, 0}) {
    TensorProgramLimits limits;
    limits.choices.max_rows = rows;
    EXPECT_NEAR(SolveTensorSplit(model, cost, OptionsFor(2), limits)->seconds, split.seconds,
                1e-9 * split.seconds);
  }
}

TEST(TensorProgramTest, AProgramThatIsTooLargeIsRefused) {
  TensorProgramLimits limits;
  limits.choices.max_rows = 10;
  limits.choices.max_joined_rows = 10;
  const absl::Status status =
      SolveTensorSplit(TransformerGraph(1), Gpus(2), OptionsFor(2), limits).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(HasSubstr("over 2 workers is too much for --search ilp"),
                               HasSubstr("more than 10"), HasSubstr("--search dp")));
}

// Where the program leaves ways out it says nothing of the best, and is no worse than the beam.
TEST(TensorProgramTest, WhatIsLeftOutIsSaid) {
  const Graph model = TransformerGraph(1);
  const CostModel cost = Gpus(2);
  TensorProgramLimits limits;
  limits.max_operand_ways = 4;
  const TensorSplit split = SolveTensorSplit(model, cost, OptionsFor(2), limits).value();
  EXPECT_EQ(split.min_seconds, 0);
  EXPECT_LE(split.seconds, FindTensorSplit(model, cost, OptionsFor(2))->seconds * (1 + 1e-9));
}

TEST(TensorProgramTest, KeepsWhatIsGiven) {
  const Graph model = TransformerGraph(1);
  const CostModel cost = CostModel::OfSpec(ClusterSpec::Local(2, 1)).value();
  TensorSplitOptions options = OptionsFor(2);
  options.given = {{"*.up.weight", AxisSharding::Replicated()},
                   {"block0/Tanh", AxisSharding::Split(1)}};
  const TensorSplit split = SolveTensorSplit(model, cost, options).value();
  EXPECT_FALSE(split.shardings.contains("block0.up.weight"));
  EXPECT_TRUE(split.shardings.contains("block0.qkv.weight"));
  EXPECT_THAT(split.shardings, Contains(Pair("block0/Tanh", AxisSharding::Split(1))));
  EXPECT_NEAR(SecondsOf(model, cost, options, split.shardings), split.seconds,
              1e-9 * split.seconds);
}

// A sum of parts that stays one is made whole for the forward pass and once more for the backward.
TEST(TensorProgramTest, WhatTheBackwardPassReadsIsSummedOnce) {
  for (const bool is_read : {false, true}) {
    Graph graph;
    GraphBuilder builder(graph);
    const auto weight = [&](const std::string& name, const Shape& shape) {
      return graph.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape}, Tensor(), true);
    };
    const ValueId x = graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, Shape{512, 4096}});
    const ValueId up = builder.Op("Tanh", {builder.Op("MatMul", {x, weight("up", {4096, 16384})})});
    const ValueId down = builder.Op("MatMul", {up, weight("down", {16384, 4096})});
    graph.AddOutput(builder.Op("Tanh", {down}));
    builder.set_phase(Phase::kBackward);
    if (is_read) builder.Op("Tanh", {down});
    ASSERT_TRUE(builder.status().ok()) << builder.status();
    const TensorSplit split = SolveTensorSplit(graph, Gpus(2), OptionsFor(2)).value();
    EXPECT_THAT(split.shardings, Contains(Pair("down", AxisSharding::Split(0))));
    EXPECT_EQ(split.shardings.contains(graph.value(down).name), is_read);
  }
}

// A last batch may have fewer samples than there are ranks.
TEST(TensorProgramTest, SamplesAreNotSplit) {
  const auto make = [](Dim samples) {
    Graph graph;
    GraphBuilder builder(graph);
    const SymbolicShape shape({samples, Dim(4096)});
    const ValueId x = graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, shape});
    builder.set_name_prefix("first/");
    const ValueId y = builder.Op("Softmax", {x}, {{"axis", int64_t{1}}});
    builder.set_name_prefix("second/");
    graph.AddOutput(builder.Op("Softmax", {y}, {{"axis", int64_t{1}}}));
    EXPECT_TRUE(builder.status().ok()) << builder.status();
    return graph;
  };
  const Graph sized = make(Dim(65536));
  const Graph uncounted = make(Dim::Symbol("N"));
  TensorSplitOptions options = OptionsFor(2);
  EXPECT_THAT(SolveTensorSplit(sized, Gpus(2), options)->shardings,
              Contains(Pair("first/Softmax", AxisSharding::Split(0))));
  options.uncounted = &uncounted;
  EXPECT_THAT(SolveTensorSplit(sized, Gpus(2), options)->shardings, ::testing::IsEmpty());
}

}  // namespace
}  // namespace weft
