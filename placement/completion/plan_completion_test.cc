#include "placement/completion/plan_completion.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "placement/graph_views/graph_digest.h"
#include "placement/partition/partition_summary.h"
#include "placement/partition/partitioner.h"
#include "placement/partition/traffic_prediction.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A chain of layers of the given widths; layer i is "fc<i>" and "act<i>". With a sum of the outputs
// as report, so that an evaluation step runs.
class PlanCompletionTest : public testing::Test {
 protected:
  void BuildChain(const std::vector<int64_t>& widths) {
    GraphBuilder b(graph_);
    ValueId x = graph_.AddInput("x", {ValueKind::kTensor, DType::kFloat32,
                                      SymbolicShape({Dim::Symbol("N"), Dim(widths[0])})});
    for (size_t i = 1; i < widths.size(); ++i) {
      const std::string number = std::to_string(i);
      const Shape shape{widths[i - 1], widths[i]};
      const ValueId w = graph_.AddVariable("fc" + number + ".weight",
                                           {ValueKind::kTensor, DType::kFloat32, shape},
                                           *Tensor::Zeros(DType::kFloat32, shape), true);
      b.set_name_prefix("fc" + number + "/");
      x = b.Op("MatMul", {x, w});
      b.set_name_prefix("act" + number + "/");
      x = b.Op("Relu", {x});
    }
    b.set_name_prefix("report/");
    const ValueId sum = b.Op("ReduceSum", {x}, {{"keepdims", int64_t{0}}});
    b.set_phase(Phase::kUpdate);
    graph_.AddOutput(b.WeftOp("Accumulate", {sum}));
    ASSERT_TRUE(b.status().ok()) << b.status();
  }

  absl::StatusOr<Plan> Complete(int workers, Plan plan, int64_t batch = 32) {
    return CompletePlan(graph_, ClusterSpec::Local(workers, 2), std::move(plan), batch);
  }
  static Plan WithMesh(Mesh mesh) {
    Plan plan;
    plan.mesh = mesh;
    return plan;
  }

  Graph graph_;
};

TEST_F(PlanCompletionTest, DataParallelOverAllWorkersByItself) {
  BuildChain({8, 8, 8});
  const Plan plan = *Complete(3, Plan());
  EXPECT_EQ(plan.mesh, (Mesh{3, 1, 1}));
  EXPECT_THAT(plan.workers, ElementsAre(0, 1, 2));
  EXPECT_EQ(plan.micro_batches, 3);
  EXPECT_EQ(plan.threads_per_worker, 2);
  EXPECT_NE(plan.model_digest, 0u);
  EXPECT_EQ(plan.cluster_digest, ClusterSpec::Local(3, 2).Digest());
}

TEST_F(PlanCompletionTest, RanksHaveTheHostsOfTheirWorkers) {
  BuildChain({8, 8, 8});
  EXPECT_THAT(Complete(4, Plan())->hosts, IsEmpty());
  ClusterSpec cluster = ClusterSpec::Local(4, 1);
  cluster.workers[1].host = cluster.workers[2].host = "beta";
  Plan plan;
  plan.workers = {3, 0, 1, 2};
  plan = *CompletePlan(graph_, cluster, std::move(plan), 32);
  EXPECT_THAT(plan.hosts, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(plan.HostsOf({RankId(0), RankId(3)}), ElementsAre(0, 1));
  EXPECT_THAT(plan.HostsOf({RankId(2), RankId(3)}), IsEmpty());
}

TEST_F(PlanCompletionTest, MeshAndClusterMustFit) {
  BuildChain({8, 8, 8});
  EXPECT_EQ(
      Complete(3, WithMesh({2, 1, 1})).status().message(),
      "the plan's mesh dp=2 x tp=1 x pp=1 needs 2 workers, but the cluster has 3; a plan file "
      "may name those to use: workers: [0, 1]");
  Plan plan = WithMesh({2, 1, 1});
  plan.workers = {0, 2};
  EXPECT_EQ(Complete(2, plan).status().message(),
            "the plan uses worker 2, but the cluster has workers 0 to 1");
  plan.workers = {1, 1};
  EXPECT_EQ(Complete(2, plan).status().message(), "the plan uses worker 1 for two ranks");
  plan.workers = {1};
  EXPECT_EQ(Complete(2, plan).status().message(),
            "the plan's mesh dp=2 x tp=1 x pp=1 needs 2 workers, but the plan names 1");
}

TEST_F(PlanCompletionTest, APlanMayLeaveWorkersOut) {
  BuildChain({8, 8, 8});
  Plan plan;
  plan.workers = {2, 0};
  plan = *Complete(3, std::move(plan));
  EXPECT_EQ(plan.mesh, (Mesh{2, 1, 1}));
  EXPECT_THAT(plan.workers, ElementsAre(2, 0));
  Plan alone;
  alone.workers = {1};
  EXPECT_EQ(Complete(3, std::move(alone))->mesh, (Mesh{1, 1, 1}));
}

TEST_F(PlanCompletionTest, APinToAWorkerThatIsLeftOutIsRefused) {
  BuildChain({8, 8, 8});
  Plan plan = WithMesh({1, 1, 2});
  plan.workers = {0, 1};
  plan.pins = {{"fc1/*", "worker:2"}};
  EXPECT_THAT(std::string(Complete(3, plan).status().message()),
              HasSubstr("names a worker that the plan does not use"));
}

TEST_F(PlanCompletionTest, StagesHaveEqualWork) {
  BuildChain({64, 64, 64, 64, 64, 64, 64, 64, 64});
  const Plan plan = *Complete(4, WithMesh({1, 1, 4}));
  std::map<int, int> layers;
  for (int i = 1; i <= 8; ++i) ++layers[plan.stages.at("fc" + std::to_string(i) + "/MatMul")];
  EXPECT_THAT(layers,
              ElementsAre(std::pair(0, 2), std::pair(1, 2), std::pair(2, 2), std::pair(3, 2)));
}

TEST_F(PlanCompletionTest, CutsGoWhereFewBytesCross) {
  // The bottleneck after the second layer is near the middle of the work.
  BuildChain({64, 64, 4, 64, 64});
  const Plan plan = *Complete(2, WithMesh({1, 1, 2}));
  EXPECT_EQ(plan.stages.at("fc2/MatMul"), 0);
  EXPECT_EQ(plan.stages.at("fc3/MatMul"), 1);
}

TEST_F(PlanCompletionTest, PatternsBecomeNames) {
  BuildChain({8, 8, 8});
  Plan plan = WithMesh({1, 2, 2});
  plan.stages = {{"fc1/*", 0}, {"act1/*", 0}, {"fc2/*", 1}};
  plan.tensor_shardings = {{"fc?.weight", AxisSharding::Split(0)}};
  const Plan complete = *Complete(4, plan);
  EXPECT_EQ(complete.stages.at("act2/Relu"), 1);
  EXPECT_FALSE(complete.stages.contains("fc1/*"));
  EXPECT_EQ(complete.tensor_shardings.size(), 2u);
  EXPECT_EQ(complete.tensor_shardings.at("fc2.weight"), AxisSharding::Split(0));
}

// Every worker once had the threads of the one that has fewest.
TEST_F(PlanCompletionTest, EveryRankHasTheThreadsOfItsWorker) {
  BuildChain({8, 8, 8});
  ClusterSpec cluster = ClusterSpec::Local(3, 8);
  cluster.workers[1].threads = 2;
  cluster.workers[2].threads = 0;  // not said: the plan's
  Plan given;
  given.threads_per_worker = 4;
  const Plan plan = *CompletePlan(graph_, cluster, given, 32);
  EXPECT_THAT(plan.rank_threads, ElementsAre(8, 2, 4));
  EXPECT_EQ(plan.threads_per_worker, 2);
  EXPECT_EQ(ThreadsText(plan), "2 to 8 threads per worker");
  const Plan again = *CompletePlan(graph_, cluster, plan, 32);
  EXPECT_THAT(again.rank_threads, ElementsAre(8, 2, 4));
  given.mesh = {1, 1, 1};
  given.workers = {0};
  const Plan one = *CompletePlan(graph_, cluster, given, 32);
  EXPECT_THAT(one.rank_threads, IsEmpty());
  EXPECT_EQ(one.threads_per_worker, 8);
  given.rank_threads = {4, 4};
  EXPECT_EQ(CompletePlan(graph_, cluster, given, 32).status().message(),
            "the plan has threads for 2 ranks of 1 (dp=1 x tp=1 x pp=1)");
  given = Plan();
  given.strict = true;
  given.micro_batches = 3;
  const Plan strict = *CompletePlan(graph_, cluster, given, 32);
  EXPECT_THAT(strict.rank_threads, IsEmpty());
  EXPECT_EQ(strict.threads_per_worker, 1);
}

TEST_F(PlanCompletionTest, MicroBatchesFillThePipelineUnlessStrict) {
  BuildChain({8, 8, 8, 8, 8});
  EXPECT_EQ(Complete(4, WithMesh({2, 1, 2}))->micro_batches, 4);
  Plan plan = WithMesh({2, 1, 1});
  plan.micro_batches = 5;
  EXPECT_EQ(Complete(2, plan)->micro_batches, 6);
  plan.strict = true;
  const Plan strict = *Complete(2, plan);
  EXPECT_EQ(strict.micro_batches, 5);
  EXPECT_EQ(strict.threads_per_worker, 1);
  EXPECT_EQ(strict.reduction, Reduction::kOrderedTree);
  plan.micro_batches = 1;
  EXPECT_EQ(Complete(2, plan).status().message(),
            "a strict job of 1 micro-batches cannot keep 2 data-parallel replicas busy; say "
            "--micro-batches 2 or more");
}

// Also where a pipeline would be filled with more.
TEST_F(PlanCompletionTest, AWholeBatchGivesEachReplicaOneMicroBatch) {
  BuildChain({8, 8, 8, 8, 8});
  Plan plan = WithMesh({2, 1, 2});
  plan.whole_batch = true;
  EXPECT_EQ(Complete(4, plan)->micro_batches, 2);
  plan.mesh = {1, 1, 4};
  EXPECT_EQ(Complete(4, plan)->micro_batches, 1);
  plan.micro_batches = 4;
  EXPECT_THAT(std::string(Complete(4, plan).status().message()),
              HasSubstr("each of its 1 replicas runs one micro-batch, but it has 4"));
  plan.mesh = {4, 1, 1};
  plan.strict = true;
  EXPECT_THAT(std::string(Complete(4, plan).status().message()),
              HasSubstr("sums over 4 replicas have others"));
}

TEST_F(PlanCompletionTest, PlansForOtherClustersAreRefused) {
  BuildChain({8, 8});
  Plan plan = *Complete(2, Plan());
  const absl::Status status = CompletePlan(graph_, ClusterSpec::Local(2, 1), plan, 32).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("made for another cluster: its digest is "));
}

TEST_F(PlanCompletionTest, TooManyStagesAreAnError) {
  BuildChain({8, 8});
  EXPECT_THAT(std::string(Complete(9, WithMesh({1, 1, 9})).status().message()),
              HasSubstr("nodes to share among 9 pipeline stages"));
}

TEST_F(PlanCompletionTest, PinnedNodesStayAndTheRestIsBalancedAroundThem) {
  BuildChain({64, 64, 64, 64, 64, 64, 64, 64, 64});
  Plan plan = WithMesh({1, 1, 2});
  plan.pins = {{"fc3/*", "worker:1"}};
  const auto complete = Complete(2, plan);
  ASSERT_TRUE(complete.ok()) << complete.status();
  EXPECT_EQ(complete->stages.at("fc2/MatMul"), 0);
  for (int layer = 3; layer <= 8; ++layer) {
    EXPECT_EQ(complete->stages.at("fc" + std::to_string(layer) + "/MatMul"), 1) << layer;
  }
  // Where the pin lies anyway, nothing changes.
  plan.pins = {{"fc1/*", "worker:0"}, {"fc8/*", "worker:1"}};
  EXPECT_EQ(Complete(2, plan)->stages, Complete(2, WithMesh({1, 1, 2}))->stages);
  // A complete plan is complete.
  EXPECT_EQ(Complete(2, *complete)->stages, complete->stages);
}

TEST_F(PlanCompletionTest, APinMeansTheStageThatTheWorkerRuns) {
  BuildChain({64, 64, 64, 64, 64});
  Plan plan = WithMesh({1, 1, 2});
  plan.workers = {1, 0};
  plan.pins = {{"fc2/MatMul", "worker:0"}};
  EXPECT_EQ(Complete(2, plan)->stages.at("fc2/MatMul"), 1);
  plan.mesh = {2, 1, 2};
  plan.workers = {0, 1, 2, 3};
  plan.pins = {{"fc4/*", "worker:3"}, {"fc?/*", "worker:1"}};  // the more letters win
  const auto complete = Complete(4, plan);
  ASSERT_TRUE(complete.ok()) << complete.status();
  EXPECT_EQ(complete->stages.at("fc3/MatMul"), 0);
  EXPECT_EQ(complete->stages.at("fc4/MatMul"), 1);
}

TEST_F(PlanCompletionTest, PinsThatCannotBeKeptAreRefused) {
  BuildChain({8, 8, 8, 8});
  const auto message = [this](Mesh mesh, std::map<std::string, std::string> pins, int chunks = 1) {
    Plan plan = WithMesh(mesh);
    plan.pins = std::move(pins);
    plan.chunks = chunks;
    if (chunks > 1) plan.schedule = "interleaved";
    return std::string(Complete(mesh.size(), plan).status().message());
  };
  EXPECT_EQ(message({1, 1, 2}, {{"fc1/*", "worker:7"}}),
            "the pin of 'fc1/*' to 'worker:7' names no worker of the cluster, did you mean "
            "'worker:0'?");
  EXPECT_THAT(message({2, 1, 1}, {{"fc1/*", "worker:1"}}),
              HasSubstr("needs a pipeline: with dp=2 x tp=1 x pp=1 every worker runs every node"));
  EXPECT_THAT(message({1, 1, 2}, {{"fc1/*", "worker:1"}}, 2),
              HasSubstr("is ambiguous: each worker runs 2 stages"));
  EXPECT_THAT(message({1, 1, 2}, {{"fc1/*", "worker:1"}, {"fc2/*", "worker:0"}}),
              HasSubstr("is pinned to stage 0 but needs the result of "));
  EXPECT_EQ(message({1, 1, 2}, {{"*", "worker:1"}}),
            "the pins leave stage 0 of 2 without a node; pin fewer nodes, or use fewer stages");
  Plan plan = WithMesh({1, 1, 2});
  plan.stages = {{"fc1/MatMul", 0}, {"fc3/MatMul", 1}};
  plan.pins = {{"fc3/*", "worker:0"}};
  EXPECT_EQ(std::string(Complete(2, plan).status().message()),
            "the plan puts 'fc3/MatMul' on stage 1, but it is pinned to stage 0");
}

TEST_F(PlanCompletionTest, DigestsTellGraphsApartButNotWeights) {
  BuildChain({8, 8});
  const uint64_t digest = GraphDigest(graph_);
  Graph same = graph_.Clone();
  same.mutable_variables()[0].initial = Tensor();
  EXPECT_EQ(GraphDigest(same), digest);
  Graph renamed = graph_.Clone();
  renamed.RenameValue(renamed.outputs()[0], "other");
  EXPECT_NE(GraphDigest(renamed), digest);
  Graph other_attribute = graph_.Clone();
  other_attribute.node(other_attribute.node_ids()[2]).attributes.Set("keepdims", int64_t{1});
  EXPECT_NE(GraphDigest(other_attribute), digest);
}

TEST_F(PlanCompletionTest, TensorParallelPlansPredictWhatTheySend) {
  BuildChain({6, 10, 4});
  Plan plan = WithMesh({1, 2, 1});
  plan.micro_batches = 2;
  plan.tensor_shardings = {{"fc1.weight", AxisSharding::Split(1)},
                           {"fc2.weight", AxisSharding::Split(0)}};
  const auto partitions = PartitionStep(graph_, plan, {false, 8}, CpuNodeEvaluator());
  ASSERT_TRUE(partitions.ok()) << partitions.status();
  // Each rank gives the other its partial [4,4] sum of both micro-batches.
  const auto streams = PredictTraffic((*partitions)[0]);
  ASSERT_TRUE(streams.ok()) << streams.status();
  ASSERT_EQ(streams->size(), 1u);
  EXPECT_FALSE(streams->front().to.valid());
  EXPECT_EQ(streams->front().type, "float32[4,4]");
  EXPECT_EQ(streams->front().bytes, 128);
}

TEST_F(PlanCompletionTest, ChannelsCountEachSizeOfMicroBatch) {
  BuildChain({6, 10, 4});
  Plan plan = WithMesh({1, 1, 2});
  plan.micro_batches = 2;
  const auto complete = Complete(2, plan);
  ASSERT_TRUE(complete.ok()) << complete.status();
  // Of 7 samples the micro-batches have 4 and 3.
  const auto partitions = PartitionStep(graph_, *complete, {false, 7}, CpuNodeEvaluator());
  ASSERT_TRUE(partitions.ok()) << partitions.status();
  int64_t sample_bytes = 0;
  for (const Channel& channel : (*partitions)[0].channels) {
    if (channel.per_micro_batch && channel.shape.dim(0) == 4) {
      sample_bytes += DTypeBytes(channel.dtype, channel.shape.num_elements()) / 4;
    }
  }
  const auto streams = PredictTraffic((*partitions)[0]);
  ASSERT_TRUE(streams.ok()) << streams.status();
  int64_t bytes = 0;
  for (const StreamPrediction& stream : *streams) {
    EXPECT_EQ(stream.to, RankId(1));
    bytes += stream.bytes;
  }
  EXPECT_GT(sample_bytes, 0);
  EXPECT_EQ(bytes, 7 * sample_bytes);
}

TEST_F(PlanCompletionTest, SummariesCountWhatRanksHold) {
  BuildChain({6, 10, 4});
  Plan plan = WithMesh({1, 2, 1});
  plan.micro_batches = 2;
  plan.tensor_shardings = {{"fc1.weight", AxisSharding::Split(1)},
                           {"fc2.weight", AxisSharding::Split(0)}};
  const auto partitions = PartitionStep(graph_, plan, {false, 8}, CpuNodeEvaluator());
  ASSERT_TRUE(partitions.ok()) << partitions.status();
  const RankSummary summary = *Summarize((*partitions)[1]);
  EXPECT_EQ(summary.rank, RankId(1));
  EXPECT_EQ(summary.parameters, (60 + 40) / 2);
  EXPECT_EQ(summary.variable_bytes, 4 * 50);
  // Per micro-batch of 4 samples the sum of the [4,4] result: 2 (n - 1) / n of 64 bytes, twice.
  EXPECT_EQ(summary.sent_bytes, 2 * 64);
  EXPECT_GE(summary.flops, 2 * 2 * 4 * (6 * 5 + 5 * 4));
  EXPECT_GE(summary.arena_bytes, 4 * 4 * (6 + 5));
}

// An op without a sharding rule, and what it costs.
WEFT_REGISTER_OP(OpSchema::Weft("TestWithoutRule")
                     .Input("x")
                     .Output("y")
                     .Infer([](InferenceContext& context) {
                       context.SetOutput(0, context.InputType(0));
                       return absl::OkStatus();
                     })
                     .NoGradient("of a test")
                     .CostOf([](const NodeView& view) {
                       const auto elements =
                           static_cast<double>(view.OutputShape(0).num_elements());
                       return Cost{5 * elements, 8 * elements};
                     }));

TEST_F(PlanCompletionTest, OpsWithoutARuleAreNamedWithWhatTheyCostARank) {
  GraphBuilder b(graph_);
  const ValueId x = graph_.AddInput(
      "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), Dim(6)})});
  const ValueId w =
      graph_.AddVariable("w", {ValueKind::kTensor, DType::kFloat32, Shape{6, 10}}, Tensor(), true);
  const ValueId twice =
      b.WeftOp("TestWithoutRule", {b.WeftOp("TestWithoutRule", {b.Op("MatMul", {x, w})})});
  const ValueId sum = b.Op("ReduceSum", {twice}, {{"keepdims", int64_t{0}}});
  b.set_phase(Phase::kUpdate);
  graph_.AddOutput(b.WeftOp("Accumulate", {sum}));
  ASSERT_TRUE(b.status().ok()) << b.status();
  Plan plan = WithMesh({1, 2, 1});
  plan.micro_batches = 2;
  plan.tensor_shardings = {{"w", AxisSharding::Split(1)}};
  const auto partitions = PartitionStep(graph_, plan, {false, 8}, CpuNodeEvaluator());
  ASSERT_TRUE(partitions.ok()) << partitions.status();
  for (const Partition& partition : *partitions) {
    const std::vector<ReplicatedOp> ops = OpsWithoutRule(partition);
    ASSERT_EQ(ops.size(), 1u);
    EXPECT_EQ(ops[0].op, "ai.weft::TestWithoutRule");
    EXPECT_EQ(ops[0].nodes.size(), 2u);
    EXPECT_EQ(ops[0].flops, 2 * 5 * 8 * 10);  // all 8 samples and all 10 columns, on every rank
    EXPECT_EQ(ops[0].bytes, 2 * 8 * 8 * 10);
  }
  plan.mesh = {2, 1, 1};
  const auto replicas = PartitionStep(graph_, plan, {false, 8}, CpuNodeEvaluator());
  ASSERT_TRUE(replicas.ok()) << replicas.status();
  EXPECT_THAT(OpsWithoutRule((*replicas)[0]), IsEmpty());
}

}  // namespace
}  // namespace weft
