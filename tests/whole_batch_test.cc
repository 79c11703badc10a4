// Models that mix the samples of a batch: replicas compute batch statistics together, and what they
// cannot compute together stays in one micro-batch on one replica. Both give what one process
// gives, in training and in evaluations.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "placement/files/plan_file.h"
#include "platform/file_system.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/training_run.h"
#include "training/data/data_set.h"
#include "training/job/job.h"
#include "training/verification/plan_verification.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kBatch = 13;  // no number of replicas divides it
constexpr int64_t kSamples = 3 * kBatch + 1;
constexpr int64_t kFeatures = 6;

ValueType FloatType(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

class ModelBuilder {
 public:
  explicit ModelBuilder(Graph& graph) : b(graph), graph_(graph) {}
  ValueId Variable(const std::string& name, const Shape& shape, double center,
                   bool trainable = true) {
    return graph_.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape},
                              RandomTensor(shape, ++seed_, center - 0.4, center + 0.4), trainable);
  }

  GraphBuilder b;

 private:
  Graph& graph_;
  uint64_t seed_ = 0;
};

// Convolutions with batch normalization between them; the running statistics of the first are
// variables, the others' are not wanted. Values are far from zero, where squares would cancel.
EquivalenceModel Convolutions() {
  EquivalenceModel model;
  model.name = "whole";
  ModelBuilder m(model.graph);
  ValueId x = model.graph.AddInput("x", FloatType({Dim::Symbol("N"), 3, 8, 8}));
  for (const std::string layer : {"layer0", "layer1", "layer2"}) {
    m.b.set_name_prefix(layer + "/");
    x = m.b.Op(
        "Conv", {x, m.Variable(layer + ".weight", {3, 3, 3, 3}, 0)},
        {{"kernel_shape", std::vector<int64_t>{3, 3}}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}});
    x = m.b.Op(
        "BatchNormalization",
        {x, m.Variable(layer + ".scale", {3}, 1), m.Variable(layer + ".shift", {3}, 0),
         m.Variable(layer + ".mean", {3}, 0, false), m.Variable(layer + ".var", {3}, 1, false)},
        {{"training_mode", int64_t{1}}, {"momentum", 0.75f}});
    x = m.b.Op("Relu", {x});
  }
  m.b.set_name_prefix("head/");
  model.graph.AddOutput(
      m.b.Op("Gemm", {m.b.Op("Flatten", {x}), m.Variable("head.weight", {192, 5}, 0)}));
  EXPECT_TRUE(m.b.status().ok()) << m.b.status();
  model.data["x"] = RandomTensor({kSamples, 3, 8, 8}, 901, 1, 3);
  model.data["labels"] = RandomTensor({kSamples}, 902, 0, 5, DType::kInt64);
  return model;
}

// Two towers whose outputs are compared pair by pair; sample i belongs to sample i.
EquivalenceModel Towers() {
  EquivalenceModel model;
  model.name = "towers";
  ModelBuilder m(model.graph);
  const auto tower = [&](const std::string& name) {
    m.b.set_name_prefix(name + "/");
    const ValueId x = model.graph.AddInput(name, FloatType({Dim::Symbol("N"), kFeatures}));
    const ValueId hidden =
        m.b.Op("Tanh", {m.b.Op("MatMul", {x, m.Variable(name + ".in", {kFeatures, 8}, 0)})});
    return m.b.Op("MatMul", {hidden, m.Variable(name + ".out", {8, 4}, 0)});
  };
  const ValueId image = tower("image");
  const ValueId text = tower("text");
  m.b.set_name_prefix("pairs/");
  model.graph.AddOutput(m.b.Op(
      "MatMul", {image, m.b.Op("Transpose", {text}, {{"perm", std::vector<int64_t>{1, 0}}})}));
  EXPECT_TRUE(m.b.status().ok()) << m.b.status();
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 3 * kBatch; ++i) labels.push_back(i % kBatch);
  model.data["image"] = RandomTensor({3 * kBatch, kFeatures}, 903);
  model.data["text"] = RandomTensor({3 * kBatch, kFeatures}, 904);
  model.data["labels"] = Tensor::Of<int64_t>({3 * kBatch}, labels);
  return model;
}

// Scores that are turned around where the mean of the batch is above zero. Single samples are on
// both sides of it.
EquivalenceModel BranchByTheBatch() {
  EquivalenceModel model;
  model.name = "branch";
  ModelBuilder m(model.graph);
  const ValueId x = model.graph.AddInput("x", FloatType({Dim::Symbol("N"), kFeatures}));
  const ValueId scores = m.b.Op("MatMul", {x, m.Variable("weight", {kFeatures, 5}, 0)});
  const ValueId mean = m.b.Op("ReduceMean", {x}, {{"keepdims", int64_t{0}}});
  const ValueId decides = m.b.Op("Greater", {mean, m.b.Float(0)});
  model.graph.AddOutput(m.b.Op("Where", {decides, m.b.Op("Neg", {scores}), scores}));
  EXPECT_TRUE(m.b.status().ok()) << m.b.status();
  model.data["x"] = RandomTensor({kSamples, kFeatures}, 905);
  model.data["labels"] = RandomTensor({kSamples}, 906, 0, 5, DType::kInt64);
  return model;
}

// Each sample takes from all samples of the batch, by how like they are to it.
EquivalenceModel AttentionOverTheBatch() {
  EquivalenceModel model;
  model.name = "attention";
  ModelBuilder m(model.graph);
  const ValueId x = model.graph.AddInput("x", FloatType({Dim::Symbol("N"), kFeatures}));
  m.b.set_name_prefix("pairs/");
  const ValueId like =
      m.b.Op("MatMul", {x, m.b.Op("Transpose", {x}, {{"perm", std::vector<int64_t>{1, 0}}})});
  m.b.set_name_prefix("");
  const ValueId own = m.b.Op("MatMul", {x, m.Variable("weight", {kFeatures, 5}, 0)});
  model.graph.AddOutput(m.b.Op("MatMul", {like, own}));
  EXPECT_TRUE(m.b.status().ok()) << m.b.status();
  model.data["x"] = RandomTensor({kSamples, kFeatures}, 909);
  model.data["labels"] = RandomTensor({kSamples}, 910, 0, 5, DType::kInt64);
  return model;
}

TrainingRun RunOf(const EquivalenceModel& model, const std::string& parallel) {
  TrainingRun run;
  run.data = WriteDataFiles(model, ::testing::TempDir());
  run.batch = kBatch;
  run.steps = 7;  // Convolutions have a last batch of one sample among them
  run.optimizer.kind = "momentum";
  run.optimizer.learning_rate = 0.02;
  if (!parallel.empty()) run.plan = ParseParallel(parallel).value();
  run.workers = run.plan.mesh.size();
  return run;
}

void ExpectSameTraining(const EquivalenceModel& model, const std::string& parallel) {
  SCOPED_TRACE(parallel);
  const auto alone = RunGraph(model.graph, RunOf(model, ""));
  ASSERT_TRUE(alone.ok()) << alone.status();
  const auto spread = RunGraph(model.graph, RunOf(model, parallel));
  ASSERT_TRUE(spread.ok()) << spread.status();
  EXPECT_TRUE(spread->plan.whole_batch);
  EXPECT_LT(LargestRelativeGap(spread->losses, alone->losses), 1e-5);
  ASSERT_EQ(spread->parameters.size(), alone->parameters.size());
  for (const auto& [name, expected] : alone->parameters) {
    const std::vector<double> a = *ToDoubles(spread->parameters.at(name));
    const std::vector<double> b = *ToDoubles(expected);
    ASSERT_EQ(a.size(), b.size()) << name;
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << name << " " << i;
  }
}

TEST(WholeBatch, StatisticsOverReplicasAreThoseOfOneProcess) {
  const EquivalenceModel model = Convolutions();
  for (const char* parallel :
       {"dp=2", "dp=3", "dp=2,pp=2", "pp=2", "dp=2,zero=1", "dp=2,zero=2", "dp=3,zero=3"}) {
    ExpectSameTraining(model, parallel);
  }
}

// The last batch is one sample: one replica has none, and no gradients that could be summed while
// micro-batches run. Its collectives come in another order then.
TEST(ReplicasWithoutSamples, CutGradientsAreThoseOfOneProcess) {
  auto model = BuildEquivalenceModel("lenet", kSamples - kBatch);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto alone = RunGraph(model->graph, RunOf(*model, ""));
  ASSERT_TRUE(alone.ok()) << alone.status();
  for (const char* parallel :
       {"dp=2", "dp=2,zero=2", "dp=2,zero=3", "dp=3,zero=2", "dp=3,zero=3", "dp=2,pp=2,zero=2"}) {
    const auto spread = RunGraph(model->graph, RunOf(*model, parallel));
    ASSERT_TRUE(spread.ok()) << parallel << ": " << spread.status();
    EXPECT_LT(LargestRelativeGap(spread->losses, alone->losses), 1e-5) << parallel;
  }
}

// A collective of a segment that runs again is not one of them: its result is kept.
TEST(WholeBatch, RecomputationKeepsTheStatistics) {
  ExpectSameTraining(Convolutions(), "dp=2,recompute=layer*");
}

TEST(WholeBatch, ChannelsMayBeSplitToo) {
  EquivalenceModel model = Convolutions();
  TrainingRun run = RunOf(model, "dp=2,tp=2");
  for (const std::string layer : {"layer0", "layer1", "layer2"}) {
    run.plan.tensor_shardings[layer + ".weight"] = AxisSharding::Split(0);
  }
  const auto alone = RunGraph(model.graph, RunOf(model, ""));
  ASSERT_TRUE(alone.ok()) << alone.status();
  const auto spread = RunGraph(model.graph, run);
  ASSERT_TRUE(spread.ok()) << spread.status();
  EXPECT_LT(LargestRelativeGap(spread->losses, alone->losses), 1e-5);
}

// The statistics of each micro-batch are others: what was accepted is done.
TEST(WholeBatch, StatisticsOfMicroBatchesHaveToBeAskedFor) {
  const EquivalenceModel model = Convolutions();
  const auto alone = RunGraph(model.graph, RunOf(model, ""));
  ASSERT_TRUE(alone.ok()) << alone.status();
  TrainingRun run = RunOf(model, "dp=2");
  run.batch_policy.statistics_of_micro_batches = true;
  const auto cut = RunGraph(model.graph, run);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_FALSE(cut->plan.whole_batch);
  EXPECT_GT(LargestRelativeGap(cut->losses, alone->losses), 1e-4);
  for (const char* parallel : {"micro=2", "dp=2,micro=4"}) {
    EXPECT_THAT(std::string(RunGraph(model.graph, RunOf(model, parallel)).status().message()),
                AllOf(HasSubstr("cutting the batch would change results: node 'layer0/"),
                      HasSubstr("computes statistics over the samples of the batch (and 2 more "
                                "nodes mix samples)"),
                      HasSubstr("--batch-norm micro")))
        << parallel;
  }
}

// One process has one micro-batch: sums over the batch, updates and variables are compared.
TEST(WholeBatch, VerificationComparesWhatIsMadeOncePerStep) {
  const EquivalenceModel model = Convolutions();
  DataSpec data_spec;
  data_spec.batch = kBatch;
  for (const auto& [input, path] : WriteDataFiles(model, ::testing::TempDir())) {
    data_spec.files.push_back({input, path, 0});
  }
  const auto data = DataSet::Open(RealFileSystem(), data_spec);
  ASSERT_TRUE(data.ok()) << data.status();
  JobSpec spec;
  spec.cluster = ClusterSpec::Local(2, 1);
  spec.plan = ParseParallel("dp=2").value();
  auto planned = PrepareTraining(model.graph, {}, spec, *data);
  ASSERT_TRUE(planned.ok()) << planned.status();
  auto single = PrepareSingle(model.graph, {}, planned->plan, *data);
  ASSERT_TRUE(single.ok()) << single.status();
  const auto report =
      VerifyPlan(RealFileSystem(), *std::move(planned), *std::move(single), {.tolerance = 1e-4});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->first.has_value()) << report->first->node;
  EXPECT_GT(report->compared, 20);
}

TEST(WholeBatch, PairsOfAllSamplesStayOnOneReplica) {
  const EquivalenceModel model = Towers();
  ExpectSameTraining(model, "pp=2");
  for (const char* parallel : {"dp=2", "pp=2,micro=2", "micro=3"}) {
    EXPECT_THAT(std::string(RunGraph(model.graph, RunOf(model, parallel)).status().message()),
                AllOf(HasSubstr("(MatMul) pairs each sample with all others"),
                      HasSubstr("one micro-batch on one replica"), HasSubstr("--allow-batch-cut")))
        << parallel;
  }
}

// ---- Evaluations.

// `parallel` is what was given, "" is nothing; on two workers.
void ExpectSameEvaluation(const EquivalenceModel& model, const std::string& parallel, int ranks,
                          const std::vector<std::string>& metrics) {
  SCOPED_TRACE(absl::StrCat(model.name, " ", parallel));
  const auto alone = EvaluateGraph(model.graph, RunOf(model, ""), metrics);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_THAT(alone->notes, IsEmpty());
  TrainingRun run = RunOf(model, parallel);
  run.workers = 2;
  const auto spread = EvaluateGraph(model.graph, run, metrics);
  ASSERT_TRUE(spread.ok()) << spread.status();
  EXPECT_EQ(spread->plan.mesh.size(), ranks);
  ASSERT_EQ(spread->metrics.size(), metrics.size());
  for (const std::string& metric : metrics) {
    EXPECT_LT(LargestRelativeGap({spread->metrics.at(metric)}, {alone->metrics.at(metric)}), 1e-5)
        << metric;
  }
}

// Every evaluation was cut over all workers, without a word: each replica compared its own samples
// only, or chose its own branch. The numbers were others than those of one process.
TEST(WholeBatchEvaluation, WhatMixesSamplesIsThatOfOneProcess) {
  for (const EquivalenceModel& model : {Towers(), AttentionOverTheBatch(), BranchByTheBatch()}) {
    ExpectSameEvaluation(model, "", 1, {"loss", "accuracy"});
    ExpectSameEvaluation(model, "pp=2", 2, {"loss", "accuracy"});
  }
}

TEST(WholeBatchEvaluation, ThatItStaysOnOneReplicaIsSaid) {
  const EquivalenceModel model = Towers();
  TrainingRun run = RunOf(model, "");
  run.workers = 2;
  const auto outcome = EvaluateGraph(model.graph, run, {"loss"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(outcome->notes,
              ElementsAre(AllOf(HasSubstr("the batch stays whole, in one micro-batch on one"),
                                HasSubstr("(MatMul) pairs each sample with all others"))));
}

TEST(WholeBatchEvaluation, GivenCutsAreRefused) {
  for (const char* parallel : {"dp=2", "pp=2,micro=2", "micro=3"}) {
    const EquivalenceModel model = Towers();
    TrainingRun run = RunOf(model, parallel);
    run.workers = 2;
    EXPECT_THAT(std::string(EvaluateGraph(model.graph, run, {"loss"}).status().message()),
                AllOf(HasSubstr("cutting the batch would change results: node 'pairs/"),
                      HasSubstr("(MatMul) pairs each sample with all others"),
                      HasSubstr("--allow-batch-cut")))
        << parallel;
  }
}

// That results change shows that the models see a cut.
TEST(WholeBatchEvaluation, WhatIsAcceptedIsCut) {
  for (const EquivalenceModel& model : {AttentionOverTheBatch(), BranchByTheBatch()}) {
    const auto alone = EvaluateGraph(model.graph, RunOf(model, ""), {"loss"});
    ASSERT_TRUE(alone.ok()) << alone.status();
    TrainingRun run = RunOf(model, "dp=2");
    run.batch_policy.allows_cuts = true;
    const auto cut = EvaluateGraph(model.graph, run, {"loss"});
    ASSERT_TRUE(cut.ok()) << cut.status();
    EXPECT_EQ(cut->plan.mesh.data, 2);
    EXPECT_GT(std::abs(cut->metrics.at("loss") - alone->metrics.at("loss")), 1e-3) << model.name;
  }
}

// BatchNormalization takes its running statistics then.
TEST(WholeBatchEvaluation, NormalizationIsCutOverReplicas) {
  ExpectSameEvaluation(Convolutions(), "", 2, {"loss", "accuracy", "top2", "perplexity"});
}

// Where nothing mixes, nothing is limited, whatever is evaluated.
TEST(WholeBatchEvaluation, WithoutMixingItIsCutOverReplicas) {
  for (const std::string& name : EquivalenceModelNames()) {
    const auto model = BuildEquivalenceModel(name, kSamples);
    ASSERT_TRUE(model.ok()) << model.status();
    ExpectSameEvaluation(*model, "", 2, {"loss", "accuracy", "top2", "perplexity"});
  }
}

// A number for each sample, or two classes, and no node that mixes samples.
EquivalenceModel ScoresOf(int64_t width) {
  EquivalenceModel model;
  model.name = absl::StrCat("scores", width);
  ModelBuilder m(model.graph);
  const ValueId x = model.graph.AddInput("x", FloatType({Dim::Symbol("N"), kFeatures}));
  model.graph.AddOutput(m.b.Op("MatMul", {x, m.Variable("weight", {kFeatures, width}, 0)}));
  EXPECT_TRUE(m.b.status().ok()) << m.b.status();
  model.data["x"] = RandomTensor({kSamples, kFeatures}, 907);
  model.data["labels"] = width == 1 ? RandomTensor({kSamples, 1}, 908)
                                    : RandomTensor({kSamples}, 908, 0, width, DType::kInt64);
  return model;
}

// What a metric collects, such as the scores of all samples, was taken for mixing at first.
TEST(WholeBatchEvaluation, NoMetricKeepsABatchWhole) {
  ExpectSameEvaluation(ScoresOf(2), "dp=2", 2, {"auc", "accuracy", "top1", "loss", "perplexity"});
  const EquivalenceModel numbers = ScoresOf(1);
  for (const auto& [loss, metrics] :
       {std::pair<std::string, std::vector<std::string>>("mse", {"mse", "mae", "r2", "loss"}),
        std::pair<std::string, std::vector<std::string>>("bce_with_logits",
                                                         {"accuracy", "auc", "loss"})}) {
    SCOPED_TRACE(loss);
    TrainingRun alone = RunOf(numbers, "");
    alone.loss = loss;
    TrainingRun spread = RunOf(numbers, "dp=2");
    spread.loss = loss;
    const auto expected = EvaluateGraph(numbers.graph, alone, metrics);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const auto outcome = EvaluateGraph(numbers.graph, spread, metrics);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->plan.mesh.data, 2);
    for (const std::string& metric : metrics) {
      EXPECT_NEAR(outcome->metrics.at(metric), expected->metrics.at(metric), 1e-5) << metric;
    }
  }
}

}  // namespace
}  // namespace weft::testing
