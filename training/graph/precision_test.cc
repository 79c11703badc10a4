#include "training/graph/precision.h"

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "graph/expansion.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "graph/op_schema.h"
#include "graph/verifier.h"
#include "gtest/gtest.h"
#include "ops/testing/cases/gradient_cases.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/test_tensors.h"
#include "training/graph/autodiff.h"
#include "training/graph/training_graph.h"

namespace weft {
namespace {

using ::testing::AllOf;
using testing::CaseRandom;
using ::testing::ElementsAre;
using testing::GradientCase;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ValueType TypeOf(DType dtype, std::vector<Dim> dims) {
  return {ValueKind::kTensor, dtype, SymbolicShape(std::move(dims))};
}
ValueType FloatType(std::vector<Dim> dims) { return TypeOf(DType::kFloat32, std::move(dims)); }

ValueId Weight(Graph& graph, const std::string& name, const Shape& shape) {
  return graph.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape},
                           testing::RandomTensor(shape, 1), /*trainable=*/true);
}

DType TypeNamed(const Graph& graph, const std::string& value) {
  const std::optional<ValueId> id = graph.FindValue(value);
  EXPECT_TRUE(id.has_value()) << value;
  return id.has_value() ? graph.value(*id).type.dtype : DType::kInvalid;
}

int Count(const Graph& graph, const std::string& op) {
  int count = 0;
  for (const NodeId id : graph.node_ids()) count += graph.node(id).op == op ? 1 : 0;
  return count;
}

TEST(PrecisionTest, HasTheNamesThatTheFieldHas) {
  EXPECT_THAT(PrecisionNames(), ElementsAre("fp32", "bf16", "fp16"));
  EXPECT_EQ(*ParsePrecision("bf16"), Precision::kBfloat16);
  EXPECT_EQ(*ParsePrecision("float16"), Precision::kFloat16);
  EXPECT_EQ(PrecisionName(Precision::kFloat32), "fp32");
  EXPECT_THAT(std::string(ParsePrecision("b16").status().message()),
              AllOf(HasSubstr("no precision 'b16'"), HasSubstr("did you mean 'bf16'"),
                    HasSubstr("fp32, bf16, fp16")));
}

// x -> Conv -> Relu -> MaxPool -> Flatten -> Gemm -> Softmax, with names.
struct SmallNet {
  Graph graph;
  SmallNet() {
    GraphBuilder b(graph);
    const ValueId x = graph.AddInput("x", FloatType({Dim::Symbol("N"), 1, 6, 6}));
    const ValueId conv =
        b.Op("Conv", {x, Weight(graph, "conv.w", {2, 1, 3, 3}), Weight(graph, "conv.b", {2})});
    const ValueId relu = b.Op("Relu", {conv});
    const ValueId pool = b.Op(
        "MaxPool", {relu},
        {{"kernel_shape", std::vector<int64_t>{2, 2}}, {"strides", std::vector<int64_t>{2, 2}}});
    const ValueId flat = b.Op("Flatten", {pool}, {{"axis", int64_t{1}}});
    const ValueId scores =
        b.Op("Gemm", {flat, Weight(graph, "fc.w", {8, 3}), Weight(graph, "fc.b", {3})});
    const ValueId softmax = b.Op("Softmax", {scores});
    b.Name(conv, "conv");
    b.Name(relu, "relu");
    b.Name(pool, "pool");
    b.Name(flat, "flat");
    b.Name(scores, "scores");
    b.Name(softmax, "softmax");
    EXPECT_TRUE(b.status().ok()) << b.status();
    graph.AddOutput(softmax);
  }
};

TEST(LowerPrecisionTest, ProductsAreLowerWhatFollowsThemTooAndSoftmaxIsFloat32) {
  SmallNet net;
  const absl::Status status = LowerPrecision(net.graph, DType::kBfloat16, {});
  ASSERT_TRUE(status.ok()) << status;
  for (const char* value : {"conv", "relu", "pool", "flat", "scores"}) {
    EXPECT_EQ(TypeNamed(net.graph, value), DType::kBfloat16) << value;
  }
  EXPECT_EQ(TypeNamed(net.graph, "softmax"), DType::kFloat32);
  // x, four weights, and back before Softmax.
  EXPECT_EQ(Count(net.graph, "Cast"), 6);
  for (const Variable& variable : net.graph.variables()) {
    EXPECT_EQ(net.graph.value(variable.value).type.dtype, DType::kFloat32) << variable.name;
  }
  const absl::Status verified = VerifyGraph(net.graph);
  EXPECT_TRUE(verified.ok()) << verified;
}

// Attention of [2,3,4,8] operands, with a mask or without, behind a product.
Graph AttentionNet(bool has_mask) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = graph.AddInput("x", FloatType({2, 3, 4, 8}));
  const ValueId q = b.Op("MatMul", {x, Weight(graph, "w", {8, 8})});
  std::vector<ValueId> inputs = {q, x, x};
  if (has_mask) inputs.push_back(graph.AddInput("mask", FloatType({4, 4})));
  const ValueId y = b.Op("Attention", inputs);
  b.Name(y, "y");
  EXPECT_TRUE(b.status().ok()) << b.status();
  graph.AddOutput(y);
  return graph;
}

TEST(LowerPrecisionTest, AttentionIsFloat32UnlessALibraryComputesIt) {
  for (const bool lowers : {false, true}) {
    Graph graph = AttentionNet(/*has_mask=*/false);
    ASSERT_TRUE(LowerPrecision(graph, DType::kBfloat16, {}, lowers).ok());
    EXPECT_EQ(TypeNamed(graph, "y"), lowers ? DType::kBfloat16 : DType::kFloat32);
    const Node& node = graph.node(graph.value(*graph.FindValue("y")).producer);
    EXPECT_EQ(node.attributes.Int("softmax_precision", 0), lowers ? 1 : 0) << "1 is float32";
    EXPECT_TRUE(VerifyGraph(graph).ok()) << VerifyGraph(graph);
  }
}

TEST(LowerPrecisionTest, AttentionWithAMaskStaysFloat32) {
  Graph graph = AttentionNet(/*has_mask=*/true);
  ASSERT_TRUE(LowerPrecision(graph, DType::kBfloat16, {}, /*lowers_attention=*/true).ok());
  EXPECT_EQ(TypeNamed(graph, "y"), DType::kFloat32);
}

TEST(LowerPrecisionTest, AWeightIsRoundedOnceHoweverManyReadIt) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = graph.AddInput("x", FloatType({2, 4}));
  const ValueId w = Weight(graph, "w", {4, 4});
  graph.AddOutput(b.Op("MatMul", {b.Op("MatMul", {x, w}), w}));
  ASSERT_TRUE(LowerPrecision(graph, DType::kBfloat16, {}).ok());
  EXPECT_EQ(Count(graph, "Cast"), 2);
}

TEST(LowerPrecisionTest, BiasesFollowAndResidualsStayFloat32) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = graph.AddInput("x", FloatType({2, 4}));
  const ValueId biased =
      b.Op("Add", {b.Op("MatMul", {x, Weight(graph, "w", {4, 4})}), Weight(graph, "b", {4})});
  const ValueId halved = b.Op("Mul", {biased, b.Float(0.5f)});
  const ValueId residual = b.Op("Add", {x, halved});
  b.Name(biased, "biased");
  b.Name(halved, "halved");
  b.Name(residual, "residual");
  graph.AddOutput(residual);
  ASSERT_TRUE(LowerPrecision(graph, DType::kFloat16, {}).ok());
  EXPECT_EQ(TypeNamed(graph, "biased"), DType::kFloat16);
  EXPECT_EQ(TypeNamed(graph, "halved"), DType::kFloat16);
  EXPECT_EQ(TypeNamed(graph, "residual"), DType::kFloat32);
}

// -1e9 is a number in bfloat16 and none in float16.
TEST(LowerPrecisionTest, AConstantThatWouldOverflowKeepsItsReaderInFloat32) {
  for (const auto& [lower, expected] :
       {std::pair{DType::kBfloat16, DType::kBfloat16}, {DType::kFloat16, DType::kFloat32}}) {
    Graph graph;
    GraphBuilder b(graph);
    const ValueId x = graph.AddInput("x", FloatType({2, 4}));
    const ValueId scores = b.Op("MatMul", {x, Weight(graph, "w", {4, 4})});
    const ValueId keep = graph.AddInput("keep", TypeOf(DType::kBool, {2, 4}));
    const ValueId masked = b.Op("Where", {keep, scores, b.Float(-1e9f)});
    b.Name(masked, "masked");
    graph.AddOutput(masked);
    ASSERT_TRUE(LowerPrecision(graph, lower, {}).ok());
    EXPECT_EQ(TypeNamed(graph, "masked"), expected);
  }
}

TEST(LowerPrecisionTest, WhatIsToBeKeptStaysFloat32) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = graph.AddInput("x", FloatType({2, 4}));
  const ValueId hidden = b.Op("MatMul", {x, Weight(graph, "w", {4, 4})});
  const ValueId loss = b.Op("MatMul", {hidden, Weight(graph, "v", {4, 1})});
  b.Name(hidden, "hidden");
  b.Name(loss, "loss");
  graph.AddOutput(loss);
  ASSERT_TRUE(LowerPrecision(graph, DType::kBfloat16, {loss}).ok());
  EXPECT_EQ(TypeNamed(graph, "hidden"), DType::kBfloat16);
  EXPECT_EQ(TypeNamed(graph, "loss"), DType::kFloat32);
}

TEST(LowerPrecisionTest, OtherTypesAreTheModelsOwnChoice) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = graph.AddInput("x", FloatType({2, 4}));
  const ValueId half = b.Op("Cast", {x}, {{"to", static_cast<int64_t>(DType::kFloat16)}});
  const ValueId own = b.Op("MatMul", {half, half}, {});
  EXPECT_FALSE(b.status().ok());  // [2,4] x [2,4]
  GraphBuilder c(graph);
  const ValueId square = c.Op("Mul", {half, half});
  const ValueId product = c.Op("MatMul", {x, Weight(graph, "w", {4, 4})});
  c.Name(square, "square");
  c.Name(product, "product");
  graph.AddOutput(square);
  graph.AddOutput(product);
  ASSERT_TRUE(LowerPrecision(graph, DType::kBfloat16, {}).ok());
  EXPECT_FALSE(own.valid());
  EXPECT_EQ(TypeNamed(graph, "square"), DType::kFloat16);
  EXPECT_EQ(TypeNamed(graph, "product"), DType::kBfloat16);
}

TEST(LowerPrecisionTest, AModelWithoutProductsIsRefused) {
  Graph graph;
  GraphBuilder b(graph);
  graph.AddOutput(b.Op("Exp", {graph.AddInput("x", FloatType({2}))}));
  const absl::Status status = LowerPrecision(graph, DType::kBfloat16, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("nothing to compute in bfloat16"), HasSubstr("MatMul"),
                    HasSubstr("--precision fp32")));
}

TEST(LowerPrecisionTest, GradientsOfWeightsAndAllStateAreFloat32) {
  for (const Precision precision : {Precision::kBfloat16, Precision::kFloat16}) {
    SmallNet net;
    net.graph.SetOutputs({*net.graph.FindValue("scores")});
    const auto graph = BuildTrainingGraph(
        net.graph,
        {.optimizer = {.kind = "adam"}, .precision = precision, .report_gradients = true});
    ASSERT_TRUE(graph.ok()) << graph.status();
    for (const char* name : {"conv.w", "conv.b", "fc.w", "fc.b"}) {
      EXPECT_EQ(TypeNamed(*graph, absl::StrCat("gradient/", name)), DType::kFloat32);
      EXPECT_EQ(TypeNamed(*graph, absl::StrCat(name, "/m")), DType::kFloat32);
    }
    EXPECT_EQ(TypeNamed(*graph, "loss"), DType::kFloat32);
    EXPECT_EQ(graph->FindVariable("weft.loss_scale") != nullptr, precision == Precision::kFloat16);
    // The products of the backward pass are lower, too.
    int products = 0;
    for (const NodeId id : graph->node_ids()) {
      const Node& node = graph->node(id);
      if (node.op != "ConvGradWeights" && node.op != "MatMul" && node.op != "Gemm") continue;
      EXPECT_NE(graph->value(node.inputs[0]).type.dtype, DType::kFloat32) << node.name;
      ++products;
    }
    EXPECT_GE(products, 4);
    const absl::Status verified = VerifyGraph(*graph);
    EXPECT_TRUE(verified.ok()) << verified;
  }
}

// ---- Every op that the lists lower runs lower, forward and backward, near to its float32 result.

PrecisionUse UseOf(const std::string& op) {
  for (const OpSchema* schema : OpRegistry::Global().All()) {
    if (schema->FullName() != op) continue;
    Node node;
    node.schema = schema;
    return PrecisionUseOf(node);
  }
  return PrecisionUse::kFloat32;
}

// The case between a product, which makes its first operand lower, and its gradients.
struct Lowered {
  Graph graph;
  std::map<ValueId, Tensor> feeds;
  std::vector<ValueId> wanted;
};

// The first floating input comes through a product with the unit matrix where `lower` is set.
absl::StatusOr<Lowered> Build(const GradientCase& c, std::optional<DType> lower) {
  Lowered made;
  GraphBuilder b(made.graph);
  std::vector<ValueId> inputs, checked;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const Tensor& tensor = c.inputs[i];
    if (!tensor.valid()) {
      inputs.push_back(kNoValue);
      continue;
    }
    if (std::find(c.constants.begin(), c.constants.end(), i) != c.constants.end()) {
      inputs.push_back(b.Constant(tensor));
      continue;
    }
    const ValueId fed = made.graph.AddInput(absl::StrCat("x", i),
                                            {ValueKind::kTensor, tensor.dtype(), tensor.shape()});
    made.feeds[fed] = tensor;
    ValueId input = fed;
    if (tensor.dtype() == DType::kFloat32) {
      checked.push_back(fed);
      const int64_t count = tensor.num_elements();
      const ValueId column = b.Op("Reshape", {fed, b.Ints({count, 1})});
      const ValueId one = b.Constant(Tensor::Of<float>({1, 1}, {1}));
      const ValueId product = b.Op("MatMul", {column, one});
      const auto dims = tensor.shape().dims();
      input = b.Op("Reshape", {product, b.Ints({dims.begin(), dims.end()})});
    }
    inputs.push_back(input);
  }
  const std::vector<ValueId> outputs = c.build(b, inputs);
  if (!b.status().ok()) return b.status();
  for (const ValueId output : outputs) made.graph.AddOutput(output);
  if (lower.has_value()) {
    const absl::Status status = LowerPrecision(made.graph, *lower, {});
    if (!status.ok()) return status;
  }
  std::vector<GradientSeed> seeds;
  for (const ValueId output : outputs) {
    const ValueType& type = made.graph.value(output).type;
    if (!IsFloatingPoint(type.dtype)) continue;
    made.wanted.push_back(output);
    const Tensor seed = testing::RandomTensor(*type.shape.ToConcrete(), 7, -1, 1, type.dtype);
    const ValueId dy =
        made.graph.AddInput(absl::StrCat("dy", seeds.size()), made.graph.value(output).type);
    made.feeds[dy] = seed;
    seeds.push_back({output, dy});
  }
  auto gradients = AddGradients(made.graph, seeds, checked);
  if (!gradients.ok()) return gradients.status();
  for (const ValueId input : checked) {
    const auto found = gradients->find(input);
    if (found != gradients->end()) made.wanted.push_back(found->second);
  }
  return made;
}

class LowerOperatorTest : public ::testing::TestWithParam<std::string> {};

// Rounding to 8 or 11 bits moves results by some thousandths of the largest: a wrong dtype, kernel
// or gradient, by more.
TEST_P(LowerOperatorTest, RunsLowerForwardAndBackward) {
  for (const auto& [lower, tolerance] :
       {std::pair{DType::kBfloat16, 0.06}, {DType::kFloat16, 0.01}}) {
    bool any_lower = false;
    for (const testing::GradientGenerator& make : testing::GradientCases().at(GetParam())) {
      CaseRandom random(3);
      const GradientCase c = make(random);
      const auto exact = Build(c, std::nullopt);
      ASSERT_TRUE(exact.ok()) << c.name << ": " << exact.status();
      auto lowered = Build(c, lower);
      ASSERT_TRUE(lowered.ok()) << c.name << ": " << lowered.status();
      for (const NodeId id : lowered->graph.node_ids()) {
        const Node& node = lowered->graph.node(id);
        if (node.schema == nullptr || node.schema->FullName() != GetParam()) continue;
        any_lower |= lowered->graph.value(node.outputs[0]).type.dtype == lower;
      }
      const auto expected = testing::EvaluateGraph(exact->graph, exact->feeds, exact->wanted);
      ASSERT_TRUE(expected.ok()) << c.name << ": " << expected.status();
      const auto got = testing::EvaluateGraph(lowered->graph, lowered->feeds, lowered->wanted);
      ASSERT_TRUE(got.ok()) << c.name << ": " << got.status();
      ASSERT_EQ(got->size(), expected->size());
      for (size_t i = 0; i < got->size(); ++i) {
        const std::vector<double> a = *ToDoubles((*got)[i]);
        const std::vector<double> e = *ToDoubles((*expected)[i]);
        ASSERT_EQ(a.size(), e.size());
        double largest = 1;
        for (const double value : e) largest = std::max(largest, std::abs(value));
        for (size_t k = 0; k < a.size(); ++k) {
          ASSERT_NEAR(a[k], e[k], tolerance * largest)
              << c.name << " in " << DTypeName(lower) << ", value " << i << ", element " << k;
        }
      }
    }
    EXPECT_TRUE(any_lower) << "no case of " << GetParam() << " runs in " << DTypeName(lower);
  }
}

// Of those with cases; Cast and what has no floating output are left out.
std::vector<std::string> LoweredOperators() {
  const std::set<std::string> without = {"Cast", "OneHot"};
  std::vector<std::string> names;
  for (const auto& [name, makers] : testing::GradientCases()) {
    if (UseOf(name) != PrecisionUse::kFloat32 && !without.contains(name)) names.push_back(name);
  }
  return names;
}

TEST(PrecisionListsTest, HoldWhatTheyShould) {
  EXPECT_EQ(UseOf("MatMul"), PrecisionUse::kLower);
  EXPECT_EQ(UseOf("Conv"), PrecisionUse::kLower);
  EXPECT_EQ(UseOf("Relu"), PrecisionUse::kFollow);
  EXPECT_EQ(UseOf("Transpose"), PrecisionUse::kFollow);
  EXPECT_EQ(UseOf("Reshape"), PrecisionUse::kFollow);
  for (const char* op :
       {"Softmax", "LogSoftmax", "SoftmaxCrossEntropyLoss", "ReduceSum", "Exp", "Log", "Pow",
        "LayerNormalization", "BatchNormalization", "LSTM", "ai.weft::AdamUpdate"}) {
    EXPECT_EQ(UseOf(op), PrecisionUse::kFloat32) << op;
  }
  EXPECT_GE(LoweredOperators().size(), 30u);
}

INSTANTIATE_TEST_SUITE_P(All, LowerOperatorTest, ::testing::ValuesIn(LoweredOperators()),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); },
                               '_');
                           return name;
                         });

}  // namespace
}  // namespace weft
