// What `graph_runner check` says, by node and with the repair.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A model in the making: one input x [N,4,8,8], layers one on top of the other.
class Model {
 public:
  Model() : builder_(graph_) {
    graph_.opsets[""] = 17;
    const SymbolicShape images({Dim::Symbol("N"), 4, 8, 8});
    top_ = graph_.AddInput("x", {ValueKind::kTensor, DType::kFloat32, images});
  }

  ValueId Parameter(const std::string& name, Shape shape) {
    const std::vector<float> ones(static_cast<size_t>(shape.num_elements()), 1.0f);
    const ValueType type{ValueKind::kTensor, DType::kFloat32, shape};
    return graph_.AddVariable(name, type, Tensor::Of<float>(std::move(shape), ones), true);
  }

  void Add(const std::string& op, std::vector<ValueId> more, Attributes attributes = {}) {
    more.insert(more.begin(), top_);
    top_ = builder_.Op(op, std::move(more), std::move(attributes));
  }

  void AddConv(const std::string& name, bool bias) {
    std::vector<ValueId> parameters = {Parameter(name + ".weight", {4, 4, 1, 1})};
    if (bias) parameters.push_back(Parameter(name + ".bias", {4}));
    Add("Conv", std::move(parameters));
  }

  void AddBatchNormalization() {
    std::vector<ValueId> parameters;
    for (const char* name : {"scale", "shift", "mean", "variance"}) {
      parameters.push_back(Parameter(name, {4}));
    }
    Add("BatchNormalization", std::move(parameters));
  }

  std::string Write(const std::string& name) {
    builder_.Name(top_, "y");
    graph_.AddOutput(top_);
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
    return WriteTestModel(name, graph_);
  }

 private:
  Graph graph_;
  GraphBuilder builder_;
  ValueId top_;
};

TEST(Check, AModelThatTrainsHasNoError) {
  const std::string path = TestPath("lenet.onnx");
  ASSERT_EQ(RunCommand({"example", "lenet", "-o", path}).exit_code, 0);
  const CommandResult result = RunCommand({"check", path, "--trainable"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(result.out,
            "trains all 10 tensors (61.7 k numbers)\n"
            "it runs and trains (assumed: batch = 128)\n");
}

TEST(Check, AnUnknownOperatorIsNamedWithTheRepair) {
  const std::string path = TestPath("unknown.onnx");
  WriteTestFile(
      path,
      WireModel(17, {{"first", "Softmaxx", {"x"}, {"a"}}, {"second", "Softmaxx", {"a"}, {"y"}}},
                "x", "y"));
  const CommandResult result = RunCommand({"check", path});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kModel));
  EXPECT_THAT(result.out, HasSubstr("error: Softmaxx: unknown operator, did you mean Softmax?\n"
                                    "  at      first (Softmaxx), second (Softmaxx)\n"
                                    "  repair  write the operator as a custom op "
                                    "(docs/custom-ops.md)"));
}

TEST(Check, ALaterOperatorSetIsTakenWithOneWarning) {
  const std::string path = TestPath("later.onnx");
  WriteTestFile(
      path, WireModel(31, {{"a", "Relu", {"x"}, {"h"}}, {"b", "Tanh", {"h"}, {"y"}}}, "x", "y"));
  const CommandResult checked = RunCommand({"check", path});
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
  EXPECT_THAT(checked.out,
              HasSubstr("warning: the model is written for operator set 31, and 1 to 28 are known: "
                        "each operator is taken in its form of 28\n"));
  EXPECT_THAT(checked.out, HasSubstr("it runs\n"));
  const CommandResult inspected = RunCommand({"inspect", path});
  EXPECT_EQ(inspected.exit_code, 0) << inspected.err;
  EXPECT_THAT(inspected.out, HasSubstr("\nwarning: the model is written for operator set 31"));
  const auto json = nlohmann::json::parse(RunCommand({"inspect", path, "--output", "json"}).out);
  ASSERT_EQ(json["warnings"].size(), 1u);
}

TEST(Check, AnOperatorThatIsNewInALaterSetIsNamedWithTheSet) {
  const std::string path = TestPath("new_operator.onnx");
  WriteTestFile(path, WireModel(31, {{"a", "Softmaxx", {"x"}, {"y"}}}, "x", "y"));
  const CommandResult result = RunCommand({"check", path});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kModel));
  EXPECT_THAT(result.out, HasSubstr("error: Softmaxx: unknown operator (of operator set 31? 1 to "
                                    "28 are known), did you mean Softmax?"));
}

TEST(Check, NothingToTrainIsAnErrorOnlyWhereTrainingIsAskedFor) {
  Model model;
  model.Add("Equal", {model.Parameter("w", {8})});
  const std::string path = model.Write("equal.onnx");
  EXPECT_EQ(RunCommand({"check", path}).exit_code, 0);
  const CommandResult result = RunCommand({"check", path, "--trainable"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kModel));
  EXPECT_THAT(result.out, HasSubstr("error: nothing trains"));
}

TEST(Check, NormalizationThatWasFoldedAwayIsNoticed) {
  Model folded, plain, normalized;
  for (int i = 0; i < 8; ++i) {
    folded.AddConv(absl::StrCat("conv", i), /*bias=*/true);
    plain.AddConv(absl::StrCat("conv", i), /*bias=*/false);
    normalized.AddConv(absl::StrCat("conv", i), /*bias=*/true);
  }
  normalized.AddBatchNormalization();
  const char* const kText = "BatchNormalization was probably folded away for inference";
  EXPECT_THAT(RunCommand({"check", folded.Write("folded.onnx"), "--trainable"}).out,
              HasSubstr(kText));
  EXPECT_THAT(RunCommand({"check", plain.Write("plain.onnx"), "--trainable"}).out,
              Not(HasSubstr(kText)));
  EXPECT_THAT(RunCommand({"check", normalized.Write("normalized.onnx"), "--trainable"}).out,
              Not(HasSubstr(kText)));
}

TEST(Check, LayersExportedForInferenceAreNamed) {
  Model model;
  model.AddConv("conv", /*bias=*/false);
  model.AddBatchNormalization();
  const CommandResult result =
      RunCommand({"check", model.Write("inference.onnx"), "--trainable", "--output", "json"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const auto findings = nlohmann::json::parse(result.out);
  ASSERT_EQ(findings.size(), 1u) << result.out;
  EXPECT_EQ(findings[0]["severity"], "warning");
  EXPECT_THAT(findings[0]["what"].get<std::string>(), HasSubstr("its running statistics"));
  EXPECT_THAT(findings[0]["nodes"][0].get<std::string>(), HasSubstr("(BatchNormalization)"));
}

// ---- What check says and what train does are the same.

// y = x w of x [N,4], then what `add` makes of y; classes are y's last axis.
std::string SmallModel(const std::string& name,
                       const std::function<ValueId(GraphBuilder&, ValueId)>& add,
                       Dim samples = Dim::Symbol("N"), Dim features = 4) {
  Graph graph;
  graph.opsets[""] = 17;
  GraphBuilder builder(graph);
  const ValueId x = graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32,
                                         SymbolicShape({std::move(samples), std::move(features)})});
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5,
                                     4, 3, 2, 1, 1, 0, 1, 0, 2, 0, 2, 0};
  const Tensor initial = Tensor::Of<float>({4, 6}, values);
  const ValueId w =
      graph.AddVariable("w", {ValueKind::kTensor, DType::kFloat32, Shape{4, 6}}, initial, true);
  const ValueId y = add(builder, builder.Op("MatMul", {x, w}));
  builder.Name(y, "y");
  graph.AddOutput(y);
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  return WriteTestModel(name, graph);
}

ValueId Scalar(GraphBuilder& b, int64_t value) {
  return b.Constant(Tensor::Scalar<int64_t>(value));
}

// torch.chunk as the exporter without an optimizer writes it.
ValueId Chunk(GraphBuilder& b, ValueId y) {
  const ValueId pieces = b.Op("SplitToSequence", {y, Scalar(b, 3)}, {{"axis", int64_t{1}}});
  const ValueId gate = b.Op("Sigmoid", {b.Op("SequenceAt", {pieces, Scalar(b, 1)})});
  return b.Op("Mul", {b.Op("SequenceAt", {pieces, Scalar(b, 0)}), gate});
}

// How many rows there are depends on data.
ValueId PositiveRows(GraphBuilder& b, ValueId y) {
  const ValueId sums = b.Op("ReduceSum", {y, b.Ints({1})}, {{"keepdims", int64_t{0}}});
  return b.Op("Compress", {y, b.Op("Greater", {sums, b.Float(0)})}, {{"axis", int64_t{0}}});
}

ValueId Total(GraphBuilder& b, ValueId y) {
  return b.Op("ReduceSum", {y}, {{"keepdims", int64_t{0}}});
}

class CheckAndTrain : public ::testing::Test {
 protected:
  CheckAndTrain() {
    WriteTestFile(TestPath("x.npy"),
                  ToNpy(Tensor::Of<float>({2, 4}, {1, 0, 2, 1, 0, 1, 1, 3})).value());
    WriteTestFile(TestPath("y.npy"), ToNpy(Tensor::Of<int64_t>({2}, {2, 0})).value());
  }
  std::vector<std::string> Data() const {
    return {"--data", "x=" + TestPath("x.npy"), "--labels", TestPath("y.npy"), "--batch", "2"};
  }
  static CommandResult Call(std::vector<std::string> arguments,
                            const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments);
  }
  // Both with the same data; true where both accept the model.
  bool Accept(const std::string& model) {
    check_ = Call({"check", model, "--trainable"}, Data());
    train_ = Call({"train", model, "--steps", "1"}, Data());
    const CommandResult without = RunCommand({"check", model, "--trainable"});
    EXPECT_EQ(check_.exit_code == 0, train_.exit_code == 0) << check_.out << train_.err;
    EXPECT_EQ(check_.exit_code, without.exit_code) << check_.out << without.out;
    return train_.exit_code == 0;
  }

  CommandResult check_;
  CommandResult train_;
};

TEST_F(CheckAndTrain, AgreeOnSequencesWithKnownElements) {
  EXPECT_TRUE(Accept(SmallModel("chunk.onnx", Chunk))) << check_.out;
}

TEST_F(CheckAndTrain, AgreeOnShapesThatDependOnData) {
  EXPECT_FALSE(Accept(SmallModel("rows.onnx", PositiveRows)));
  EXPECT_THAT(check_.out, HasSubstr("train refuses it: "));
  EXPECT_THAT(check_.out, HasSubstr("it will not train: errors 1"));
}

TEST_F(CheckAndTrain, AgreeOnALossThatDoesNotFit) {
  EXPECT_FALSE(Accept(SmallModel("total.onnx", Total)));
  EXPECT_THAT(check_.out, HasSubstr("softmax_cross_entropy needs scores of rank 2 or more"));
  EXPECT_EQ(
      RunCommand({"check", SmallModel("total.onnx", Total), "--trainable", "--loss", "output:y"})
          .exit_code,
      0);
}

TEST_F(CheckAndTrain, NameUnknownOperatorsAlike) {
  const std::string path = TestPath("typo.onnx");
  WriteTestFile(path, WireModel(17, {{"act", "Softmaxx", {"x"}, {"y"}}}, "x", "y"));
  EXPECT_FALSE(Accept(path));
  EXPECT_THAT(train_.err, HasSubstr("Softmaxx: unknown operator, did you mean Softmax? at act "
                                    "(Softmaxx); repair: write the operator as a custom op"));
}

TEST(Check, TakesTheBatchThatTheModelWasExportedFor) {
  const auto plain = [](GraphBuilder&, ValueId y) { return y; };
  const std::string model = SmallModel("fixed.onnx", plain, Dim(2));
  EXPECT_EQ(RunCommand({"check", model, "--trainable"}).out,
            "trains its 1 tensor (24 numbers)\n"
            "it runs and trains (assumed: batch = 2)\n");
}

// Programs took a model for one that trains, of which nothing was tried.
TEST(Check, SaysInJsonTooThatNothingWasTried) {
  Graph graph;
  graph.opsets[""] = 17;
  GraphBuilder builder(graph);
  const ValueId x =
      graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape(Shape{})});
  const Tensor initial = Tensor::Of<float>({4}, std::vector<float>{0.5f, -0.25f, 0.75f, 2});
  const ValueId w =
      graph.AddVariable("w", {ValueKind::kTensor, DType::kFloat32, Shape{4}}, initial, true);
  const ValueId y = builder.Op("Mul", {x, w});
  builder.Name(y, "y");
  graph.AddOutput(y);
  const std::string path = WriteTestModel("one_number.onnx", graph);
  EXPECT_THAT(RunCommand({"check", path, "--trainable"}).out,
              HasSubstr("it runs; whether it trains was not tried: input 'x' has no shape with an "
                        "axis for samples; give --data and --labels\n"));
  const CommandResult result = RunCommand({"check", path, "--trainable", "--output", "json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto rows = nlohmann::json::parse(result.out);
  ASSERT_EQ(rows.size(), 1u) << result.out;
  EXPECT_EQ(rows[0]["severity"], "warning");
  EXPECT_EQ(rows[0]["not_tried"], "input 'x' has no shape with an axis for samples");
  EXPECT_EQ(RunCommand({"check", path, "--output", "json"}).out, "[]\n")
      << "nobody asked whether it trains";
}

TEST(Check, SaysWhichSizesItAssumed) {
  const auto plain = [](GraphBuilder& b, ValueId y) { return b.Op("Relu", {y}); };
  const std::string model = SmallModel("open.onnx", plain, Dim::Symbol("N"), Dim::Symbol("width"));
  // 16 and 224 features do not fit the weights, which want 4.
  const CommandResult assumed = RunCommand({"check", model, "--trainable"});
  EXPECT_EQ(assumed.exit_code, static_cast<int>(ExitCode::kModel));
  EXPECT_THAT(assumed.out, HasSubstr("(assumed: batch = 128, width = "));
  const CommandResult given =
      RunCommand({"check", model, "--trainable", "--dim", "width=4", "--batch", "8"});
  EXPECT_EQ(given.out,
            "trains its 1 tensor (24 numbers)\n"
            "it runs and trains\n")
      << given.err;
  EXPECT_THAT(RunCommand({"check", model, "--trainable", "--dim", "width"}).err,
              HasSubstr("--dim width: expected NAME=SIZE"));
}

TEST(Check, ABrokenFileIsOneErrorAndTheExitCodeOfModels) {
  const std::string path = TestPath("broken.onnx");
  WriteTestFile(path, "not a model");
  const CommandResult result = RunCommand({"check", path});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kModel));
  EXPECT_THAT(result.err, HasSubstr("broken.onnx"));
}

}  // namespace
}  // namespace weft::testing
