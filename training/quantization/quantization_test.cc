#include "training/quantization/quantization.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/verifier.h"
#include "gtest/gtest.h"
#include "onnx_import/graph_wire.h"
#include "onnx_import/model_file.h"
#include "ops/testing/test_tensors.h"
#include "training/graph/training_graph.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kFeatures = 48;

QuantizationSpec SpecOf(QuantizationKind kind, std::vector<std::string> skip = {}) {
  QuantizationSpec spec;
  spec.kind = kind;
  spec.skip = std::move(skip);
  return spec;
}

// image [N,2,5,5] -> Conv "stem" -> Reshape [N,27] -> MatMul "up" [27,48] -> Relu -> Gemm "down"
// transposed [6,48], and MatMul "tied" with the same weight behind a Transpose -> Add -> scores.
class QuantizationTest : public ::testing::Test {
 protected:
  QuantizationTest() : builder_(graph_) {
    const ValueId image = graph_.AddInput(
        "image", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), 2, 5, 5})});
    const ValueId stem =
        Named("stem", builder_.Op("Conv", {image, Weight("kernel", {3, 2, 3, 3})}));
    const ValueId flat = Named("flat", builder_.Op("Reshape", {stem, builder_.Ints({-1, 27})}));
    const ValueId up =
        Named("up", builder_.Op("MatMul", {flat, Weight("up.weight", {27, kFeatures})}));
    const ValueId hidden = Named("hidden", builder_.Op("Relu", {up}));
    const ValueId shared = Weight("down.weight", {6, kFeatures});
    const ValueId down = Named("down", builder_.Op("Gemm", {hidden, shared, Weight("bias", {6})},
                                                   {{"transB", int64_t{1}}}));
    const ValueId turned =
        builder_.Op("Transpose", {shared}, {{"perm", std::vector<int64_t>{1, 0}}});
    const ValueId tied = Named("tied", builder_.Op("MatMul", {hidden, turned}));
    graph_.AddOutput(Named("scores", builder_.Op("Add", {down, tied})));
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
  }

  ValueId Named(const std::string& name, ValueId value) {
    builder_.Name(value, name);
    return value;
  }
  ValueId Weight(const std::string& name, const Shape& shape) {
    return graph_.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape},
                              testing::RandomTensor(shape, ++weights_), true);
  }

  ImportedModel Model() const {
    auto bytes = GraphToOnnx(graph_, {.annotations = false, .opset = 21});
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    auto file = ModelFile::Parse(*std::move(bytes), "test.onnx");
    EXPECT_TRUE(file.ok()) << file.status();
    auto model = ImportModel(*file);
    EXPECT_TRUE(model.ok()) << model.status();
    for (Variable& variable : model->graph.mutable_variables()) variable.trainable = true;
    return *std::move(model);
  }

  static absl::Status Refusal(ImportedModel model, const QuantizationSpec& spec) {
    return AddQuantization(model, spec).status();
  }

  Graph graph_;
  GraphBuilder builder_;
  uint64_t weights_ = 0;
};

std::vector<std::string> NamesOf(const std::vector<Quantization::Weight>& weights) {
  std::vector<std::string> names;
  for (const auto& weight : weights) names.push_back(weight.name);
  return names;
}

TEST_F(QuantizationTest, Int8IsPerOutputChannelWithRangesOfFirstOperands) {
  ImportedModel model = Model();
  const auto result = AddQuantization(model, SpecOf(QuantizationKind::kInt8));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(VerifyGraph(model.graph).ok()) << VerifyGraph(model.graph);
  EXPECT_EQ(result->products, 4);
  EXPECT_THAT(NamesOf(result->weights), ElementsAre("kernel", "up.weight", "down.weight"));
  EXPECT_EQ(result->weights[0].axis, 0);
  EXPECT_EQ(result->weights[1].axis, 1);
  // Both products have its rows as channels, one of them behind the Transpose.
  EXPECT_TRUE(result->weights[2].has_axis);
  EXPECT_EQ(result->weights[2].axis, 0);
  ASSERT_EQ(result->inputs.size(), 3u);
  EXPECT_EQ(result->inputs[2].value, "hidden");
  EXPECT_EQ(result->inputs[2].range, "hidden/range");
  EXPECT_THAT(result->inputs[2].readers, ElementsAre("down", "tied"));
  EXPECT_EQ(result->ToString(), "qat    int8: 4 products, 3 weights, 3 inputs\n");
}

TEST_F(QuantizationTest, AWeightWithDifferentChannelsHasOneScale) {
  // The same square weight, once transposed.
  Graph& graph = graph_;
  GraphBuilder b(graph);
  const ValueId square = Weight("square", {6, 6});
  const ValueId scores = graph.outputs()[0];
  const ValueId once = b.Op("MatMul", {scores, square});
  b.Name(once, "once");
  graph.SetOutputs({b.Op("Gemm", {once, square}, {{"transB", int64_t{1}}})});
  ImportedModel model = Model();
  const auto result = AddQuantization(model, SpecOf(QuantizationKind::kInt8));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->weights.back().name, "square");
  EXPECT_FALSE(result->weights.back().has_axis);
}

TEST_F(QuantizationTest, Int4IsInBlocksAlongTheContractedAxis) {
  ImportedModel model = Model();
  const auto result = AddQuantization(model, SpecOf(QuantizationKind::kInt4));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->inputs, IsEmpty());
  ASSERT_EQ(result->weights.size(), 3u);
  // Two input channels and 27 rows are less than a block: a scale for each output channel.
  EXPECT_EQ(result->weights[0].block, 0);
  EXPECT_EQ(result->weights[0].axis, 0);
  EXPECT_EQ(result->weights[1].block, 0);
  EXPECT_EQ(result->weights[1].axis, 1);
  EXPECT_EQ(result->weights[2].block, 32);
  EXPECT_EQ(result->weights[2].axis, 1);
}

TEST_F(QuantizationTest, PatternsLeaveWeightsFloatWithAllTheirProducts) {
  ImportedModel model = Model();
  const auto result = AddQuantization(model, SpecOf(QuantizationKind::kFp8, {"down*", "kernel"}));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(NamesOf(result->weights), ElementsAre("up.weight"));
  EXPECT_EQ(result->ToString(),
            "qat    fp8: 1 product, 1 weight, 1 input; 2 weights stay float: 'kernel', "
            "'down.weight' (--qat-skip)\n");
}

// They stayed float without a word.
TEST_F(QuantizationTest, SaysWhichWeightsStayFloatAndWhy) {
  GraphBuilder b(graph_);
  const ValueId columns =
      b.Op("Transpose", {graph_.outputs()[0]}, {{"perm", std::vector<int64_t>{1, 0}}});
  const ValueId first = b.Op("MatMul", {Weight("left", {6, 6}), columns});
  const ValueId turned = b.Op("Transpose", {Weight("turned", {6, 6})});
  const ValueId second = b.Op("MatMul", {turned, first});
  const ValueId rows = b.Op("Transpose", {second}, {{"perm", std::vector<int64_t>{1, 0}}});
  const ValueId batch = b.Op("MatMul", {rows, Weight("experts", {2, 6, 6})});
  ASSERT_TRUE(b.status().ok()) << b.status();
  graph_.SetOutputs({graph_.outputs()[0], batch});
  ImportedModel model = Model();
  const auto result = AddQuantization(model, SpecOf(QuantizationKind::kInt8, {"kernel"}));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(NamesOf(result->weights), ElementsAre("up.weight", "down.weight"));
  EXPECT_THAT(result->ToString(),
              HasSubstr("; 4 weights stay float: 'kernel' (--qat-skip), 'left', 'turned' (first "
                        "operand), 'experts' (3 axes)\n"));
}

// What does not train is no weight: a table that a product reads first.
TEST_F(QuantizationTest, ManyNamesAreCountedAndConstantsAreNoWeights) {
  GraphBuilder b(graph_);
  const ValueId scores = graph_.outputs()[0];
  ValueId value = b.Op("Transpose", {scores}, {{"perm", std::vector<int64_t>{1, 0}}});
  for (int i = 0; i < 7; ++i) {
    value = b.Op("MatMul", {Weight("w" + std::to_string(i), {6, 6}), value});
  }
  ASSERT_TRUE(b.status().ok()) << b.status();
  graph_.SetOutputs({value});
  ImportedModel model = Model();
  for (Variable& variable : model.graph.mutable_variables()) {
    if (variable.name == "w6") variable.trainable = false;
  }
  const auto result = AddQuantization(model, SpecOf(QuantizationKind::kInt8));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->ToString(), HasSubstr("; 6 weights stay float: 'w0', 'w1', 'w2', 'w3' and 2 "
                                            "more (first operand)\n"));
}

// A weight that both kinds of products read is quantized for all of them.
TEST_F(QuantizationTest, AWeightThatIsASecondOperandElsewhereIsQuantized) {
  GraphBuilder b(graph_);
  const ValueId scores = graph_.outputs()[0];
  const ValueId both = Weight("both", {6, 6});
  const ValueId columns =
      b.Op("Transpose", {b.Op("MatMul", {scores, both})}, {{"perm", std::vector<int64_t>{1, 0}}});
  graph_.SetOutputs({b.Op("MatMul", {both, columns})});
  ASSERT_TRUE(b.status().ok()) << b.status();
  ImportedModel model = Model();
  const auto result = AddQuantization(model, SpecOf(QuantizationKind::kInt8));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->left_float, IsEmpty());
  EXPECT_EQ(result->weights.back().name, "both");
}

// Codes of half a byte or one, a scale for each block or channel, and zero points.
TEST_F(QuantizationTest, CountsTheBytesOfCodes) {
  for (const auto& [kind, weights] :
       {std::pair(QuantizationKind::kInt8, 54 + 3 * 5 + 27 * 48 + 48 * 5 + 6 * 48 + 6 * 5),
        std::pair(QuantizationKind::kInt4, 27 + 3 * 5 + 27 * 24 + 48 * 5 + 6 * 24 + 12 * 5)}) {
    ImportedModel model = Model();
    const auto result = AddQuantization(model, SpecOf(kind));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->CodeBytes(model.graph), weights);
    EXPECT_EQ(result->opset(), kind == QuantizationKind::kInt8 ? 13 : 21);
  }
}

TEST_F(QuantizationTest, RefusesWhatItCannotDo) {
  const QuantizationSpec spec = SpecOf(QuantizationKind::kInt8);
  EXPECT_THAT(Refusal(Model(), SpecOf(QuantizationKind::kInt8, {"kernle"})).message(),
              HasSubstr("--qat-skip kernle fits no product that would be quantized, and no weight "
                        "of one, did you mean 'kernel'?"));
  EXPECT_THAT(Refusal(Model(), SpecOf(QuantizationKind::kInt8, {"*"})).message(),
              HasSubstr("--qat-skip names all products"));
  ImportedModel twice = Model();
  GraphBuilder b(twice.graph);
  b.Op("QuantizeLinear", {twice.graph.outputs()[0], b.Float(1)});
  EXPECT_THAT(Refusal(std::move(twice), spec).message(),
              HasSubstr("the model is quantized already"));
  graph_ = Graph();
  GraphBuilder small(graph_);
  graph_.AddOutput(
      small.Op("Relu", {graph_.AddInput("x", {ValueKind::kTensor, DType::kFloat32,
                                              SymbolicShape({Dim::Symbol("N"), 2})})}));
  EXPECT_THAT(Refusal(Model(), spec).message(), HasSubstr("the model has no Conv, Gemm or MatMul"));
  const ValueId x = small.Op("Transpose", {graph_.outputs()[0]});
  graph_.SetOutputs({small.Op("MatMul", {Weight("left", {4, 2}), x})});
  EXPECT_THAT(Refusal(Model(), spec).message(),
              HasSubstr("is a float32 weight; there are 'left' (first operand)"));
}

TEST(ParseQuantizationTest, NamesTheKinds) {
  EXPECT_EQ(ParseQuantization("int4", 64, {})->block, 64);
  EXPECT_THAT(ParseQuantization("int9", 32, {}).status().message(),
              HasSubstr("--qat int9: no such kind, did you mean 'int8'?; there are: int8, int4, "
                        "fp8"));
  EXPECT_THAT(ParseQuantization("int4", 1, {}).status().message(), HasSubstr("--qat-block 1"));
}

// ---- Steps.

TEST_F(QuantizationTest, ATrainingStepUpdatesTheRangesAndAnEvaluationDoesNot) {
  ImportedModel model = Model();
  ASSERT_TRUE(AddQuantization(model, SpecOf(QuantizationKind::kInt8)).ok());
  const auto training = BuildTrainingGraph(model.graph, {});
  ASSERT_TRUE(training.ok()) << training.status();
  EXPECT_TRUE(VerifyGraph(*training).ok()) << VerifyGraph(*training);
  for (const char* range : {"image/range", "flat/range", "hidden/range"}) {
    const Variable* const variable = training->FindVariable(range);
    ASSERT_NE(variable, nullptr) << range;
    ASSERT_TRUE(variable->update.valid()) << range;
    EXPECT_EQ(training->node(training->value(variable->update).producer).op, "UpdateRange");
  }
  const auto evaluation = BuildEvaluationGraph(model.graph, {}, {"loss"});
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_FALSE(evaluation->FindVariable("image/range")->update.valid());
}

// ---- What is exported.

TEST_F(QuantizationTest, FreezesCodesAndScalesByTheirDefinitions) {
  ImportedModel model = Model();
  const auto quantization = AddQuantization(model, SpecOf(QuantizationKind::kInt8));
  ASSERT_TRUE(quantization.ok()) << quantization.status();
  const Tensor kernel = testing::RandomTensor({3, 2, 3, 3}, 77, -2, 2);
  std::map<std::string, Tensor> values = {{"kernel", kernel},
                                          {"bias", testing::RandomTensor({6}, 5)}};
  for (const char* range : {"image/range", "flat/range", "hidden/range"}) {
    values[range] = Tensor::Of<float>({3}, {-1, 4, 2});  // of [-0.5, 2]
  }
  const auto form = FreezeQuantization(model.graph, *quantization, values);
  ASSERT_TRUE(form.ok()) << form.status();
  EXPECT_EQ(values.size(), 1u);
  EXPECT_EQ(form->opset, 13);
  const QuantizedTensor& weight = form->weights[0];
  for (int64_t channel = 0; channel < 3; ++channel) {
    float largest = 0;
    for (int64_t i = 0; i < 18; ++i) {
      largest = std::max(largest, std::fabs(kernel.data<float>()[channel * 18 + i]));
    }
    EXPECT_EQ(weight.scale.data<float>()[channel], largest / 127.0f);
    for (int64_t i = 0; i < 18; ++i) {
      const float quotient = kernel.data<float>()[channel * 18 + i] / (largest / 127.0f);
      EXPECT_EQ(weight.codes.data<int8_t>()[channel * 18 + i], std::nearbyint(quotient));
    }
    EXPECT_EQ(weight.zero_point.data<int8_t>()[channel], 0);
  }
  // Weights that did not train are those of the model.
  EXPECT_EQ(form->weights[1].codes.shape(), (Shape{27, kFeatures}));
  EXPECT_EQ(form->inputs[0].scale.data<float>()[0], 2.5f / 255);
  EXPECT_EQ(form->inputs[0].zero_point.data<uint8_t>()[0], 51);
}

TEST_F(QuantizationTest, DoesNotFreezeARangeThatNoStepHasSeen) {
  ImportedModel model = Model();
  const auto quantization = AddQuantization(model, SpecOf(QuantizationKind::kFp8));
  ASSERT_TRUE(quantization.ok()) << quantization.status();
  std::map<std::string, Tensor> values;
  const auto form = FreezeQuantization(model.graph, *quantization, values);
  EXPECT_EQ(form.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(form.status().message(), HasSubstr("no step has seen the range of 'image'"));
}

}  // namespace
}  // namespace weft
