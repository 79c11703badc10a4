// An embedding whose weight alone is said to be split, by columns: the other shardings follow, so
// that no rank makes or sends the weight's whole gradient, which is dense.
#include <cstdint>
#include <string>
#include <vector>

#include "graph/cluster_spec.h"
#include "graph/graph_builder.h"
#include "graph/partition.h"
#include "graph/plan.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "ops/testing/test_tensors.h"
#include "placement/completion/plan_completion.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/partition/partitioner.h"
#include "placement/partition/traffic_prediction.h"
#include "training/graph/training_graph.h"

namespace weft::testing {
namespace {

constexpr int64_t kVocabulary = 10000;
constexpr int64_t kWidth = 32;  // the weight, and its gradient, take 1.28 MB
constexpr int64_t kClasses = 10;
constexpr int64_t kBatch = 8;
constexpr int64_t kTokens = 4;
constexpr int kRanks = 2;

// Between an embedding and a head: nothing, so that a product reads the rows as they are split, or
// a softmax, which reads each row as a whole.
enum class Between { kNothing, kSoftmax };

Graph Classifier(Between between) {
  Graph model;
  GraphBuilder builder(model);
  uint64_t seed = 0;
  const auto weight = [&](const std::string& name, const Shape& shape) {
    return model.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape},
                             RandomTensor(shape, ++seed), true);
  };
  const SymbolicShape sample(std::vector<Dim>{Dim::Symbol("N"), Dim(kTokens)});
  const ValueId tokens = model.AddInput("tokens", {ValueKind::kTensor, DType::kInt64, sample});
  builder.set_name_prefix("embed/");
  ValueId rows = builder.Op("Gather", {weight("embed.weight", {kVocabulary, kWidth}), tokens});
  builder.set_name_prefix("head/");
  if (between == Between::kSoftmax) {
    rows = builder.Op("Softmax", {rows}, {{"axis", int64_t{-1}}});
  }
  const ValueId product = builder.Op("MatMul", {rows, weight("head.weight", {kWidth, kClasses})});
  model.AddOutput(builder.Op("Add", {product, weight("head.bias", {kClasses})}));
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  return model;
}

class EmbeddingShards : public ::testing::TestWithParam<Between> {
 protected:
  void SetUp() override {
    TrainingSpec spec;
    spec.optimizer.kind = "adam";
    const auto graph = BuildTrainingGraph(Classifier(GetParam()), spec);
    ASSERT_TRUE(graph.ok()) << graph.status();
    Plan given;
    given.mesh = {1, kRanks, 1};
    given.tensor_shardings = {{"embed.weight", AxisSharding::Split(1)}};
    const auto plan = CompletePlan(*graph, ClusterSpec::Local(kRanks, 1), given, kBatch);
    ASSERT_TRUE(plan.ok()) << plan.status();
    auto partitions = PartitionStep(*graph, *plan, {/*training=*/true, kBatch}, CpuNodeEvaluator());
    ASSERT_TRUE(partitions.ok()) << partitions.status();
    partitions_ = *std::move(partitions);
    ASSERT_EQ(partitions_.size(), size_t{kRanks});
  }

  static std::vector<const Graph*> GraphsOf(const Partition& partition) {
    std::vector<const Graph*> graphs = {&partition.begin, &partition.end};
    for (const Graph& micro : partition.micro) graphs.push_back(&micro);
    return graphs;
  }

  std::vector<Partition> partitions_;
};

// 1.28 MB were sent in a step: each rank had a part of the gradient's sum over the samples.
TEST_P(EmbeddingShards, ARankSendsActivationsAndNoGradientOfTheWeight) {
  // Of all samples' rows and logits, forward and back; of the head, its gradient.
  constexpr int64_t kActivations = kBatch * kTokens * (kWidth + kClasses);
  constexpr int64_t kHead = (kWidth + 1) * kClasses;
  constexpr int64_t kBound = (2 * kActivations + kHead) * sizeof(float);
  static_assert(100 * kBound < kVocabulary * kWidth * int64_t{sizeof(float)});
  for (const Partition& partition : partitions_) {
    const auto streams = PredictTraffic(partition);
    ASSERT_TRUE(streams.ok()) << streams.status();
    int64_t bytes = 0;
    std::string story;
    for (const StreamPrediction& stream : *streams) {
      bytes += stream.bytes;
      story += "\n" + stream.name + " " + stream.type + " " + std::to_string(stream.bytes);
    }
    EXPECT_GT(bytes, 0);
    EXPECT_LE(bytes, kBound) << "rank " << partition.rank.value << story;
  }
}

TEST_P(EmbeddingShards, ARankMakesItsColumnsOfTheGradientAlone) {
  for (const Partition& partition : partitions_) {
    int gradients = 0;
    for (const Graph* const graph : GraphsOf(partition)) {
      for (const ValueId id : graph->value_ids()) {
        EXPECT_LT(ShapeOf(*graph, id).num_elements(), kVocabulary * kWidth)
            << "rank " << partition.rank.value << " has all of " << graph->value(id).name;
      }
      for (const NodeId id : graph->node_ids()) {
        const Node& node = graph->node(id);
        if (node.op != "GatherGrad") continue;
        ++gradients;
        EXPECT_EQ(ShapeOf(*graph, node.outputs[0]), (Shape{kVocabulary, kWidth / kRanks}));
      }
    }
    EXPECT_EQ(gradients, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EmbeddingShards,
                         ::testing::Values(Between::kNothing, Between::kSoftmax),
                         [](const auto& info) {
                           return info.param == Between::kNothing ? "RowsInColumns" : "WholeRows";
                         });

}  // namespace
}  // namespace weft::testing
