// What partitions look like. That they compute the right thing is tests/partition_equivalence_test.
#include "placement/partition/partitioner.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "graph/schedule/action_list.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "placement/testing/regression_graph.h"

namespace weft {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PartitionerTest : public ::testing::Test {
 protected:
  PartitionerTest() : graph_(testing::RegressionGraph()) { plan_.bucket_bytes = 1 << 20; }

  void SetMesh(int data, int tensor, int pipeline, int micro_batches) {
    plan_.mesh = {data, tensor, pipeline};
    plan_.micro_batches = micro_batches;
    if (pipeline == 2) plan_.stages = {{"fc1/*", 0}, {"fc2/*", 1}, {"loss/*", 1}};
  }
  void Cut(int64_t batch, bool training = true) {
    auto partitions = PartitionStep(graph_, plan_, {training, batch}, CpuNodeEvaluator());
    ASSERT_TRUE(partitions.ok()) << partitions.status();
    partitions_ = *std::move(partitions);
  }
  std::string ErrorOf(int64_t batch) {
    return std::string(
        PartitionStep(graph_, plan_, {true, batch}, CpuNodeEvaluator()).status().message());
  }

  static std::vector<const Node*> NodesOf(const Graph& graph, const std::string& op) {
    std::vector<const Node*> nodes;
    for (const NodeId id : graph.node_ids()) {
      if (graph.node(id).op == op) nodes.push_back(&graph.node(id));
    }
    return nodes;
  }
  static std::vector<std::string> NamesOf(const std::vector<FeedInput>& inputs) {
    std::vector<std::string> names;
    for (const FeedInput& input : inputs) names.push_back(input.name);
    return names;
  }
  static std::vector<std::string> InputNames(const Graph& graph, const Node& node) {
    std::vector<std::string> names;
    for (const ValueId input : node.inputs) names.push_back(graph.value(input).name);
    return names;
  }

  Graph graph_;
  Plan plan_;
  std::vector<Partition> partitions_;
};

TEST_F(PartitionerTest, OneRankNeedsNoCommunication) {
  SetMesh(1, 1, 1, 2);
  Cut(8);
  const Partition& only = partitions_[0];
  EXPECT_THAT(only.channels, IsEmpty());
  EXPECT_THAT(NodesOf(only.end, "AllReduce"), IsEmpty());
  EXPECT_EQ(only.begin.num_nodes(), 0);
  EXPECT_EQ(ActionListToString(only.actions), "Begin F0 B0 F1 B1 U");
  EXPECT_EQ(only.guard, "loss");
  EXPECT_THAT(only.reports, ElementsAre("loss"));
  ASSERT_EQ(only.accumulations.size(), 4u);
  EXPECT_FALSE(only.accumulations[0].ordered_tree);
  EXPECT_EQ(only.accumulations[0].blocks[0].first, 0);
  EXPECT_EQ(only.accumulations[0].blocks[0].last, 2);
}

// Stages send each other the loss and its weight, before any of them changes a variable. What ZeRO
// gathers rests on new values.
TEST_F(PartitionerTest, StepsCommitWhereUpdatesNeedNoOtherRank) {
  const auto commit = [this] {
    Cut(8);
    for (const Partition& partition : partitions_) {
      EXPECT_EQ(partition.commits, partitions_.front().commits);
    }
    return partitions_.front().commits;
  };
  SetMesh(2, 1, 1, 2);
  EXPECT_FALSE(commit());  // nobody has asked
  plan_.commits = true;
  EXPECT_TRUE(commit());
  EXPECT_TRUE(partitions_.front().Clone().commits);
  plan_.zero = 1;
  EXPECT_FALSE(commit());
  plan_.zero = 0;
  SetMesh(2, 1, 2, 2);
  EXPECT_TRUE(commit());
}

TEST_F(PartitionerTest, CudnnAndFusionAreChoicesOfAllRanks) {
  SetMesh(2, 1, 1, 2);
  Cut(8);
  for (const Partition& partition : partitions_) {
    EXPECT_FALSE(partition.uses_cudnn);
    EXPECT_FALSE(partition.fuses_nodes);
  }
  plan_.uses_cudnn = true;
  plan_.fuses_nodes = true;
  Cut(8);
  ASSERT_EQ(partitions_.size(), 2);
  for (const Partition& partition : partitions_) {
    EXPECT_TRUE(partition.uses_cudnn);
    EXPECT_TRUE(partition.fuses_nodes);
    EXPECT_TRUE(partition.Clone().uses_cudnn);
    EXPECT_TRUE(partition.Clone().fuses_nodes);
  }
}

TEST_F(PartitionerTest, FeedsHaveTheShapeOfASample) {
  SetMesh(1, 1, 1, 2);
  Cut(8);
  ASSERT_THAT(NamesOf(partitions_[0].inputs), ElementsAre("x", "labels", "learning_rate"));
  EXPECT_EQ(partitions_[0].inputs[0].sample_shape, Shape{4});
  EXPECT_EQ(partitions_[0].inputs[0].role, InputRole::kData);
  EXPECT_EQ(partitions_[0].inputs[2].sample_shape, Shape{});
  EXPECT_EQ(partitions_[0].inputs[2].role, InputRole::kStep);
}

TEST_F(PartitionerTest, EachMicroBatchSizeHasAGraph) {
  SetMesh(1, 1, 1, 3);
  Cut(8);
  const Partition& only = partitions_[0];
  ASSERT_EQ(only.micro.size(), 2u);
  EXPECT_THAT(only.micro[0].DebugString(), HasSubstr("input %x: float64[3,4]"));
  EXPECT_THAT(only.micro[1].DebugString(), HasSubstr("input %x: float64[2,4]"));
  EXPECT_EQ(only.micro_batches[1].graph, 0);
  EXPECT_EQ(only.micro_batches[2].graph, 1);
  EXPECT_EQ(only.micro_batches[2].first, 6);
}

TEST_F(PartitionerTest, ReplicasHaveOnlyTheSizesTheyRun) {
  SetMesh(3, 1, 1, 3);
  Cut(8);
  ASSERT_EQ(partitions_[2].micro.size(), 1u);
  EXPECT_EQ(partitions_[2].micro_batches[0].graph, 0);
  EXPECT_THAT(partitions_[2].micro[0].DebugString(), HasSubstr("input %x: float64[2,4]"));
}

TEST_F(PartitionerTest, GradientsTravelInBucketsLastLayerFirst) {
  SetMesh(2, 1, 1, 2);
  Cut(8);
  auto reduces = NodesOf(partitions_[1].end, "AllReduce");
  ASSERT_EQ(reduces.size(), 1u);  // the loss and its count, then the gradients
  EXPECT_EQ(reduces[0]->outputs.size(), 4u);
  EXPECT_THAT(InputNames(partitions_[1].end, *reduces[0]),
              ElementsAre(_, _, HasSubstr("update/w2/"), HasSubstr("update/w1/")));
  EXPECT_EQ(reduces[0]->attributes.String("algorithm", ""), "auto");
  EXPECT_THAT(reduces[0]->attributes.Ints("group"), ElementsAre(0, 1));
  EXPECT_FALSE(reduces[0]->attributes.Has("hosts"));
  plan_.bucket_bytes = 8 * 6;  // w2 fits, w1 does not fit beside it
  Cut(8);
  reduces = NodesOf(partitions_[1].end, "AllReduce");
  ASSERT_EQ(reduces.size(), 3u);  // the guard's sums do not wait for the gradients then
  EXPECT_EQ(reduces[0]->outputs.size(), 2u);
}

TEST_F(PartitionerTest, SumsOverSeveralHostsKnowThem) {
  SetMesh(4, 1, 1, 4);
  plan_.hosts = {3, 3, 5, 5};
  Cut(8);
  const auto reduces = NodesOf(partitions_[1].end, "AllReduce");
  EXPECT_THAT(reduces[0]->attributes.Ints("hosts"), ElementsAre(3, 3, 5, 5));
  SetMesh(2, 2, 1, 2);  // the replicas of each shard are on one host each
  plan_.hosts = {3, 5, 3, 5};
  Cut(8);
  EXPECT_FALSE(NodesOf(partitions_[1].end, "AllReduce")[0]->attributes.Has("hosts"));
}

TEST_F(PartitionerTest, OrderedTreesSumSubtrees) {
  SetMesh(2, 1, 1, 6);
  plan_.reduction = Reduction::kOrderedTree;
  Cut(12);
  // Replica 1 has micro-batches 3, 4 and 5: leaf 3, and the subtree of 4 and 5.
  const Partition& second = partitions_[1];
  ASSERT_EQ(second.accumulations[0].blocks.size(), 2u);
  EXPECT_TRUE(second.accumulations[0].ordered_tree);
  const auto reduces = NodesOf(second.end, "AllReduce");
  EXPECT_EQ(reduces[0]->attributes.String("algorithm", ""), "ordered_tree");
  EXPECT_EQ(reduces[0]->attributes.Int("blocks", 0), 2);
  EXPECT_THAT(reduces[0]->attributes.Ints("block_ranges"), ElementsAre(3, 4, 4, 6));
  EXPECT_EQ(reduces[0]->attributes.Int("total_blocks", 0), 6);
  EXPECT_EQ(reduces[0]->inputs.size(), 2 * reduces[0]->outputs.size());
}

TEST_F(PartitionerTest, OneReplicaAddsItsSubtreesInTheSameOrder) {
  SetMesh(1, 1, 1, 6);
  plan_.reduction = Reduction::kOrderedTree;
  Cut(12);
  const auto reduces = NodesOf(partitions_[0].end, "AllReduce");
  ASSERT_FALSE(reduces.empty());
  EXPECT_THAT(reduces[0]->attributes.Ints("group"), ElementsAre(0));
  EXPECT_THAT(reduces[0]->attributes.Ints("block_ranges"), ElementsAre(0, 4, 4, 6));
  SetMesh(1, 1, 1, 4);  // one complete tree
  Cut(12);
  EXPECT_THAT(NodesOf(partitions_[0].end, "AllReduce"), IsEmpty());
}

TEST_F(PartitionerTest, IdleReplicasBringZeros) {
  SetMesh(3, 1, 1, 3);
  Cut(2);
  const Partition& idle = partitions_[0];
  EXPECT_THAT(idle.micro_batches, IsEmpty());
  EXPECT_THAT(idle.accumulations, IsEmpty());
  EXPECT_EQ(ActionListToString(idle.actions), "Begin U");
  EXPECT_EQ(idle.total_micro_batches, 2);
  EXPECT_THAT(idle.end.DebugString(), HasSubstr("/zero"));
}

TEST_F(PartitionerTest, StagesHoldTheirInputsAndVariables) {
  SetMesh(1, 1, 2, 2);
  Cut(8);
  EXPECT_THAT(NamesOf(partitions_[0].inputs), ElementsAre("x", "learning_rate"));
  EXPECT_THAT(NamesOf(partitions_[1].inputs), ElementsAre("labels", "learning_rate"));
  ASSERT_EQ(partitions_[0].variables.size(), 1u);
  EXPECT_EQ(partitions_[0].variables[0].name, "w1");
  EXPECT_EQ(partitions_[1].variables[0].name, "w2");
  EXPECT_EQ(ActionListToString(partitions_[0].actions), "Begin F0 F1 B0 B1 U");
}

TEST_F(PartitionerTest, AValueIsSentOnceHoweverManyUseIt) {
  SetMesh(1, 1, 2, 2);
  Cut(8);
  // Both the forward and the backward pass of stage 1 read h.
  EXPECT_EQ(NodesOf(partitions_[0].micro[0], "Send").size(), 1u);
  std::vector<std::string> values;
  for (const Channel& channel : partitions_[0].channels) values.push_back(channel.value);
  EXPECT_THAT(values, ElementsAre("fc1/MatMul", "grad/fc2/MatMul_1", "loss", "step/Accumulate"));
  const Channel& forward = partitions_[0].channels[0];
  EXPECT_EQ(forward.from, RankId(0));
  EXPECT_EQ(forward.to, RankId(1));
  EXPECT_EQ(forward.shape, (Shape{4, 3}));
  EXPECT_TRUE(forward.per_micro_batch);
  EXPECT_FALSE(partitions_[0].channels[3].per_micro_batch);
}

TEST_F(PartitionerTest, ReplicasAndShardsSendToTheirOwnKind) {
  SetMesh(2, 2, 2, 4);
  Cut(8);
  for (const Partition& partition : partitions_) {
    for (const Channel& channel : partition.channels) {
      const Mesh::Coordinate from = plan_.mesh.CoordinateOf(channel.from);
      const Mesh::Coordinate to = plan_.mesh.CoordinateOf(channel.to);
      EXPECT_EQ(from.data, to.data);
      EXPECT_EQ(from.tensor, to.tensor);
      EXPECT_NE(from.pipeline, to.pipeline);
    }
  }
}

TEST_F(PartitionerTest, ShardsKnowTheirPlace) {
  SetMesh(1, 2, 1, 1);
  plan_.tensor_shardings = {{"w1", AxisSharding::Split(1)}, {"w2", AxisSharding::Split(0)}};
  Cut(8);
  const VariableShard& shard = partitions_[1].variables[0];
  EXPECT_EQ(shard.global_shape, (Shape{4, 3}));
  EXPECT_EQ(shard.local_shape, (Shape{4, 1}));  // the first shard has the extra column
  EXPECT_EQ(shard.tensor_sharding, AxisSharding::Split(1));
  EXPECT_EQ(shard.tensor_index, 1);
  EXPECT_TRUE(shard.is_primary);
  const Graph& micro = partitions_[1].micro[0];
  const ValueDef& h = micro.value(*micro.FindValue("fc1/MatMul"));
  EXPECT_EQ(*h.type.shape.ToConcrete(), (Shape{8, 1}));
  ASSERT_TRUE(h.placement.has_value());
  EXPECT_EQ(h.placement->global_shape, (Shape{8, 3}));
  EXPECT_THAT(h.placement->offset, ElementsAre(0, 2));
}

TEST_F(PartitionerTest, OneCopyOfEachShardIsPrimary) {
  SetMesh(2, 2, 1, 2);
  plan_.tensor_shardings = {{"w1", AxisSharding::Split(1)}};
  Cut(8);
  int primaries_w1 = 0;
  int primaries_w2 = 0;
  for (const Partition& partition : partitions_) {
    primaries_w1 += partition.variables[0].is_primary;
    primaries_w2 += partition.variables[1].is_primary;
  }
  EXPECT_EQ(primaries_w1, 2);
  EXPECT_EQ(primaries_w2, 1);
}

TEST_F(PartitionerTest, EvaluationHasNoBackwardAndNoUpdates) {
  SetMesh(1, 1, 2, 2);
  Cut(8, /*training=*/false);
  for (const Partition& partition : partitions_) {
    EXPECT_FALSE(partition.training);
    EXPECT_EQ(partition.guard, "");
    EXPECT_THAT(partition.reports, ElementsAre("loss"));
    EXPECT_EQ(ActionListToString(partition.actions), "Begin F0 F1 U");
    for (const Variable& variable : partition.micro[0].variables()) {
      EXPECT_FALSE(variable.update.valid());
    }
  }
}

// A short batch leaves a replica without samples, which is no second micro-batch of another. What
// pairs samples would be cut by several ones in an evaluation as in training.
TEST_F(PartitionerTest, AWholeBatchIsOneMicroBatchOfEachReplicaInEvaluationsToo) {
  SetMesh(2, 1, 1, 2);
  plan_.whole_batch = true;
  Cut(1, /*training=*/false);
  EXPECT_EQ(partitions_[0].micro_batches.size() + partitions_[1].micro_batches.size(), 1u);
  plan_.micro_batches = 4;
  for (const bool training : {false, true}) {
    const auto cut = PartitionStep(graph_, plan_, {training, 8}, CpuNodeEvaluator());
    EXPECT_THAT(std::string(cut.status().message()), HasSubstr("replica 0 has 2; give 2 "));
  }
}

// Each of two replicas has one sample, and shapes allow no more: what mixes samples could not be
// looked at, and replicas took statistics of their own.
TEST_F(PartitionerTest, AWholeBatchNeedsToKnowWhatMixesIt) {
  SetMesh(2, 1, 1, 2);
  graph_.value(*graph_.FindValue("x")).type.shape = Shape{1, 4};
  graph_.value(*graph_.FindValue("labels")).type.shape = Shape{1, 2};
  EXPECT_EQ(ErrorOf(2), "");
  plan_.whole_batch = true;
  EXPECT_THAT(ErrorOf(2), HasSubstr("which nodes mix its samples is not known: shapes in the model "
                                    "fix the batch to one sample"));
}

TEST_F(PartitionerTest, TheSameInputsGiveTheSamePartitions) {
  SetMesh(2, 2, 2, 4);
  plan_.tensor_shardings = {{"w1", AxisSharding::Split(1)}, {"w2", AxisSharding::Split(0)}};
  Cut(13);
  const std::vector<Partition> first = std::move(partitions_);
  Cut(13);
  for (size_t rank = 0; rank < first.size(); ++rank) {
    EXPECT_EQ(first[rank].micro[0].DebugString(), partitions_[rank].micro[0].DebugString());
    EXPECT_EQ(first[rank].end.DebugString(), partitions_[rank].end.DebugString());
  }
}

TEST_F(PartitionerTest, DataInputsNeedSizesButForTheSamples) {
  graph_.value(*graph_.FindValue("x")).type.shape = SymbolicShape({Dim::Symbol("N"), Dim()});
  SetMesh(1, 1, 1, 1);
  EXPECT_EQ(ErrorOf(8),
            "data input 'x' is float64[N,?]; every axis but the first, which counts the samples, "
            "must have a size");
}

TEST_F(PartitionerTest, ReportsMustBeValuesOfTheStep) {
  graph_.AddOutput(*graph_.FindValue("fc2/MatMul"));
  SetMesh(1, 1, 1, 1);
  EXPECT_EQ(ErrorOf(8),
            "graph output 'fc2/MatMul' is no value of the step; a value of a micro-batch becomes "
            "one through Accumulate");
}

TEST_F(PartitionerTest, APipelineNeedsStages) {
  plan_.mesh.pipeline = 2;
  EXPECT_THAT(ErrorOf(8), HasSubstr("no forward node is on stage 0 of 2"));
}

TEST_F(PartitionerTest, BadMeshesAndBatchesAreErrors) {
  plan_.mesh.tensor = 0;
  EXPECT_THAT(ErrorOf(8), HasSubstr("each axis needs at least one rank"));
  plan_.mesh.tensor = 1;
  EXPECT_THAT(ErrorOf(0), HasSubstr("a step of 0 samples"));
  plan_.strict = true;
  EXPECT_THAT(ErrorOf(8), HasSubstr("in the ordered tree"));
}

}  // namespace
}  // namespace weft
