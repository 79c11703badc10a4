// Recomputation changes no bit and lowers the memory of a step by what its formula says.
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/program/compile_step.h"
#include "executor/program/step_program.h"
#include "executor/variables/variable_store.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "ops/testing/test_tensors.h"
#include "placement/completion/plan_completion.h"
#include "placement/files/plan_file.h"
#include "placement/partition/partition_summary.h"
#include "placement/partition/partitioner.h"
#include "placement/simulation/plan_prediction.h"
#include "platform/clock.h"
#include "tensor/cpu_device.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/training_run.h"
#include "training/graph/training_graph.h"
#include "training/job/compiled_memory.h"

namespace weft::testing {
namespace {

// -- The same bits.

constexpr int64_t kBatch = 13;
constexpr int64_t kSamples = 2 * kBatch + 5;  // every third batch is short

TrainingRun RunOf(const EquivalenceModel& model, const std::string& parallel) {
  TrainingRun run;
  run.data = WriteDataFiles(model, ::testing::TempDir());
  run.batch = kBatch;
  run.steps = 4;
  run.optimizer.kind = "momentum";
  run.optimizer.learning_rate = 0.05;
  run.plan = ParseParallel(parallel).value();
  run.workers = run.plan.mesh.size();
  return run;
}

// Every second node, in two segments that wind through each other.
std::map<std::string, std::string> ScatteredSegments(const Graph& model) {
  std::map<std::string, std::string> segments;
  int i = 0;
  for (const NodeId id : model.node_ids()) {
    if (++i % 4 != 0) segments[model.node(id).name] = i % 2 == 0 ? "even" : "odd";
  }
  return segments;
}

void ExpectSameBits(const EquivalenceModel& model, TrainingRun run) {
  const Plan plan = run.plan;
  run.plan.recompute.clear();
  run.plan.recompute_segments = 0;
  const auto kept = RunGraph(model.graph, run);
  ASSERT_TRUE(kept.ok()) << kept.status();
  run.plan = plan;
  const auto again = RunGraph(model.graph, run);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->plan.recompute.empty());
  EXPECT_EQ(again->losses, kept->losses);
  ASSERT_EQ(again->parameters.size(), kept->parameters.size());
  for (const auto& [name, value] : kept->parameters) {
    EXPECT_TRUE(BitwiseEqual(again->parameters.at(name), value)) << name;
  }
}

class SameBits : public ::testing::TestWithParam<std::string> {};

TEST_P(SameBits, OnEveryMeshAndSchedule) {
  const auto model = BuildEquivalenceModel(GetParam(), kSamples);
  ASSERT_TRUE(model.ok()) << model.status();
  for (const char* parallel :
       {"micro=2,recompute=3", "dp=2,micro=4,recompute=2", "dp=2,zero=3,recompute=*",
        "pp=2,micro=3,schedule=gpipe,recompute=all", "pp=2,micro=3,schedule=1f1b,recompute=2",
        "pp=2,micro=3,schedule=zero_bubble,recompute=2", "tp=2,micro=2,recompute=2"}) {
    SCOPED_TRACE(absl::StrCat(GetParam(), " ", parallel));
    TrainingRun run = RunOf(*model, parallel);
    if (run.plan.mesh.tensor > 1) {
      for (const char* name : {"fc1.weight", "fc1.bias", "block0.down.weight"}) {
        if (model->graph.FindVariable(name) != nullptr) {
          run.plan.tensor_shardings[name] = AxisSharding::Split(0);
        }
      }
    }
    ExpectSameBits(*model, run);
  }
}

// A tied weight over several chunks is refused, with recomputation or without.
TEST_P(SameBits, WithSeveralStagesPerRank) {
  if (GetParam() == "encoder") GTEST_SKIP() << "its embedding is tied to its head";
  const auto model = BuildEquivalenceModel(GetParam(), kSamples);
  ASSERT_TRUE(model.ok()) << model.status();
  ExpectSameBits(*model, RunOf(*model, "pp=2,chunks=2,micro=4,schedule=interleaved,recompute=all"));
}

TEST_P(SameBits, WithSegmentsThatWindThroughEachOther) {
  const auto model = BuildEquivalenceModel(GetParam(), kSamples);
  ASSERT_TRUE(model.ok()) << model.status();
  for (const char* parallel : {"micro=2", "dp=2,pp=2,micro=4,schedule=zero_bubble", "tp=2"}) {
    SCOPED_TRACE(absl::StrCat(GetParam(), " ", parallel));
    TrainingRun run = RunOf(*model, parallel);
    run.plan.recompute = ScatteredSegments(model->graph);
    ExpectSameBits(*model, run);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SameBits, ::testing::ValuesIn(EquivalenceModelNames()));

// Convolutions with batch statistics, which are computed again from the same samples.
EquivalenceModel NormalizedConvolutions() {
  EquivalenceModel model;
  model.name = "normalized";
  Graph& graph = model.graph;
  GraphBuilder b(graph);
  uint64_t seed = 0;
  const auto weight = [&](const std::string& name, const Shape& shape, double center) {
    return graph.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape},
                             RandomTensor(shape, ++seed, center - 0.3, center + 0.3), true);
  };
  ValueId x = graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32,
                                   SymbolicShape({Dim::Symbol("N"), Dim(3), Dim(8), Dim(8)})});
  for (const std::string name : {"conv1", "conv2", "conv3"}) {
    b.set_name_prefix(name + "/");
    x = b.Op(
        "Conv", {x, weight(name + ".weight", {3, 3, 3, 3}, 0)},
        {{"kernel_shape", std::vector<int64_t>{3, 3}}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}});
    const ValueId mean = b.Constant(*Tensor::Zeros(DType::kFloat32, {3}));
    const ValueId variance = b.Constant(Tensor::Of<float>({3}, std::vector<float>{1, 1, 1}));
    x = b.Op("BatchNormalization",
             {x, weight(name + ".scale", {3}, 1), weight(name + ".shift", {3}, 0), mean, variance},
             {{"training_mode", int64_t{1}}});
    x = b.Op("Relu", {x});
  }
  b.set_name_prefix("head/");
  graph.AddOutput(b.Op("Gemm", {b.Op("Flatten", {x}), weight("head.weight", {192, 5}, 0)}));
  EXPECT_TRUE(b.status().ok()) << b.status();
  model.data["x"] = RandomTensor({kSamples, 3, 8, 8}, 901);
  model.data["labels"] = RandomTensor({kSamples}, 902, 0, 5, DType::kInt64);
  return model;
}

TEST(Recomputation, BatchStatisticsHaveTheSameBits) {
  const EquivalenceModel model = NormalizedConvolutions();
  for (const char* parallel : {"micro=2,recompute=conv*", "dp=2,micro=4,recompute=2"}) {
    SCOPED_TRACE(parallel);
    TrainingRun run = RunOf(model, parallel);
    run.batch_policy.statistics_of_micro_batches = true;
    ExpectSameBits(model, run);
  }
}

TEST(Recomputation, StrictPlansKeepTheBitsOfOneProcess) {
  const auto model = BuildEquivalenceModel("gpt", kSamples);
  ASSERT_TRUE(model.ok()) << model.status();
  TrainingRun alone = RunOf(*model, "micro=4");
  alone.plan.strict = true;
  const auto expected = RunGraph(model->graph, alone);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const char* parallel : {"micro=4,recompute=4", "dp=2,pp=2,micro=4,recompute=block*",
                               "pp=2,micro=4,schedule=1f1b,recompute=all"}) {
    SCOPED_TRACE(parallel);
    TrainingRun run = RunOf(*model, parallel);
    run.plan.strict = true;
    const auto actual = RunGraph(model->graph, run);
    ASSERT_TRUE(actual.ok()) << actual.status();
    EXPECT_EQ(actual->losses, expected->losses);
    for (const auto& [name, value] : expected->parameters) {
      EXPECT_TRUE(BitwiseEqual(actual->parameters.at(name), value)) << name;
    }
  }
}

// -- The memory.

constexpr int64_t kWidth = 32;
constexpr int64_t kRows = 512;  // samples of a micro-batch: activations outweigh weights
constexpr int64_t kActivation = kRows * kWidth * 4;
constexpr int kLayers = 16;

// Sixteen equal layers "layer<i>/", x W then Tanh, whose gradients need what the product reads and
// what Tanh makes: one activation per layer.
Graph UniformMlp() {
  Graph model;
  GraphBuilder b(model);
  ValueId x = model.AddInput(
      "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), Dim(kWidth)})});
  for (int i = 0; i < kLayers; ++i) {
    const Shape shape{kWidth, kWidth};
    const ValueId weight =
        model.AddVariable(absl::StrCat("w", i), {ValueKind::kTensor, DType::kFloat32, shape},
                          *Tensor::Zeros(DType::kFloat32, shape), true);
    b.set_name_prefix(absl::StrCat("layer", i, "/"));
    x = b.Op("Tanh", {b.Op("MatMul", {x, weight})});
  }
  model.AddOutput(x);
  EXPECT_TRUE(b.status().ok()) << b.status();
  TrainingSpec spec;
  spec.loss = ParseLoss("mse").value();
  spec.optimizer.kind = "sgd";
  auto graph = BuildTrainingGraph(model, spec);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

class NoData final : public InputSource {
 public:
  absl::Status Fill(int64_t, const FeedInput& input, int64_t, int64_t count,
                    void* target) override {
    std::memset(target, 0, DTypeBytes(input.dtype, input.sample_shape.num_elements()) * count);
    return absl::OkStatus();
  }
};

// Never called: pipelines are compiled here, not run.
class NoPeers final : public Communicator {
 public:
  RankId rank() const override { return RankId(0); }
  absl::StatusOr<ChannelHandle> OpenChannel(const Channel&) override { return next_++; }
  absl::StatusOr<CollectiveHandle> OpenCollective(const CollectiveSpec&) override {
    return next_++;
  }
  absl::Status Send(ChannelHandle, MessageKey, const void*) override { return NotRun(); }
  absl::Status WaitSent(ChannelHandle) override { return NotRun(); }
  absl::Status Receive(ChannelHandle, MessageKey, void*) override { return NotRun(); }
  absl::Status RunCollective(CollectiveHandle, MessageKey, void* const*) override {
    return NotRun();
  }
  void Abort(const absl::Status&) override {}

 private:
  static absl::Status NotRun() { return absl::InternalError("nothing is sent here"); }
  int next_ = 0;
};

struct StepMemory {
  int64_t planned = 0;            // what the plan's file says of rank 0
  int64_t estimated = 0;          // placement's estimate of the arena, without kernels
  int64_t required = 0;           // all that the executor's program needs
  int64_t measured = 0;           // of that, the arena
  int64_t lower_bound_bytes = 0;  // of that, the most bytes alive at once
  double again = 0;               // FLOPs that run a second time
  double flops = 0;
};

// Of rank 0 in a step of `micro_batches` of kRows samples.
StepMemory MeasureStep(const Graph& graph, const std::string& parallel, int micro_batches) {
  StepMemory memory;
  Plan plan = ParseParallel(absl::StrCat(parallel, ",micro=", micro_batches)).value();
  for (int i = 0; plan.mesh.pipeline == 2 && i < kLayers; ++i) {
    plan.stages[absl::StrCat("layer", i, "/*")] = i < kLayers / 2 ? 0 : 1;
  }
  const int64_t batch = kRows * micro_batches;
  const ClusterSpec cluster = ClusterSpec::Local(plan.mesh.size(), 1);
  const auto complete = CompletePlan(graph, cluster, plan, batch);
  EXPECT_TRUE(complete.ok()) << complete.status();
  const auto partitions = PartitionStep(graph, *complete, {true, batch}, CpuNodeEvaluator());
  EXPECT_TRUE(partitions.ok()) << partitions.status();
  const Partition& partition = partitions->front();
  const auto summary = Summarize(partition);
  EXPECT_TRUE(summary.ok()) << summary.status();
  memory.estimated = summary->arena_bytes;
  Plan predicted = *complete;
  const auto costs = CostModel::OfSpec(cluster);
  EXPECT_TRUE(costs.ok()) << costs.status();
  const absl::Status status = PredictPlan(*partitions, *costs, predicted, CompiledMemory(cluster));
  EXPECT_TRUE(status.ok()) << status;
  memory.planned = predicted.prediction.memory_bytes.front();
  memory.again = summary->recomputed_flops;
  memory.flops = summary->flops;

  const std::unique_ptr<Device> device = NewCpuDevice({});
  VariableStore variables(*device);
  EXPECT_TRUE(variables.Add(partition.variables).ok());
  NoData data;
  NoPeers peers;
  const auto program =
      CompileStep(partition, {device.get(), &variables, &peers, &data, &RealClock(), nullptr});
  EXPECT_TRUE(program.ok()) << program.status();
  memory.required = ProgramBytes((*program)->memory());
  memory.measured = (*program)->memory().arena_bytes;
  memory.lower_bound_bytes = (*program)->memory().lower_bound_bytes;
  return memory;
}

class RecomputationMemory : public ::testing::Test {
 protected:
  StepMemory Measure(const std::string& parallel, int micro_batches) const {
    return MeasureStep(graph_, parallel, micro_batches);
  }
  const Graph graph_ = UniformMlp();
};

// Of L layers in k segments the last is not recomputed, since its backward pass follows at once. At
// the peak, where it begins, the outputs of the k - 1 others and what is inside one are alive
// instead of all.
TEST_F(RecomputationMemory, FallsByTheActivationsInsideSegments) {
  const StepMemory kept = Measure("dp=1", 2);
  EXPECT_GE(kept.measured, kLayers * kActivation);
  EXPECT_EQ(kept.again, 0);
  for (const int segments : {2, 4, 8}) {
    SCOPED_TRACE(absl::StrCat(segments, " segments"));
    const StepMemory memory = Measure(absl::StrCat("recompute=", segments), 2);
    const int64_t saved = (kLayers - (segments - 1) - kLayers / segments) * kActivation;
    EXPECT_EQ(kept.estimated - memory.estimated, saved);
    EXPECT_EQ(kept.measured - memory.measured, saved);
    EXPECT_EQ(kept.lower_bound_bytes - memory.lower_bound_bytes, saved);
    // All layers but the last segment's, and but the last one of each segment: mostly products, in
    // two micro-batches.
    const double layers = (kLayers / segments - 1) * (segments - 1);
    const double products = layers * 2 * (2.0 * kRows * kWidth * kWidth);
    EXPECT_GT(memory.again, products);
    EXPECT_LT(memory.again, 1.3 * products);
    EXPECT_NEAR(memory.flops, kept.flops + memory.again, 1);
  }
}

// GPipe keeps every micro-batch until the backward passes begin. A stage that is one segment keeps
// what it read of each, and computes the rest of one.
TEST_F(RecomputationMemory, FallsByTheMicroBatchesInFlight) {
  for (const int micro_batches : {2, 4}) {
    SCOPED_TRACE(absl::StrCat(micro_batches, " micro-batches"));
    const StepMemory kept = Measure("pp=2,schedule=gpipe", micro_batches);
    const StepMemory memory = Measure("pp=2,schedule=gpipe,recompute=all", micro_batches);
    const int64_t saved = (micro_batches - 1) * (kLayers / 2) * kActivation;
    EXPECT_LE(kept.estimated - memory.estimated, saved);
    EXPECT_GE(kept.estimated - memory.estimated, saved - kActivation);
    // What is sent last stays until the step ends, when the executor waits for its channels.
    EXPECT_EQ(kept.measured - memory.measured, saved - kActivation);
  }
}

// Blocks of attention, whose kernels write in place and take workspaces, which differ between
// processors. A plan that knew neither was 12 % off on one with AVX2 alone, and the file of a plan
// left out the sums of gradients too.
TEST(TransformerMemory, FallsInTheExecutorAsPlanned) {
  const auto model = BuildEquivalenceModel("gpt", 1);
  ASSERT_TRUE(model.ok()) << model.status();
  TrainingSpec spec;
  spec.optimizer.kind = "sgd";
  const auto graph = BuildTrainingGraph(model->graph, spec);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const StepMemory kept = MeasureStep(*graph, "dp=1", 2);
  const StepMemory memory = MeasureStep(*graph, "recompute=block*", 2);
  for (const StepMemory& one : {kept, memory}) {
    const auto required = static_cast<double>(one.required);
    EXPECT_NEAR(static_cast<double>(one.planned), required, 0.01 * required);
  }
  const double planned = static_cast<double>(kept.planned - memory.planned);
  EXPECT_GT(planned, 0.2 * static_cast<double>(kept.measured));
  EXPECT_NEAR(static_cast<double>(kept.required - memory.required), planned, 0.01 * planned);
}

TEST_F(RecomputationMemory, OneSegmentAtTheEndOfThePipelineSavesNothingAndCostsNothing) {
  const StepMemory kept = Measure("dp=1", 2);
  const StepMemory memory = Measure("recompute=all", 2);
  EXPECT_EQ(memory.measured, kept.measured);
  EXPECT_EQ(memory.again, 0);
}

// -- What CompletePlan makes of it.

class CompletedRecomputation : public ::testing::Test {
 protected:
  Plan Complete(const std::string& parallel) {
    const Plan plan = ParseParallel(parallel).value();
    const ClusterSpec cluster = ClusterSpec::Local(plan.mesh.size(), 1);
    const auto complete = CompletePlan(graph_, cluster, plan, 4 * kRows);
    EXPECT_TRUE(complete.ok()) << complete.status();
    return *complete;
  }
  const Graph graph_ = UniformMlp();
};

TEST_F(CompletedRecomputation, SegmentsHaveEqualMemoryAndTheLastIsLeftOut) {
  const Plan plan = Complete("recompute=4");
  EXPECT_EQ(plan.recompute_segments, 0);
  for (int i = 0; i < 12; ++i) {
    const std::string segment = absl::StrCat("stage0.", i / 4);
    EXPECT_EQ(plan.recompute.at(absl::StrCat("layer", i, "/MatMul")), segment);
    EXPECT_EQ(plan.recompute.at(absl::StrCat("layer", i, "/Tanh")), segment);
  }
  EXPECT_EQ(plan.recompute.size(), 24u);
}

TEST_F(CompletedRecomputation, EachStageHasItsSegments) {
  const Plan plan = Complete("pp=2,micro=4,schedule=1f1b,recompute=2");
  EXPECT_EQ(plan.recompute.at("layer0/MatMul"), "stage0.0");
  EXPECT_EQ(plan.recompute.at("layer6/MatMul"), "stage0.1");
  EXPECT_EQ(plan.recompute.at("layer9/MatMul"), "stage1.0");
  EXPECT_FALSE(plan.recompute.contains("layer15/Tanh"));
  // GPipe keeps the last stage waiting too.
  const Plan gpipe = Complete("pp=2,micro=4,schedule=gpipe,recompute=2");
  EXPECT_EQ(gpipe.recompute.at("layer15/Tanh"), "stage1.1");
}

TEST_F(CompletedRecomputation, PatternsBecomeNames) {
  const Plan plan = Complete("recompute=layer1*+layer2/MatMul");
  EXPECT_EQ(plan.recompute.at("layer1/Tanh"), "layer1");
  EXPECT_EQ(plan.recompute.at("layer15/MatMul"), "layer15");
  EXPECT_EQ(plan.recompute.at("layer2/MatMul"), "layer2/MatMul");
  EXPECT_EQ(plan.recompute.size(), 2 * 7 + 1u);
}

TEST_F(CompletedRecomputation, TakesTime) {
  const auto predicted = [&](const std::string& parallel) {
    Plan plan = Complete(parallel);
    const auto partitions = PartitionStep(graph_, plan, {true, 4 * kRows}, CpuNodeEvaluator());
    EXPECT_TRUE(partitions.ok()) << partitions.status();
    const auto costs = CostModel::OfSpec(ClusterSpec::Local(1, 1));
    EXPECT_TRUE(costs.ok()) << costs.status();
    const absl::Status status = PredictPlan(*partitions, *costs, plan);
    EXPECT_TRUE(status.ok()) << status;
    return plan.prediction.compute_seconds;
  };
  // 9 of 16 layers run forward again; a backward pass costs about two forward.
  EXPECT_NEAR(predicted("recompute=4") / predicted("dp=1"), 1 + 9.0 / 16 / 3, 0.15);
}

TEST_F(CompletedRecomputation, PartitioningWantsNames) {
  Plan plan;
  plan.recompute_segments = 2;
  const auto partitions = PartitionStep(graph_, plan, {true, kRows}, CpuNodeEvaluator());
  EXPECT_EQ(
      partitions.status().message(),
      "the plan does not say yet which nodes its recomputed segments have; complete it first");
}

}  // namespace
}  // namespace weft::testing
