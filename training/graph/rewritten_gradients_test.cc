// What exporters take apart, put together again: values and gradients in float64 before and after,
// for the forms of PyTorch's two exporters.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/expansion.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "graph/verifier.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "ops/rewrites/rewrites.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/test_tensors.h"
#include "training/graph/autodiff.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::Key;
using weft::testing::EvaluateGraph;
using weft::testing::RandomTensor;

constexpr DType kDouble = DType::kFloat64;

// A graph in the making: x and parameters in float64.
class Form {
 public:
  explicit Form(Graph& graph) : builder(graph) {}

  ValueId Number(double number) { return builder.Scalar(kDouble, number); }
  ValueId Ints(const std::vector<int64_t>& values) { return builder.Ints(values); }
  ValueId Filled(int64_t count, double number) {
    return builder.Constant(
        Tensor::Of<double>(Shape{count}, std::vector<double>(static_cast<size_t>(count), number)));
  }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder.Op(op, std::move(inputs), std::move(attributes));
  }
  ValueId Parameter(const std::string& name, Shape shape) {
    const Tensor initial = RandomTensor(shape, 10 + name.size(), 0.5, 1.5, kDouble);
    return builder.graph().AddVariable(name, {ValueKind::kTensor, kDouble, shape}, initial, true);
  }
  ValueId Mean(ValueId value, std::vector<int64_t> axes) {
    return Op("ReduceMean", {value, Ints(axes)}, {{"keepdims", int64_t{1}}});
  }

  GraphBuilder builder;
};

// A form of a rewrite, as an exporter writes it.
struct FormCase {
  std::string name;
  std::string rewrite;
  std::string op;  // that there is afterwards
  Shape x;
  std::function<ValueId(Form&, ValueId x)> write;
  // The same of simple operators, where the form's own run on values; null: the form itself.
  std::function<ValueId(Form&, ValueId x)> plain = nullptr;
};
void PrintTo(const FormCase& form, std::ostream* out) { *out << form.name; }

// A graph with input x of this shape and output y.
Graph GraphOf(const Shape& shape, const std::function<ValueId(Form&, ValueId x)>& write) {
  Graph graph;
  const ValueId x = graph.AddInput("x", {ValueKind::kTensor, kDouble, shape});
  Form writer(graph);
  const ValueId y = write(writer, x);
  EXPECT_TRUE(writer.builder.status().ok()) << writer.builder.status();
  if (!y.valid()) return graph;
  writer.builder.Name(y, "y");
  graph.AddOutput(y);
  return graph;
}

bool Differentiates(const Node& node) {
  return RunsNode(node) && node.schema->gradient_kind() != GradientKind::kMissing;
}

// y, and the gradients of sum(y * w) with fixed random w with respect to x and each parameter, by
// name.
std::map<std::string, std::vector<double>> ValuesAndGradients(Graph graph, const Shape& x_shape) {
  std::vector<absl::Status> refusals;
  EXPECT_TRUE(InferShapes(graph).ok());
  EXPECT_TRUE(ExpandFunctions(graph, Differentiates, &refusals).ok());
  const ValueId x = *graph.FindValue("x");
  const ValueId y = graph.outputs().front();
  const auto shape = graph.value(y).type.shape.ToConcrete();
  EXPECT_TRUE(shape.has_value()) << graph.DebugString();
  if (!shape.has_value()) return {};
  const ValueId weights = graph.AddConstant("weights", RandomTensor(*shape, 5, 0.5, 1.5, kDouble));
  std::vector<ValueId> wanted = {x};
  for (const Variable& variable : graph.variables()) wanted.push_back(variable.value);
  const auto gradients = AddGradients(graph, {{y, weights}}, wanted);
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  if (!gradients.ok()) return {};
  std::vector<std::string> names = {"y"};
  std::vector<ValueId> values = {y};
  for (const ValueId value : wanted) {
    names.push_back("gradient of " + graph.value(value).name);
    EXPECT_TRUE(gradients->contains(value)) << names.back();
    values.push_back(gradients->contains(value) ? gradients->at(value) : y);
  }
  const std::map<ValueId, Tensor> feeds = {{x, RandomTensor(x_shape, 3, -2, 2, kDouble)}};
  const auto tensors = EvaluateGraph(graph, feeds, values);
  EXPECT_TRUE(tensors.ok()) << tensors.status();
  std::map<std::string, std::vector<double>> results;
  for (size_t i = 0; tensors.ok() && i < names.size(); ++i) {
    results[names[i]] = ToDoubles((*tensors)[i]).value();
  }
  return results;
}

double Magnitude(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

int CountOf(const Graph& graph, const std::string& op) {
  int count = 0;
  for (const NodeId id : graph.node_ids()) count += graph.node(id).op == op;
  return count;
}

class RewrittenForms : public ::testing::TestWithParam<FormCase> {};

TEST_P(RewrittenForms, KeepsValuesAndGradients) {
  const FormCase& form = GetParam();
  const Graph before = GraphOf(form.x, form.write);
  Graph after = before.Clone();
  const auto counts = RewritePatterns(after, RewriteUse::kTraining);
  ASSERT_TRUE(counts.ok()) << counts.status();
  ASSERT_THAT(*counts, Contains(Key(form.rewrite))) << before.DebugString();
  EXPECT_TRUE(VerifyGraph(after).ok()) << VerifyGraph(after);
  EXPECT_GE(CountOf(after, form.op), 1) << after.DebugString();
  EXPECT_EQ(after.value(after.outputs().front()).name, "y");
  const auto expected =
      ValuesAndGradients(GraphOf(form.x, form.plain == nullptr ? form.write : form.plain), form.x);
  const auto actual = ValuesAndGradients(std::move(after), form.x);
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, values] : expected) {
    const auto found = actual.find(name);
    ASSERT_NE(found, actual.end()) << name;
    ASSERT_EQ(found->second.size(), values.size()) << name;
    const double bound = 1e-6 * Magnitude(values);
    EXPECT_GT(bound, 0) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(found->second[i], values[i], bound) << name << " at " << i;
    }
  }
}

// ---- Activations.

ValueId GeluOfTorchScript(Form& f, ValueId x) {
  const ValueId erf = f.Op("Erf", {f.Op("Div", {x, f.Number(std::sqrt(2.0))})});
  const ValueId sum = f.Op("Add", {erf, f.Number(1)});
  return f.Op("Mul", {f.Op("Mul", {x, sum}), f.Number(0.5)});
}

ValueId GeluOfDynamo(Form& f, ValueId x) {
  const ValueId erf = f.Op("Erf", {f.Op("Mul", {x, f.Number(std::sqrt(0.5))})});
  const ValueId sum = f.Op("Add", {f.Number(1), erf});
  return f.Op("Mul", {f.Op("Mul", {f.Number(0.5), x}), sum});
}

ValueId TanhGeluOfTorchScript(Form& f, ValueId x) {
  const ValueId cube = f.Op("Mul", {x, f.Op("Mul", {x, x})});
  const ValueId sum = f.Op("Add", {x, f.Op("Mul", {f.Number(0.044715), cube})});
  const ValueId tanh = f.Op("Tanh", {f.Op("Mul", {f.Number(std::sqrt(2 / M_PI)), sum})});
  return f.Op("Mul", {f.Number(0.5), f.Op("Mul", {x, f.Op("Add", {f.Number(1), tanh})})});
}

// NewGELUActivation of transformers, in GPT-2.
ValueId TanhGeluOfTransformers(Form& f, ValueId x) {
  const ValueId cube = f.Op("Mul", {f.Op("Pow", {x, f.Number(3)}), f.Number(0.044715)});
  const ValueId inner = f.Op("Mul", {f.Op("Add", {x, cube}), f.Number(0.7978845608)});
  const ValueId sum = f.Op("Add", {f.Op("Tanh", {inner}), f.Number(1)});
  return f.Op("Mul", {f.Op("Mul", {x, f.Number(0.5)}), sum});
}

// FastGELUActivation of transformers.
ValueId FastGelu(Form& f, ValueId x) {
  const ValueId square = f.Op("Mul", {f.Op("Mul", {x, f.Number(0.044715)}), x});
  const ValueId factor = f.Op("Add", {square, f.Number(1)});
  const ValueId inner = f.Op("Mul", {f.Op("Mul", {x, f.Number(0.7978845608)}), factor});
  const ValueId sum = f.Op("Add", {f.Op("Tanh", {inner}), f.Number(1)});
  return f.Op("Mul", {f.Op("Mul", {x, f.Number(0.5)}), sum});
}

ValueId Silu(Form& f, ValueId x) { return f.Op("Mul", {x, f.Op("Sigmoid", {x})}); }

ValueId QuickGelu(Form& f, ValueId x) {
  return f.Op("Mul", {x, f.Op("Sigmoid", {f.Op("Mul", {f.Number(1.5), x})})});
}

ValueId HardSwishOfDynamo(Form& f, ValueId x) {
  const ValueId shifted = f.Op("Add", {x, f.Number(3)});
  const ValueId clipped = f.Op("Clip", {shifted, f.Number(0), f.Number(6)});
  return f.Op("Div", {f.Op("Mul", {x, clipped}), f.Number(6)});
}

ValueId HardSwishOfTorchScript(Form& f, ValueId x) {
  const Attributes sixth = {{"alpha", 1.0f / 6}, {"beta", 0.5f}};
  return f.Op("Mul", {x, f.Op("HardSigmoid", {x}, sixth)});
}

ValueId MishForm(Form& f, ValueId x) {
  return f.Op("Mul", {x, f.Op("Tanh", {f.Op("Softplus", {x})})});
}

INSTANTIATE_TEST_SUITE_P(
    Activations, RewrittenForms,
    ::testing::Values(
        FormCase{"gelu of TorchScript", "gelu", "Gelu", {3, 5}, GeluOfTorchScript},
        FormCase{"gelu of dynamo", "gelu", "Gelu", {3, 5}, GeluOfDynamo},
        FormCase{"tanh of TorchScript", "gelu_tanh", "Gelu", {3, 5}, TanhGeluOfTorchScript},
        FormCase{"tanh of transformers", "gelu_tanh", "Gelu", {3, 5}, TanhGeluOfTransformers},
        FormCase{"fast gelu", "gelu_tanh", "Gelu", {3, 5}, FastGelu},
        FormCase{"silu", "swish", "Swish", {3, 5}, Silu},
        FormCase{"quick gelu", "swish", "Swish", {3, 5}, QuickGelu},
        FormCase{"hard swish of dynamo", "hard_swish", "HardSwish", {3, 5}, HardSwishOfDynamo},
        FormCase{
            "hard swish of TorchScript", "hard_swish", "HardSwish", {3, 5}, HardSwishOfTorchScript},
        FormCase{"mish", "mish", "Mish", {3, 5}, MishForm}));

// ---- Normalizations.

ValueId LayerOfTorchScript(Form& f, ValueId x) {
  const ValueId centred = f.Op("Sub", {x, f.Mean(x, {-1})});
  const ValueId variance = f.Mean(f.Op("Pow", {centred, f.Number(2)}), {-1});
  const ValueId root = f.Op("Sqrt", {f.Op("Add", {variance, f.Number(1e-5)})});
  const ValueId scaled = f.Op("Mul", {f.Op("Div", {centred, root}), f.Parameter("weight", {6})});
  return f.Op("Add", {scaled, f.Parameter("bias", {6})});
}

// Two subtractions, the inverse of the root, and two normalized axes.
ValueId LayerOfDynamo(Form& f, ValueId x) {
  const ValueId mean = f.Mean(x, {1, 2});
  const ValueId deviation = f.Op("Sub", {x, mean});
  const ValueId variance = f.Mean(f.Op("Mul", {deviation, deviation}), {-1, -2});
  const ValueId root = f.Op("Sqrt", {f.Op("Add", {f.Number(1e-3), variance})});
  const ValueId normal = f.Op("Mul", {f.Op("Reciprocal", {root}), f.Op("Sub", {x, mean})});
  const ValueId scaled = f.Op("Mul", {f.Parameter("weight", {4, 6}), normal});
  return f.Op("Add", {f.Parameter("bias", {4, 6}), scaled});
}

ValueId LayerWithoutParameters(Form& f, ValueId x) {
  const ValueId centred = f.Op("Sub", {x, f.Mean(x, {2})});
  const ValueId variance = f.Mean(f.Op("Pow", {centred, f.Number(2)}), {2});
  return f.Op("Div", {centred, f.Op("Sqrt", {f.Op("Add", {variance, f.Number(1e-5)})})});
}

// The sum that follows is a residual one: it stays.
ValueId LayerBeforeResidual(Form& f, ValueId x) {
  const ValueId normal = LayerWithoutParameters(f, x);
  return f.Op("Add", {f.Op("Mul", {normal, f.Parameter("weight", {6})}), x});
}

// LlamaRMSNorm of transformers.
ValueId RmsOfTorchScript(Form& f, ValueId x) {
  const ValueId mean = f.Mean(f.Op("Pow", {x, f.Number(2)}), {-1});
  const ValueId root = f.Op("Sqrt", {f.Op("Add", {mean, f.Number(1e-6)})});
  const ValueId normal = f.Op("Mul", {x, f.Op("Div", {f.Number(1), root})});
  return f.Op("Mul", {f.Parameter("weight", {6}), normal});
}

ValueId RmsOfDynamo(Form& f, ValueId x) {
  const ValueId mean = f.Mean(f.Op("Mul", {x, x}), {2});
  const ValueId root = f.Op("Sqrt", {f.Op("Add", {mean, f.Number(1e-6)})});
  const ValueId normal = f.Op("Mul", {x, f.Op("Reciprocal", {root})});
  return f.Op("Mul", {normal, f.Parameter("weight", {6})});
}

// The scale is computed, as Gemma does: 1 + weight.
ValueId RmsWithComputedScale(Form& f, ValueId x) {
  const ValueId mean = f.Mean(f.Op("Pow", {x, f.Number(2)}), {-1});
  const ValueId normal =
      f.Op("Mul", {x, f.Op("Pow", {f.Op("Add", {mean, f.Number(1e-6)}), f.Number(-0.5)})});
  return f.Op("Mul", {normal, f.Op("Add", {f.Number(1), f.Parameter("weight", {6})})});
}

ValueId GroupRows(Form& f, ValueId x, int64_t groups) {
  const ValueId rows = f.Op("Reshape", {x, f.Ints({0, groups, -1})});
  const ValueId normal =
      f.Op("InstanceNormalization", {rows, f.Filled(groups, 1), f.Filled(groups, 0)},
           {{"epsilon", 1e-4f}});
  return f.Op("Reshape", {normal, f.Op("Shape", {x})});
}

ValueId GroupOfTorchScript(Form& f, ValueId x) {
  const ValueId weight = f.Op("Unsqueeze", {f.Parameter("weight", {4}), f.Ints({1, 2})});
  const ValueId bias = f.Op("Unsqueeze", {f.Parameter("bias", {4}), f.Ints({1, 2})});
  return f.Op("Add", {f.Op("Mul", {GroupRows(f, x, 2), weight}), bias});
}

// Constant folding left parameters that broadcast.
ValueId GroupOfDynamo(Form& f, ValueId x) {
  const ValueId scaled = f.Op("Mul", {f.Parameter("weight", {4, 1, 1}), GroupRows(f, x, 2)});
  return f.Op("Add", {scaled, f.Parameter("bias", {1, 4, 1, 1})});
}

ValueId GroupWithoutParameters(Form& f, ValueId x) { return GroupRows(f, x, 4); }

// Without the exporter's optimizer: ones and zeros are made for the type of the image, and
// parameters are cast to it.
ValueId GroupOfRawDynamo(Form& f, ValueId x) {
  const ValueId rows = f.Op("Reshape", {x, f.Ints({0, 2, -1})});
  const auto filled = [&](double number) {
    return f.Op("Expand", {f.Op("CastLike", {f.Number(number), x}), f.Ints({2})});
  };
  const ValueId normal = f.Op("InstanceNormalization", {rows, filled(1), filled(0)});
  const ValueId back = f.Op("Reshape", {normal, f.Op("Shape", {x})});
  const auto parameter = [&](const char* name, ValueId like) {
    const ValueId full = f.Op("Unsqueeze", {f.Parameter(name, {4}), f.Ints({1, 2})});
    return f.Op("CastLike", {full, like});
  };
  const ValueId scaled = f.Op("Mul", {back, parameter("weight", back)});
  return f.Op("Add", {scaled, parameter("bias", scaled)});
}

INSTANTIATE_TEST_SUITE_P(
    Normalizations, RewrittenForms,
    ::testing::Values(
        FormCase{"layer of TorchScript",
                 "layer_normalization",
                 "LayerNormalization",
                 {3, 4, 6},
                 LayerOfTorchScript},
        FormCase{"layer of dynamo",
                 "layer_normalization",
                 "LayerNormalization",
                 {3, 4, 6},
                 LayerOfDynamo},
        FormCase{"layer without parameters",
                 "layer_normalization",
                 "LayerNormalization",
                 {3, 4, 6},
                 LayerWithoutParameters},
        FormCase{"layer before residual",
                 "layer_normalization",
                 "LayerNormalization",
                 {3, 4, 6},
                 LayerBeforeResidual},
        FormCase{"rms of TorchScript",
                 "rms_normalization",
                 "RMSNormalization",
                 {3, 4, 6},
                 RmsOfTorchScript},
        FormCase{"rms of dynamo", "rms_normalization", "RMSNormalization", {3, 4, 6}, RmsOfDynamo},
        FormCase{"rms with computed scale",
                 "rms_normalization",
                 "RMSNormalization",
                 {3, 4, 6},
                 RmsWithComputedScale},
        FormCase{"group of TorchScript",
                 "group_normalization",
                 "GroupNormalization",
                 {2, 4, 3, 5},
                 GroupOfTorchScript},
        FormCase{"group of raw dynamo",
                 "group_normalization",
                 "GroupNormalization",
                 {2, 4, 3, 5},
                 GroupOfRawDynamo},
        FormCase{"group of dynamo",
                 "group_normalization",
                 "GroupNormalization",
                 {2, 4, 3, 5},
                 GroupOfDynamo},
        FormCase{"group without parameters",
                 "group_normalization",
                 "GroupNormalization",
                 {2, 4, 3},
                 GroupWithoutParameters}));

// ---- Rotary position embedding.

// Llama of transformers: angles are positions times frequencies, twice; halves are turned.
ValueId RotaryOfLlama(Form& f, ValueId x) {
  const ValueId angles = f.builder.Constant(RandomTensor({1, 5, 3}, 9, -3, 3, kDouble));
  const ValueId twice = f.Op("Concat", {angles, angles}, {{"axis", int64_t{-1}}});
  const auto cache = [&](const char* op) {
    return f.Op("Unsqueeze", {f.Op("Mul", {f.Op(op, {twice}), f.Number(1)}), f.Ints({1})});
  };
  const ValueId first = f.Op("Slice", {x, f.Ints({0}), f.Ints({3}), f.Ints({3}), f.Ints({1})});
  const ValueId second =
      f.Op("Slice", {x, f.Ints({3}), f.Ints({INT64_MAX}), f.Ints({3}), f.Ints({1})});
  const ValueId turned = f.Op("Concat", {f.Op("Neg", {second}), first}, {{"axis", int64_t{-1}}});
  return f.Op("Add", {f.Op("Mul", {x, cache("Cos")}), f.Op("Mul", {turned, cache("Sin")})});
}

// Halves by chunk: a Split.
ValueId RotaryOfChunks(Form& f, ValueId x) {
  const ValueId angles = f.builder.Constant(RandomTensor({1, 1, 5, 3}, 9, -3, 3, kDouble));
  const ValueId twice = f.Op("Concat", {angles, angles}, {{"axis", int64_t{3}}});
  const std::vector<ValueId> halves = f.builder.Ops(
      "", "Split", {x}, {{"axis", int64_t{3}}, {"num_outputs", int64_t{2}}}, {true, true});
  const ValueId turned =
      f.Op("Concat", {f.Op("Neg", {halves[1]}), halves[0]}, {{"axis", int64_t{3}}});
  return f.Op(
      "Add", {f.Op("Mul", {f.Op("Cos", {twice}), x}), f.Op("Mul", {f.Op("Sin", {twice}), turned})});
}

INSTANTIATE_TEST_SUITE_P(
    Rotary, RewrittenForms,
    ::testing::Values(
        FormCase{"llama", "rotary_embedding", "RotaryEmbedding", {2, 3, 5, 6}, RotaryOfLlama},
        FormCase{"chunks", "rotary_embedding", "RotaryEmbedding", {2, 3, 5, 6}, RotaryOfChunks}));

// ---- Sequences.

// torch.chunk of the exporter without an optimizer: the size of a piece is computed.
ValueId Chunks(Form& f, ValueId x) {
  const ValueId size =
      f.Op("Gather", {f.Op("Shape", {x}), f.builder.Constant(Tensor::Scalar<int64_t>(1))});
  const ValueId piece =
      f.Op("Div", {f.Op("Add", {size, f.builder.Constant(Tensor::Scalar<int64_t>(2))}),
                   f.builder.Constant(Tensor::Scalar<int64_t>(3))});
  const ValueId pieces = f.Op("SplitToSequence", {x, piece}, {{"axis", int64_t{1}}});
  const auto at = [&](int64_t i) {
    return f.Op("SequenceAt", {pieces, f.builder.Constant(Tensor::Scalar<int64_t>(i))});
  };
  const ValueId product = f.Op("Mul", {at(0), f.Op("Sigmoid", {at(1)})});
  return f.Op("Concat", {product, f.Op("Tanh", {at(-1)})}, {{"axis", int64_t{1}}});
}

ValueId ListOfSizes(Form& f, ValueId x) {
  const ValueId pieces = f.Op("SplitToSequence", {x, f.Ints({1, 4, 2})}, {{"axis", int64_t{-1}}});
  const ValueId middle =
      f.Op("SequenceAt", {pieces, f.builder.Constant(Tensor::Scalar<int64_t>(1))});
  const ValueId halves = f.Op("SplitToSequence", {f.Op("Mul", {middle, middle}), f.Ints({2, 2})},
                              {{"axis", int64_t{1}}});
  return f.Op("SequenceAt", {halves, f.builder.Constant(Tensor::Scalar<int64_t>(1))});
}

// torch.unbind and torch.stack.
ValueId UnbindAndStack(Form& f, ValueId x) {
  const ValueId rows =
      f.Op("SplitToSequence", {x}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
  const auto at = [&](int64_t i) {
    return f.Op("SequenceAt", {rows, f.builder.Constant(Tensor::Scalar<int64_t>(i))});
  };
  const ValueId made = f.Op("SequenceConstruct", {at(6), f.Op("Mul", {at(0), at(1)})});
  const ValueId longer = f.Op("SequenceInsert", {made, f.Op("Sin", {at(2)})});
  return f.Op("ConcatFromSequence", {longer}, {{"axis", int64_t{1}}, {"new_axis", int64_t{1}}});
}

// Columns [begin, end) of x.
ValueId Columns(Form& f, ValueId x, int64_t begin, int64_t end) {
  return f.Op("Slice", {x, f.Ints({begin}), f.Ints({end}), f.Ints({1})});
}

ValueId PlainChunks(Form& f, ValueId x) {
  const ValueId product =
      f.Op("Mul", {Columns(f, x, 0, 3), f.Op("Sigmoid", {Columns(f, x, 3, 6)})});
  return f.Op("Concat", {product, f.Op("Tanh", {Columns(f, x, 6, 7)})}, {{"axis", int64_t{1}}});
}

ValueId PlainListOfSizes(Form& f, ValueId x) {
  const ValueId last = Columns(f, x, 3, 5);
  return f.Op("Mul", {last, last});
}

ValueId PlainUnbindAndStack(Form& f, ValueId x) {
  const auto column = [&](int64_t i) { return Columns(f, x, i, i + 1); };
  return f.Op("Concat", {column(6), f.Op("Mul", {column(0), column(1)}), f.Op("Sin", {column(2)})},
              {{"axis", int64_t{1}}});
}

INSTANTIATE_TEST_SUITE_P(
    Sequences, RewrittenForms,
    ::testing::Values(
        FormCase{"chunks", "sequences", "Split", {3, 7}, Chunks, PlainChunks},
        FormCase{"list of sizes", "sequences", "Split", {3, 7}, ListOfSizes, PlainListOfSizes},
        FormCase{"unbind and stack",
                 "sequences",
                 "Concat",
                 {3, 7},
                 UnbindAndStack,
                 PlainUnbindAndStack}));

}  // namespace
}  // namespace weft
