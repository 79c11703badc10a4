// More than data parallelism holds: for every mesh, the partitions of all ranks, run together by
// the naive interpreter in float64, make the same loss and the same new weights as the logical
// graph.
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/step_inputs.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "ops/testing/test_tensors.h"
#include "placement/completion/plan_completion.h"
#include "placement/partition/partition_summary.h"
#include "placement/partition/partitioner.h"
#include "placement/testing/reference_interpreter.h"
#include "training/graph/training_graph.h"

namespace weft::testing {
namespace {

// A forward graph in float64, written node by node.
class ModelBuilder {
 public:
  explicit ModelBuilder(Graph& graph) : graph_(graph), builder_(graph) {}

  void Name(const std::string& prefix) { builder_.set_name_prefix(prefix); }
  ValueId Input(const std::string& name, DType dtype, std::vector<int64_t> sample) {
    std::vector<Dim> dims = {Dim::Symbol("N")};
    dims.insert(dims.end(), sample.begin(), sample.end());
    return graph_.AddInput(name, {ValueKind::kTensor, dtype, SymbolicShape(std::move(dims))});
  }
  ValueId Weight(const std::string& name, Shape shape) {
    Tensor initial = RandomTensor(shape, ++seed_, -0.7, 0.7, DType::kFloat64);
    return graph_.AddVariable(name, {ValueKind::kTensor, DType::kFloat64, shape}, initial, true);
  }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.Op(op, std::move(inputs), std::move(attributes));
  }
  ValueId Ints(const std::vector<int64_t>& values) { return builder_.Ints(values); }
  ValueId Scalar(double value) { return builder_.Scalar(DType::kFloat64, value); }
  GraphBuilder& builder() { return builder_; }

 private:
  Graph& graph_;
  GraphBuilder builder_;
  uint64_t seed_ = 0;
};

Graph Mlp() {
  Graph graph;
  ModelBuilder b(graph);
  const ValueId x = b.Input("x", DType::kFloat64, {7});
  b.Name("fc1/");
  const ValueId h = b.Op("Gemm", {x, b.Weight("fc1.weight", {11, 7}), b.Weight("fc1.bias", {11})},
                         {{"transB", int64_t{1}}});
  b.Name("act/");
  const ValueId r = b.Op("Tanh", {h});
  b.Name("fc2/");
  const ValueId m = b.Op("Gemm", {r, b.Weight("fc2.weight", {5, 11}), b.Weight("fc2.bias", {5})},
                         {{"transB", int64_t{1}}});
  b.Name("act2/");
  const ValueId s = b.Op("Sigmoid", {m});
  b.Name("fc3/");
  const ValueId y =
      b.Op("Add", {b.Op("MatMul", {s, b.Weight("fc3.weight", {5, 6})}), b.Weight("fc3.bias", {6})});
  graph.AddOutput(y);
  EXPECT_TRUE(b.builder().status().ok()) << b.builder().status();
  return graph;
}

constexpr int64_t kTokens = 5;
constexpr int64_t kWidth = 12;
constexpr int64_t kHeads = 4;
constexpr int64_t kVocabulary = 13;

// x / rms(x), with the statistics over the last axis.
ValueId Normalize(ModelBuilder& b, ValueId x) {
  const ValueId mean = b.Op("ReduceMean", {b.Op("Mul", {x, x}), b.Ints({-1})});
  return b.Op("Div", {x, b.Op("Sqrt", {b.Op("Add", {mean, b.Scalar(1e-3)})})});
}

// [N,T,width] -> [N,heads,T,width/heads].
ValueId SplitHeads(ModelBuilder& b, ValueId x) {
  const ValueId apart = b.Op("Reshape", {x, b.Ints({0, 0, kHeads, kWidth / kHeads})});
  return b.Op("Transpose", {apart}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
}

ValueId Attention(ModelBuilder& b, ValueId x, const std::string& name) {
  const ValueId qkv =
      b.Op("Add", {b.Op("MatMul", {x, b.Weight(name + ".qkv.weight", {kWidth, 3 * kWidth})}),
                   b.Weight(name + ".qkv.bias", {3 * kWidth})});
  const std::vector<ValueId> parts =
      b.builder().Ops("", "Split", {qkv, b.Ints({kWidth, kWidth, kWidth})}, {{"axis", int64_t{2}}},
                      {true, true, true});
  const ValueId q = SplitHeads(b, parts[0]);
  const ValueId k =
      b.Op("Transpose", {SplitHeads(b, parts[1])}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  const ValueId scores = b.Op("Softmax", {b.Op("MatMul", {q, k})}, {{"axis", int64_t{-1}}});
  const ValueId mixed = b.Op("Transpose", {b.Op("MatMul", {scores, SplitHeads(b, parts[2])})},
                             {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  const ValueId joined = b.Op("Reshape", {mixed, b.Ints({0, 0, kWidth})});
  return b.Op("Add", {b.Op("MatMul", {joined, b.Weight(name + ".out.weight", {kWidth, kWidth})}),
                      b.Weight(name + ".out.bias", {kWidth})});
}

ValueId Block(ModelBuilder& b, ValueId x, const std::string& name) {
  b.Name(name + "/attention/");
  x = b.Op("Add", {x, Attention(b, Normalize(b, x), name)});
  b.Name(name + "/mlp/");
  const ValueId up =
      b.Op("Add", {b.Op("MatMul", {Normalize(b, x), b.Weight(name + ".up.weight", {kWidth, 17})}),
                   b.Weight(name + ".up.bias", {17})});
  const ValueId down =
      b.Op("MatMul", {b.Op("Tanh", {up}), b.Weight(name + ".down.weight", {17, kWidth})});
  return b.Op("Add", {x, b.Op("Add", {down, b.Weight(name + ".down.bias", {kWidth})})});
}

// Two blocks between an embedding and a head that share their weight.
Graph Transformer() {
  Graph graph;
  ModelBuilder b(graph);
  const ValueId tokens = b.Input("tokens", DType::kInt64, {kTokens});
  b.Name("embed/");
  const ValueId embedding = b.Weight("embedding", {kVocabulary, kWidth});
  ValueId x = b.Op("Gather", {embedding, tokens});
  x = Block(b, x, "block0");
  x = Block(b, x, "block1");
  b.Name("head/");
  const ValueId head = b.Op("Transpose", {embedding}, {{"perm", std::vector<int64_t>{1, 0}}});
  graph.AddOutput(b.Op("MatMul", {Normalize(b, x), head}));
  EXPECT_TRUE(b.builder().status().ok()) << b.builder().status();
  return graph;
}

Plan MakePlan(int data, int tensor, int pipeline, int micro_batches) {
  Plan plan;
  plan.mesh = {data, tensor, pipeline};
  plan.micro_batches = micro_batches;
  plan.bucket_bytes = 300;  // several buckets
  return plan;
}

class PartitionEquivalenceTest : public ::testing::Test {
 protected:
  void UseMlp(const std::string& optimizer = "nesterov") {
    Build(Mlp(), "mse", optimizer);
    values_.data = {{"x", RandomTensor({64, 7}, 21, -1, 1, DType::kFloat64)},
                    {"labels", RandomTensor({64, 6}, 22, -1, 1, DType::kFloat64)}};
  }

  void UseTransformer() {
    Build(Transformer(), "softmax_cross_entropy", "adam");
    values_.data = {{"tokens", RandomTensor({16, kTokens}, 23, 0, kVocabulary, DType::kInt64)},
                    {"labels", RandomTensor({16, kTokens}, 24, 0, kVocabulary, DType::kInt64)}};
  }

  // What tensor parallelism after Megatron hints for.
  static void HintMlp(Plan& plan) {
    plan.tensor_shardings = {{"fc1.weight", AxisSharding::Split(0)},
                             {"fc1.bias", AxisSharding::Split(0)},
                             {"fc2.weight", AxisSharding::Split(1)}};
  }
  static void HintTransformer(Plan& plan) {
    plan.tensor_shardings = {
        {"*.qkv.weight", AxisSharding::Split(1, 3)}, {"*.qkv.bias", AxisSharding::Split(0, 3)},
        {"*.out.weight", AxisSharding::Split(0)},    {"*.up.weight", AxisSharding::Split(1)},
        {"*.up.bias", AxisSharding::Split(0)},       {"*.down.weight", AxisSharding::Split(0)}};
  }
  static void StageMlp(Plan& plan) {
    plan.stages = {{"fc1/*", 0}, {"act/*", 0}, {"fc2/*", 1}, {"act2/*", 1}, {"fc3/*", 1}};
  }
  static void StageTransformer(Plan& plan) {
    plan.stages = {{"embed/*", 0}, {"block0/*", 0}, {"block1/*", 1}, {"head/*", 1}};
  }

  void ExpectSame(const Plan& plan, int64_t batch, double tolerance = 1e-12) {
    SCOPED_TRACE(absl::StrCat(plan.mesh.ToString(), " V=", plan.micro_batches, " batch ", batch));
    const auto partitions = PartitionStep(graph_, plan, {true, batch}, CpuNodeEvaluator());
    ASSERT_TRUE(partitions.ok()) << partitions.status();
    StepValues values = values_;
    for (auto& [name, tensor] : values.data) tensor = tensor.Rows(0, batch);
    const auto expected = EvaluateStep(graph_, values, batch);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const auto actual = InterpretStep(*partitions, values);
    ASSERT_TRUE(actual.ok()) << actual.status();
    EXPECT_FALSE(expected->reports.empty());
    EXPECT_LE(Difference(*expected, *actual), tolerance);
  }

  void Build(Graph model, const std::string& loss, const std::string& optimizer) {
    TrainingSpec spec;
    spec.loss = *ParseLoss(loss);
    spec.optimizer.kind = optimizer;
    absl::StatusOr<Graph> graph = BuildTrainingGraph(model, spec);
    ASSERT_TRUE(graph.ok()) << graph.status();
    graph_ = *std::move(graph);
    values_.scalars = {{kLearningRateInput, Tensor::Scalar<float>(0.5f)},
                       {kStepInput, Tensor::Scalar<int64_t>(3)}};
    uint64_t seed = 100;
    for (const Variable& variable : graph_.variables()) {
      const ValueType& type = graph_.value(variable.value).type;
      // Optimizer state that a few steps may have left; second moments are not negative.
      Tensor initial = variable.initial;
      if (!variable.slot_of.empty()) {
        initial = RandomTensor(*type.shape.ToConcrete(), ++seed, 0.01, 0.3, type.dtype);
      }
      values_.variables[variable.name] = initial;
    }
  }

  Graph graph_;
  StepValues values_;
};

TEST_F(PartitionEquivalenceTest, OneRankWithMicroBatches) {
  UseMlp();
  for (int micro_batches : {1, 2, 3, 7}) ExpectSame(MakePlan(1, 1, 1, micro_batches), 13);
}

TEST_F(PartitionEquivalenceTest, DataParallel) {
  UseMlp();
  for (int data : {2, 3, 5}) {
    for (int micro_batches : {5, 8}) {
      for (int64_t batch : {int64_t{13}, int64_t{64}}) {
        Plan plan = MakePlan(data, 1, 1, micro_batches);
        ExpectSame(plan, batch);
        plan.reduction = Reduction::kOrderedTree;
        plan.strict = true;
        ExpectSame(plan, batch);
      }
    }
  }
}

// Every ZeRO stage with every optimizer: 2 and 3 replicas, rows that do not divide, a fourth
// replica that is idle in a short batch.
TEST_F(PartitionEquivalenceTest, StateSplitOverReplicas) {
  for (const char* optimizer : {"sgd", "momentum", "adam"}) {
    SCOPED_TRACE(optimizer);
    UseMlp(optimizer);
    for (int zero : {1, 2, 3}) {
      for (int data : {2, 3, 4}) {
        SCOPED_TRACE(absl::StrCat("zero=", zero));
        Plan plan = MakePlan(data, 1, 1, 5);
        plan.zero = zero;
        ExpectSame(plan, 13);
        ExpectSame(plan, 2);
        plan.reduction = Reduction::kOrderedTree;
        plan.strict = true;
        ExpectSame(plan, 13);
      }
    }
  }
}

TEST_F(PartitionEquivalenceTest, StateSplitOverReplicasOfTensorShardsAndStages) {
  UseMlp("adam");
  for (int zero : {1, 2, 3}) {
    SCOPED_TRACE(absl::StrCat("zero=", zero));
    Plan plan = MakePlan(2, 2, 2, 4);
    plan.zero = zero;
    HintMlp(plan);
    StageMlp(plan);
    ExpectSame(plan, 13);
    plan.mesh.tensor = 3;
    ExpectSame(plan, 13);
  }
  UseTransformer();
  for (int zero : {1, 3}) {
    SCOPED_TRACE(absl::StrCat("transformer zero=", zero));
    Plan plan = MakePlan(2, 2, 2, 4);
    plan.zero = zero;
    HintTransformer(plan);
    StageTransformer(plan);
    ExpectSame(plan, 8, 1e-11);
  }
}

// Adam on [11,7] [11] [5,11] [5] [5,6] [6] of doubles for 2 replicas: rows 6 + 5 or 3 + 2 or 3 + 3.
TEST_F(PartitionEquivalenceTest, VariableBytesFallAsPredicted) {
  UseMlp("adam");
  const std::vector<int64_t> all = {11 * 7, 11, 5 * 11, 5, 5 * 6, 6};
  const std::vector<int64_t> first = {6 * 7, 6, 3 * 11, 3, 3 * 6, 3};
  int64_t whole = 0;
  int64_t rows = 0;
  for (const int64_t elements : all) whole += 8 * elements;
  for (const int64_t elements : first) rows += 8 * elements;
  for (int zero : {0, 1, 2, 3}) {
    Plan plan = MakePlan(2, 1, 1, 2);
    plan.zero = zero;
    const auto partitions = PartitionStep(graph_, plan, {true, 8}, CpuNodeEvaluator());
    ASSERT_TRUE(partitions.ok()) << partitions.status();
    const int64_t of_state[] = {2 * rows, 2 * (whole - rows)};
    const int64_t of_parameters[] = {rows, whole - rows};
    for (int rank : {0, 1}) {
      const auto summary = Summarize((*partitions)[rank]);
      ASSERT_TRUE(summary.ok()) << summary.status();
      const int64_t expected =
          (zero == 3 ? of_parameters[rank] : whole) + (zero > 0 ? of_state[rank] : 2 * whole);
      EXPECT_EQ(summary->variable_bytes, expected) << "zero=" << zero << " rank " << rank;
    }
  }
}

// Rajbhandari et al. 2020, 7: a reduce-scatter and an all-gather send n (D - 1) / D each; stages 2
// and 3 send no more. With our stage 1 the updated rows are gathered besides. Over all ranks
// nothing depends on how rows divide. So little data is all-reduced by recursive doubling, each
// tensor padded to 64 bytes: over all ranks 2, 4 and 10 times what 2, 3 and 5 ranks sum.
TEST_F(PartitionEquivalenceTest, BytesSentAreTheFormulas) {
  UseMlp("adam");
  int64_t bytes = 0;
  int64_t padded = 0;
  for (const int64_t elements : {11 * 7, 11, 5 * 11, 5, 5 * 6, 6}) {
    bytes += 8 * elements;
    padded += (8 * elements + 63) / 64 * 64;
  }
  for (const auto& [data, copies] : {std::pair(2, 2), {3, 4}, {5, 10}}) {
    const auto sent = [&, data = data](int zero) {
      Plan plan = MakePlan(data, 1, 1, data);
      plan.zero = zero;
      const auto partitions = PartitionStep(graph_, plan, {true, 15}, CpuNodeEvaluator());
      EXPECT_TRUE(partitions.ok()) << partitions.status();
      int64_t total = 0;
      for (const Partition& partition : *partitions) total += Summarize(partition)->sent_bytes;
      return total;
    };
    const int64_t round = bytes * (data - 1);
    const int64_t reports = copies * 2 * 64;  // loss and its weight
    EXPECT_EQ(sent(0), copies * padded + reports) << data;
    EXPECT_EQ(sent(1), copies * padded + round + reports) << data;
    EXPECT_EQ(sent(2), 2 * round + reports) << data;
    EXPECT_EQ(sent(3), 2 * round + reports) << data;
  }
}

TEST_F(PartitionEquivalenceTest, WhatCannotBeSplitStaysWholeAndIsSaid) {
  UseMlp("adam");
  Plan plan;
  plan.mesh.data = 6;  // fc2.weight, fc2.bias and fc3.weight have 5 rows
  plan.zero = 1;
  const auto complete = CompletePlan(graph_, ClusterSpec::Local(6, 1), plan, 12);
  ASSERT_TRUE(complete.ok()) << complete.status();
  EXPECT_THAT(
      complete->zero_replicated,
      ::testing::ElementsAre(::testing::Pair("fc2.bias", "axis 0 has 5 rows for 6 replicas"),
                             ::testing::Pair("fc2.weight", "axis 0 has 5 rows for 6 replicas"),
                             ::testing::Pair("fc3.weight", "axis 0 has 5 rows for 6 replicas")));
  ExpectSame(*complete, 12);
  UseMlp("sgd");
  EXPECT_THAT(CompletePlan(graph_, ClusterSpec::Local(6, 1), plan, 12)->zero_replicated,
              ::testing::Contains(::testing::Pair("fc1.bias", "it has no optimizer state")));
}

// An evaluation of the same job finds the parameters as the training left them.
TEST_F(PartitionEquivalenceTest, EvaluationReadsTheSameParts) {
  UseMlp("adam");
  Plan plan = MakePlan(2, 1, 1, 2);
  plan.zero = 3;
  const auto training = PartitionStep(graph_, plan, {true, 8}, CpuNodeEvaluator());
  const auto evaluation = PartitionStep(graph_, plan, {false, 5}, CpuNodeEvaluator());
  ASSERT_TRUE(training.ok()) << training.status();
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  for (int rank : {0, 1}) {
    std::map<std::string, Shape> shapes;
    for (const VariableShard& shard : (*training)[rank].variables) {
      shapes[shard.name] = shard.local_shape;
    }
    EXPECT_FALSE((*evaluation)[rank].variables.empty());
    for (const VariableShard& shard : (*evaluation)[rank].variables) {
      EXPECT_EQ(shard.local_shape, shapes.at(shard.name)) << shard.name;
      EXPECT_EQ(shard.data_shards, 2) << shard.name;
    }
  }
}

TEST_F(PartitionEquivalenceTest, ShortLastBatchLeavesReplicasIdle) {
  UseMlp();
  for (int64_t batch : {1, 2, 3}) {
    Plan plan = MakePlan(4, 1, 1, 4);
    ExpectSame(plan, batch);
    plan.reduction = Reduction::kOrderedTree;
    ExpectSame(plan, batch);
  }
}

TEST_F(PartitionEquivalenceTest, TensorParallel) {
  UseMlp();
  for (int tensor : {2, 3, 5}) {
    Plan plan = MakePlan(1, tensor, 1, 2);
    ExpectSame(plan, 9);  // no hints: everything replicated
    HintMlp(plan);
    ExpectSame(plan, 9);
  }
}

TEST_F(PartitionEquivalenceTest, AnySingleHintIsCorrect) {
  UseMlp("adam");
  for (const Variable& variable : graph_.variables()) {
    if (!variable.slot_of.empty()) continue;
    const Shape shape = *graph_.value(variable.value).type.shape.ToConcrete();
    for (int axis = 0; axis < shape.rank(); ++axis) {
      SCOPED_TRACE(absl::StrCat(variable.name, " axis ", axis));
      Plan plan = MakePlan(1, 2, 1, 2);
      plan.tensor_shardings = {{variable.name, AxisSharding::Split(axis)}};
      ExpectSame(plan, 5);
    }
  }
}

TEST_F(PartitionEquivalenceTest, HintsForActivations) {
  UseMlp();
  for (const AxisSharding hint :
       {AxisSharding::Split(0), AxisSharding::Split(1), AxisSharding::Replicated()}) {
    Plan plan = MakePlan(1, 2, 1, 2);
    HintMlp(plan);
    plan.tensor_shardings["act/Tanh"] = hint;
    plan.tensor_shardings["fc2/Gemm"] = hint;
    ExpectSame(plan, 8);
  }
}

TEST_F(PartitionEquivalenceTest, Pipeline) {
  UseMlp();
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (int micro_batches : {1, 2, 5}) {
      Plan plan = MakePlan(1, 1, 2, micro_batches);
      plan.schedule = schedule;
      StageMlp(plan);
      ExpectSame(plan, 11);
    }
  }
}

TEST_F(PartitionEquivalenceTest, PipelineOfFour) {
  UseMlp();
  Plan plan = MakePlan(1, 1, 4, 6);
  plan.schedule = "1f1b";
  plan.stages = {{"fc1/*", 0}, {"act/*", 1}, {"fc2/*", 2}, {"act2/*", 3}, {"fc3/*", 3}};
  ExpectSame(plan, 13);
}

TEST_F(PartitionEquivalenceTest, ZeroBubbleRunsWeightGradientsApart) {
  UseMlp("adam");
  for (int micro_batches : {1, 2, 5}) {
    Plan plan = MakePlan(1, 1, 2, micro_batches);
    plan.schedule = "zero_bubble";
    StageMlp(plan);
    ExpectSame(plan, 11);
    plan.mesh.pipeline = 4;
    plan.stages = {{"fc1/*", 0}, {"act/*", 1}, {"fc2/*", 2}, {"act2/*", 3}, {"fc3/*", 3}};
    ExpectSame(plan, 11);
  }
  Plan plan = MakePlan(2, 2, 2, 6);
  plan.schedule = "zero_bubble";
  StageMlp(plan);
  HintMlp(plan);
  ExpectSame(plan, 17);
}

TEST_F(PartitionEquivalenceTest, InterleavedRanksRunSeveralStages) {
  UseMlp("adam");
  for (int micro_batches : {1, 2, 4, 5}) {
    Plan plan = MakePlan(1, 1, 2, micro_batches);
    plan.schedule = "interleaved";
    plan.chunks = 2;
    plan.stages = {{"fc1/*", 0}, {"act/*", 1}, {"fc2/*", 2}, {"act2/*", 3}, {"fc3/*", 3}};
    ExpectSame(plan, 11);
    plan.mesh = {2, 2, 2};
    HintMlp(plan);
    ExpectSame(plan, 11);
  }
}

TEST_F(PartitionEquivalenceTest, TransformerOnEverySchedule) {
  UseTransformer();
  Plan plan = MakePlan(1, 1, 2, 4);
  StageTransformer(plan);
  plan.schedule = "zero_bubble";
  ExpectSame(plan, 11, 1e-11);
}

// The last stage's gradients of the shared weight wait at the first for several micro-batches: as
// many as an inbox holds.
TEST_F(PartitionEquivalenceTest, ATiedWeightOverChunksNeedsRoomForItsGradients) {
  UseTransformer();
  Plan plan = MakePlan(1, 1, 2, 4);
  plan.schedule = "interleaved";
  plan.chunks = 2;
  plan.stages = {{"embed/*", 0},      {"block0/attention/*", 0},
                 {"block0/mlp/*", 1}, {"block1/attention/*", 2},
                 {"block1/mlp/*", 3}, {"head/*", 3}};
  ExpectSame(plan, 11, 1e-11);
  const auto partitions = PartitionStep(graph_, plan, {true, 40'000'000}, CpuNodeEvaluator());
  EXPECT_EQ(partitions.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(partitions.status().message());
  EXPECT_NE(message.find("deadlock: stage "), std::string::npos) << message;
  EXPECT_NE(message.find("has no credit left for micro-batch"), std::string::npos) << message;
}

TEST_F(PartitionEquivalenceTest, DataAndPipeline) {
  UseMlp();
  Plan plan = MakePlan(2, 1, 2, 5);
  StageMlp(plan);
  ExpectSame(plan, 17);
  plan.reduction = Reduction::kOrderedTree;
  ExpectSame(plan, 17);
  ExpectSame(plan, 1);
}

TEST_F(PartitionEquivalenceTest, AllThreeAxes) {
  UseMlp();
  Plan plan = MakePlan(2, 2, 2, 5);
  StageMlp(plan);
  HintMlp(plan);
  ExpectSame(plan, 17);
  plan.reduction = Reduction::kOrderedTree;
  plan.schedule = "1f1b";
  ExpectSame(plan, 17);
}

TEST_F(PartitionEquivalenceTest, TransformerWithTiedWeights) {
  UseTransformer();
  ExpectSame(MakePlan(1, 1, 1, 2), 5);
  ExpectSame(MakePlan(2, 1, 1, 4), 7);
  Plan plan = MakePlan(1, 1, 2, 3);
  StageTransformer(plan);
  ExpectSame(plan, 7);
}

TEST_F(PartitionEquivalenceTest, TransformerTensorParallel) {
  UseTransformer();
  for (int tensor : {2, 4}) {
    Plan plan = MakePlan(1, tensor, 1, 2);
    HintTransformer(plan);
    ExpectSame(plan, 5, 1e-11);
  }
}

TEST_F(PartitionEquivalenceTest, TransformerOnAllAxes) {
  UseTransformer();
  Plan plan = MakePlan(2, 2, 2, 4);
  HintTransformer(plan);
  StageTransformer(plan);
  plan.schedule = "1f1b";
  ExpectSame(plan, 11, 1e-11);
  ExpectSame(plan, 1, 1e-11);
}

TEST_F(PartitionEquivalenceTest, TheLossMayNeedSumsOfAnotherStage) {
  UseTransformer();
  Plan plan = MakePlan(2, 1, 2, 4);
  StageTransformer(plan);
  plan.stages["loss/LossWeight"] = 0;
  ExpectSame(plan, 7);
}

TEST_F(PartitionEquivalenceTest, GradientReportsOnAllAxes) {
  TrainingSpec spec;
  spec.loss = *ParseLoss("mse");
  spec.report_gradients = true;
  UseMlp();
  values_.variables.clear();
  graph_ = *BuildTrainingGraph(Mlp(), spec);
  for (const Variable& variable : graph_.variables()) {
    values_.variables[variable.name] = variable.initial;
  }
  Plan plan = MakePlan(2, 2, 2, 4);
  StageMlp(plan);
  HintMlp(plan);
  ExpectSame(plan, 17);
}

TEST_F(PartitionEquivalenceTest, Evaluation) {
  UseMlp();
  graph_ = *BuildEvaluationGraph(Mlp(), *ParseLoss("mse"), {"loss"});
  StepValues values = values_;
  for (auto& [name, tensor] : values.data) tensor = tensor.Rows(0, 13);
  Plan plan = MakePlan(2, 2, 2, 4);
  StageMlp(plan);
  HintMlp(plan);
  const auto partitions = PartitionStep(graph_, plan, {false, 13}, CpuNodeEvaluator());
  ASSERT_TRUE(partitions.ok()) << partitions.status();
  const auto actual = InterpretStep(*partitions, values);
  ASSERT_TRUE(actual.ok()) << actual.status();
  StepOutcome expected = *EvaluateStep(graph_, values, 13);
  expected.variables = actual->variables;  // nothing changes
  EXPECT_LE(Difference(expected, *actual), 1e-12);
}

TEST_F(PartitionEquivalenceTest, EvaluationOfATrainingGraphKeepsTheForwardPass) {
  UseMlp();
  const auto partitions =
      PartitionStep(graph_, MakePlan(2, 1, 1, 2), {false, 8}, CpuNodeEvaluator());
  ASSERT_TRUE(partitions.ok()) << partitions.status();
  for (const Partition& partition : *partitions) {
    EXPECT_TRUE(partition.guard.empty());
    for (const NodeId id : partition.micro[0].node_ids()) {
      EXPECT_EQ(partition.micro[0].node(id).phase, Phase::kForward);
    }
  }
}

// Strict bits: the same micro-batches, whoever runs them.
TEST_F(PartitionEquivalenceTest, StrictStepsHaveTheSameBitsOnAnyNumberOfReplicas) {
  UseMlp();
  const int64_t batch = 29;
  StepValues values = values_;
  for (auto& [name, tensor] : values.data) tensor = tensor.Rows(0, batch);
  for (int micro_batches : {4, 6, 7}) {
    std::optional<StepOutcome> first;
    for (int data : {1, 2, 3, 4}) {
      Plan plan = MakePlan(data, 1, 1, micro_batches);
      plan.reduction = Reduction::kOrderedTree;
      plan.strict = true;
      const auto partitions = PartitionStep(graph_, plan, {true, batch}, CpuNodeEvaluator());
      ASSERT_TRUE(partitions.ok()) << partitions.status();
      const auto outcome = InterpretStep(*partitions, values);
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      if (!first.has_value()) first = *outcome;
      for (const auto& [name, value] : first->variables) {
        EXPECT_TRUE(BitwiseEqual(value, outcome->variables.at(name)))
            << name << ", " << data << " replicas, V=" << micro_batches;
      }
      EXPECT_TRUE(BitwiseEqual(first->reports.at("loss"), outcome->reports.at("loss")));
    }
  }
}

// Nor does it matter how much each replica runs, even nothing.
TEST_F(PartitionEquivalenceTest, StrictStepsHaveTheSameBitsWithAnyShares) {
  UseMlp();
  const int64_t batch = 29;
  StepValues values = values_;
  for (auto& [name, tensor] : values.data) tensor = tensor.Rows(0, batch);
  std::optional<StepOutcome> first;
  for (const std::vector<int>& shares :
       std::vector<std::vector<int>>{{1}, {3, 1}, {1, 3}, {1, 5, 1}, {9, 1, 1}, {1, 1, 12}}) {
    Plan plan = MakePlan(static_cast<int>(shares.size()), 1, 1, 7);
    plan.reduction = Reduction::kOrderedTree;
    plan.strict = true;
    plan.shares = shares;
    const auto partitions = PartitionStep(graph_, plan, {true, batch}, CpuNodeEvaluator());
    ASSERT_TRUE(partitions.ok()) << partitions.status();
    for (const Partition& partition : *partitions) {
      EXPECT_EQ(static_cast<int>(partition.micro_batches.size()),
                plan.FirstMicroBatch(partition.rank.value + 1, 7) -
                    plan.FirstMicroBatch(partition.rank.value, 7));
    }
    const auto outcome = InterpretStep(*partitions, values);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    if (!first.has_value()) first = *outcome;
    for (const auto& [name, value] : first->variables) {
      EXPECT_TRUE(BitwiseEqual(value, outcome->variables.at(name)))
          << name << ", shares " << absl::StrJoin(shares, ":");
    }
    EXPECT_TRUE(BitwiseEqual(first->reports.at("loss"), outcome->reports.at("loss")));
  }
}

}  // namespace
}  // namespace weft::testing
