// Models with If, Loop, Scan and SequenceMap, trained, against the same models without: gradients
// of the first step and losses of the steps after it.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/in_process_cluster.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/node_bodies.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "platform/testing/fake_file_system.h"
#include "training/data/data_file.h"
#include "training/job/trainer.h"

namespace weft {
namespace {

constexpr int64_t kSamples = 4;
constexpr int64_t kSize = 3;
constexpr char kVersion[] = "test";

ValueType FloatType(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

// x [N,3,3] in, scores [N,3] out; w [3,3] and b [3] train.
struct Model {
  Graph graph;
  ValueId x, w, b;

  Model() {
    x = graph.AddInput("x", FloatType({Dim::Symbol("N"), kSize, kSize}));
    w = graph.AddVariable("w", FloatType({kSize, kSize}), testing::RandomTensor({kSize, kSize}, 1),
                          true);
    b = graph.AddVariable("b", FloatType({kSize}), testing::RandomTensor({kSize}, 2), true);
  }
  GraphBuilder Builder() { return GraphBuilder(graph); }
  // x[:, t]
  ValueId Part(GraphBuilder& builder, int64_t t) {
    const ValueId index = builder.Constant(Tensor::Scalar<int64_t>(t));
    return builder.Op("Gather", {x, index}, {{"axis", int64_t{1}}});
  }
  Graph Finish(GraphBuilder& builder, ValueId scores) {
    builder.Name(scores, "scores");
    EXPECT_TRUE(builder.status().ok()) << builder.status();
    graph.AddOutput(scores);
    return std::move(graph);
  }
};

// tanh(h w + part + b)
ValueId Cell(GraphBuilder& g, ValueId h, ValueId part, ValueId w, ValueId b) {
  const ValueId sum = g.Op("Add", {g.Op("Add", {g.Op("MatMul", {h, w}), part}), b});
  return g.Op("Tanh", {sum});
}

ValueId ZeroState(GraphBuilder& g, ValueId part) {
  return g.Op("Mul", {part, g.Scalar(DType::kFloat32, 0)});
}

Graph Unrolled(bool backward) {
  Model model;
  GraphBuilder g = model.Builder();
  ValueId h = ZeroState(g, model.Part(g, 0));
  ValueId sum = kNoValue;
  for (int64_t t = 0; t < kSize; ++t) {
    h = Cell(g, h, model.Part(g, backward ? kSize - 1 - t : t), model.w, model.b);
    const ValueId square = g.Op("Mul", {h, h});
    sum = sum.valid() ? g.Op("Add", {sum, square}) : square;
  }
  return model.Finish(g, g.Op("Add", {h, sum}));
}

// The same with its rounds in the body of a Scan over axis 1 of x, or of a Loop.
Graph Scanned(bool backward) {
  Model model;
  auto body = std::make_shared<Graph>();
  GraphBuilder inner(*body);
  const ValueId h = body->AddInput("h", FloatType({Dim(), kSize}));
  const ValueId part = body->AddInput("part", FloatType({Dim(), kSize}));
  const ValueId w = body->AddInput("w", FloatType({kSize, kSize}));
  const ValueId b = body->AddInput("b", FloatType({kSize}));
  const ValueId next = Cell(inner, h, part, w, b);
  body->AddOutput(next);
  body->AddOutput(inner.Op("Mul", {next, next}));
  EXPECT_TRUE(inner.status().ok()) << inner.status();
  GraphBuilder g = model.Builder();
  const ValueId start = ZeroState(g, model.Part(g, 0));
  const std::vector<ValueId> results =
      g.Ops("", "Scan", {start, model.x, model.w, model.b},
            {{"body", body},
             {"num_scan_inputs", int64_t{1}},
             {"scan_input_axes", std::vector<int64_t>{1}},
             {"scan_input_directions", std::vector<int64_t>{backward}},
             {"scan_output_axes", std::vector<int64_t>{2}},
             {"scan_output_directions", std::vector<int64_t>{!backward}},
             {CapturesAttribute("body"), std::vector<std::string>{"w", "b"}}},
            {true, true});
  const ValueId sum = g.Op("ReduceSum", {results[1], g.Ints({2})}, {{"keepdims", int64_t{0}}});
  return model.Finish(g, g.Op("Add", {results[0], sum}));
}

Graph Looped() {
  Model model;
  auto body = std::make_shared<Graph>();
  GraphBuilder inner(*body);
  const ValueId round =
      body->AddInput("round", {ValueKind::kTensor, DType::kInt64, SymbolicShape(Shape{})});
  const ValueId go =
      body->AddInput("go", {ValueKind::kTensor, DType::kBool, SymbolicShape(Shape{})});
  const ValueId h = body->AddInput("h", FloatType({Dim(), kSize}));
  const ValueId x = body->AddInput("x", FloatType({Dim(), kSize, kSize}));
  const ValueId w = body->AddInput("w", FloatType({kSize, kSize}));
  const ValueId b = body->AddInput("b", FloatType({kSize}));
  const ValueId part = inner.Op("Gather", {x, round}, {{"axis", int64_t{1}}});
  const ValueId next = Cell(inner, h, part, w, b);
  body->AddOutput(inner.Op("Identity", {go}));
  body->AddOutput(next);
  body->AddOutput(inner.Op("Mul", {next, next}));
  EXPECT_TRUE(inner.status().ok()) << inner.status();
  GraphBuilder g = model.Builder();
  const ValueId start = ZeroState(g, model.Part(g, 0));
  const std::vector<ValueId> results = g.Ops(
      "", "Loop",
      {g.Constant(Tensor::Scalar<int64_t>(kSize)), kNoValue, start, model.x, model.w, model.b},
      {{"body", body}, {CapturesAttribute("body"), std::vector<std::string>{"x", "w", "b"}}},
      {true, true});
  const ValueId sum = g.Op("ReduceSum", {results[1], g.Ints({0})}, {{"keepdims", int64_t{0}}});
  return model.Finish(g, g.Op("Add", {results[0], sum}));
}

// sum over t of tanh(x[:, t] w + b)^2, plainly or with a SequenceMap over the parts.
ValueId SquaredCell(GraphBuilder& g, ValueId part, ValueId w, ValueId b) {
  const ValueId value = g.Op("Tanh", {g.Op("Add", {g.Op("MatMul", {part, w}), b})});
  return g.Op("Mul", {value, value});
}

Graph Summed() {
  Model model;
  GraphBuilder g = model.Builder();
  ValueId sum = SquaredCell(g, model.Part(g, 0), model.w, model.b);
  for (int64_t t = 1; t < kSize; ++t) {
    sum = g.Op("Add", {sum, SquaredCell(g, model.Part(g, t), model.w, model.b)});
  }
  return model.Finish(g, sum);
}

Graph Mapped() {
  Model model;
  auto body = std::make_shared<Graph>();
  GraphBuilder inner(*body);
  const ValueId part = body->AddInput("part", FloatType({Dim(), kSize}));
  const ValueId w = body->AddInput("w", FloatType({kSize, kSize}));
  const ValueId b = body->AddInput("b", FloatType({kSize}));
  body->AddOutput(SquaredCell(inner, part, w, b));
  EXPECT_TRUE(inner.status().ok()) << inner.status();
  GraphBuilder g = model.Builder();
  const ValueId parts =
      g.Op("SplitToSequence", {model.x}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
  const ValueId squares = g.Ops(
      "", "SequenceMap", {parts, model.w, model.b},
      {{"body", body}, {CapturesAttribute("body"), std::vector<std::string>{"w", "b"}}}, {true})[0];
  const auto square = [&g, squares](int64_t t) {
    return g.Op("SequenceAt", {squares, g.Constant(Tensor::Scalar<int64_t>(t))});
  };
  ValueId sum = square(0);
  for (int64_t t = 1; t < kSize; ++t) sum = g.Op("Add", {sum, square(t)});
  return model.Finish(g, sum);
}

// x[:, 0] w where the sum of the batch's x is positive or not, tanh(x[:, 0]) + b elsewhere.
std::shared_ptr<Graph> Branch(bool first) {
  auto body = std::make_shared<Graph>();
  GraphBuilder inner(*body);
  const ValueId part = body->AddInput("part", FloatType({Dim(), kSize}));
  ValueId made;
  if (first) {
    const ValueId w = body->AddInput("w", FloatType({kSize, kSize}));
    made = inner.Op("MatMul", {part, w});
  } else {
    const ValueId b = body->AddInput("b", FloatType({kSize}));
    made = inner.Op("Add", {inner.Op("Tanh", {part}), b});
  }
  body->AddOutput(made);
  EXPECT_TRUE(inner.status().ok()) << inner.status();
  return body;
}

Graph Branched(bool taken) {
  Model model;
  GraphBuilder g = model.Builder();
  const ValueId part = g.Op("Mul", {model.Part(g, 0), model.b});
  const ValueId total = g.Op("ReduceSum", {g.Op("Abs", {model.x})}, {{"keepdims", int64_t{0}}});
  const ValueId condition =
      g.Op(taken ? "Greater" : "Less", {total, g.Scalar(DType::kFloat32, -1)});
  const ValueId scores =
      g.Ops("", "If", {condition, part, model.b, part, model.w},
            {{"then_branch", Branch(true)},
             {"else_branch", Branch(false)},
             {CapturesAttribute("then_branch"), std::vector<std::string>{"part", "w"}},
             {CapturesAttribute("else_branch"), std::vector<std::string>{"part", "b"}}},
            {true})[0];
  return model.Finish(g, scores);
}

Graph Straight(bool taken) {
  Model model;
  GraphBuilder g = model.Builder();
  const ValueId part = g.Op("Mul", {model.Part(g, 0), model.b});
  const ValueId scores =
      taken ? g.Op("MatMul", {part, model.w}) : g.Op("Add", {g.Op("Tanh", {part}), model.b});
  return model.Finish(g, scores);
}

class ControlFlowGradientTest : public ::testing::Test {
 protected:
  ControlFlowGradientTest() {
    Write("x", testing::RandomTensor({kSamples, kSize, kSize}, 3));
    Write("labels", Tensor::Of<int64_t>({kSamples}, {0, 1, 2, 1}));
    data_spec_.batch = kSamples;
  }

  void Write(const std::string& input, const Tensor& tensor) {
    const std::string path = absl::StrCat("/", input, ".npy");
    ASSERT_TRUE(files_.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    data_spec_.files.push_back({input, path, 0});
  }

  absl::StatusOr<TrainResult> TrainOn(const Graph& model, int workers) {
    JobSpec spec;
    spec.cluster = ClusterSpec::Local(workers, 1);
    spec.plan.micro_batches = 2;
    // An If that asks for a sum over the batch takes the same branch for each part of it here.
    spec.batch_policy.allows_cuts = true;
    const auto data = DataSet::Open(files_, data_spec_);
    if (!data.ok()) return data.status();
    TrainingSpec training;
    training.report_gradients = true;
    training.optimizer.learning_rate = 0.5;
    const auto job = PrepareTraining(model, training, spec, *data);
    if (!job.ok()) return job.status();
    cluster_ = std::make_unique<InProcessCluster>(workers, NewDataSetFactory(files_), kVersion);
    coordinator_ = std::make_unique<Coordinator>(cluster_->clients());
    const absl::Status started = StartJob(*coordinator_, *job, spec, kVersion, {});
    if (!started.ok()) return started;
    losses_.clear();
    return Train(*coordinator_, *job, {.steps = 4, .report_gradients = true},
                 [this](const TrainProgress& progress) { losses_.push_back(progress.loss); });
  }

  void ExpectSameTraining(const Graph& model, const Graph& plain) {
    const auto expected = TrainOn(plain, 1);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const std::vector<double> losses = losses_;
    for (const int workers : {1, 2}) {
      SCOPED_TRACE(absl::StrCat(workers, " workers"));
      const auto result = TrainOn(model, workers);
      ASSERT_TRUE(result.ok()) << result.status();
      for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses_[i], losses[i], 1e-5) << i;
      EXPECT_LT(losses_.back(), losses_.front());
      for (const auto& [name, gradient] : result->gradients) {
        const auto found = expected->gradients.find(name);
        const std::vector<double> actual = *ToDoubles(gradient);
        for (size_t i = 0; i < actual.size(); ++i) {
          const double wanted =
              found != expected->gradients.end() ? (*ToDoubles(found->second))[i] : 0;
          EXPECT_NEAR(actual[i], wanted, 1e-5) << name << " " << i;
        }
      }
      EXPECT_EQ(result->gradients.size(), 2u);
    }
  }

  testing::FakeFileSystem files_;
  DataSpec data_spec_;
  std::unique_ptr<InProcessCluster> cluster_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<double> losses_;
};

TEST_F(ControlFlowGradientTest, AScanTrainsAsItsRoundsDo) {
  for (const bool backward : {false, true}) {
    ExpectSameTraining(Scanned(backward), Unrolled(backward));
  }
}

TEST_F(ControlFlowGradientTest, ALoopTrainsAsItsRoundsDo) {
  ExpectSameTraining(Looped(), Unrolled(false));
}

TEST_F(ControlFlowGradientTest, ASequenceMapTrainsAsItsElementsDo) {
  ExpectSameTraining(Mapped(), Summed());
}

TEST_F(ControlFlowGradientTest, AnIfTrainsAsTheBranchItTakes) {
  for (const bool taken : {true, false}) ExpectSameTraining(Branched(taken), Straight(taken));
}

}  // namespace
}  // namespace weft
