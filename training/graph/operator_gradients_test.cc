// Every operator through which gradients flow: its rule, or the rules of what it expands to,
// against numeric differentiation in float64 of its forward kernel, and the production kernels in
// float32 against that. And every operator that the standard calls differentiable has one.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/expansion.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "gtest/gtest.h"
#include "ops/kernel.h"
#include "ops/op_support.h"
#include "ops/testing/cases/gradient_cases.h"
#include "ops/testing/test_tensors.h"
#include "ops/value_node.h"
#include "platform/status_macros.h"
#include "training/graph/autodiff.h"

namespace weft {
namespace {

using testing::CaseRandom;
using testing::Cast;
using testing::GradientCase;
using testing::RandomTensor;

// ---- Which operators must have one.

// The operators of ONNX 1.23's operator set 28 with an input or output that its schemas mark as
// differentiable (OpSchema::FormalParameter::GetDifferentiationCategory, the newest version of
// each), 122 with Scatter, which was replaced by ScatterElements in version 11 and is imported so.
constexpr std::array kDifferentiable = {"Abs",
                                        "Acos",
                                        "Acosh",
                                        "Add",
                                        "AffineGrid",
                                        "Asin",
                                        "Asinh",
                                        "Atan",
                                        "Atanh",
                                        "AveragePool",
                                        "BatchNormalization",
                                        "Cast",
                                        "CastLike",
                                        "CausalConvWithState",
                                        "Celu",
                                        "CenterCropPad",
                                        "Clip",
                                        "Col2Im",
                                        "Compress",
                                        "Concat",
                                        "Conv",
                                        "ConvTranspose",
                                        "Cos",
                                        "Cosh",
                                        "CumProd",
                                        "CumSum",
                                        "DepthToSpace",
                                        "Det",
                                        "Div",
                                        "Dropout",
                                        "Einsum",
                                        "Elu",
                                        "Erf",
                                        "Exp",
                                        "Expand",
                                        "Flatten",
                                        "GRU",
                                        "Gather",
                                        "GatherElements",
                                        "GatherND",
                                        "Gelu",
                                        "Gemm",
                                        "GlobalAveragePool",
                                        "GlobalLpPool",
                                        "GlobalMaxPool",
                                        "GridSample",
                                        "GroupNormalization",
                                        "HardSigmoid",
                                        "HardSwish",
                                        "Hardmax",
                                        "Identity",
                                        "InstanceNormalization",
                                        "LRN",
                                        "LSTM",
                                        "LeakyRelu",
                                        "LinearAttention",
                                        "Log",
                                        "LogSoftmax",
                                        "LpNormalization",
                                        "LpPool",
                                        "MatMul",
                                        "Max",
                                        "MaxPool",
                                        "MaxRoiPool",
                                        "MaxUnpool",
                                        "Mean",
                                        "MeanVarianceNormalization",
                                        "Min",
                                        "Mish",
                                        "Mod",
                                        "Mul",
                                        "Neg",
                                        "NegativeLogLikelihoodLoss",
                                        "PRelu",
                                        "Pad",
                                        "Pow",
                                        "RNN",
                                        "Reciprocal",
                                        "ReduceL1",
                                        "ReduceL2",
                                        "ReduceLogSum",
                                        "ReduceLogSumExp",
                                        "ReduceMax",
                                        "ReduceMean",
                                        "ReduceMin",
                                        "ReduceProd",
                                        "ReduceSum",
                                        "ReduceSumSquare",
                                        "Relu",
                                        "Reshape",
                                        "Resize",
                                        "ScatterElements",
                                        "ScatterND",
                                        "Selu",
                                        "Shrink",
                                        "Sigmoid",
                                        "Sin",
                                        "Sinh",
                                        "Slice",
                                        "Softmax",
                                        "SoftmaxCrossEntropyLoss",
                                        "Softplus",
                                        "Softsign",
                                        "SpaceToDepth",
                                        "Split",
                                        "Sqrt",
                                        "Squeeze",
                                        "Sub",
                                        "Sum",
                                        "SwiGLU",
                                        "Swish",
                                        "Tan",
                                        "Tanh",
                                        "TensorScatter",
                                        "ThresholdedRelu",
                                        "Tile",
                                        "TopK",
                                        "Transpose",
                                        "Trilu",
                                        "Unsqueeze",
                                        "Where"};

// Differentiable ones that it leaves unmarked.
constexpr std::array kUnmarked = {"Attention",
                                  "ConcatFromSequence",
                                  "DFT",
                                  "DeformConv",
                                  "If",
                                  "LayerNormalization",
                                  "Loop",
                                  "Optional",
                                  "OptionalGetElement",
                                  "RMSNormalization",
                                  "ReverseSequence",
                                  "RoiAlign",
                                  "RotaryEmbedding",
                                  "STFT",
                                  "Scan",
                                  "SequenceAt",
                                  "SequenceConstruct",
                                  "SequenceErase",
                                  "SequenceInsert",
                                  "SequenceMap",
                                  "SplitToSequence"};

// Zero wherever it is defined.
const std::set<std::string> kPiecewiseConstant = {"Hardmax"};

TEST(DifferentiableOperatorsTest, AllOfTheStandardsHaveARule) {
  EXPECT_EQ(kDifferentiable.size(), 121u);
  std::vector<std::string> missing;
  const auto check = [&](const std::string& op) {
    const OpSchema* schema = OpRegistry::Global().Find("", op);
    ASSERT_NE(schema, nullptr) << op;
    const TrainSupport support = TrainSupportOf(*schema);
    const bool trains = support == TrainSupport::kRule || support == TrainSupport::kExpanded;
    if (!trains && !kPiecewiseConstant.contains(op)) missing.push_back(op);
  };
  for (const char* op : kDifferentiable) check(op);
  for (const char* op : kUnmarked) check(op);
  EXPECT_EQ(absl::StrJoin(missing, " "), "");
}

// ---- Which operators are checked here.

// Their gradients are checked where what they need is at hand.
const std::map<std::string, std::string> kCheckedElsewhere = {
    {"GRU", "ops/defs/"},
    {"LSTM", "ops/defs/"},
    {"RNN", "ops/defs/"},
    {"Attention", "ops/defs/"},
    // Their gradient goes straight through steps, and is no derivative.
    {"ai.weft::FakeQuantize", "ops/defs/quantized/fake_quantize_test.cc"},
    {"ai.weft::FakeQuantizeWeight", "ops/defs/quantized/fake_quantize_test.cc"}};

TEST(DifferentiableOperatorsTest, EveryRuleHasRandomCases) {
  std::vector<std::string> untested;
  for (const OpSchema* schema : OpRegistry::Global().All()) {
    if (schema->gradient_kind() != GradientKind::kRule) continue;
    const std::string name = schema->FullName();
    if (testing::GradientCases().contains(name) || kCheckedElsewhere.contains(name)) continue;
    untested.push_back(name);
  }
  EXPECT_EQ(absl::StrJoin(untested, " "), "") << "add cases to ops/testing/gradient_*_cases.cc";
  for (const char* op : kDifferentiable) {
    const bool checked = testing::GradientCases().contains(op) || kCheckedElsewhere.contains(op) ||
                         kPiecewiseConstant.contains(op);
    EXPECT_TRUE(checked) << op;
  }
}

// ---- Running a small graph.

enum class Kernels : uint8_t { kReference, kProduction };

// Runs the nodes of a graph again and again; kernels are prepared once. Reference kernels where
// there are any; else the production kernel computes in float64 as well.
class GraphRunner : public BodyRunner {
 public:
  GraphRunner(const Graph& graph, Kernels kernels) : graph_(graph), kernels_(kernels) {
    order_ = graph.TopologicalOrder().value();
    const KernelRegistry& reference = KernelRegistry::Reference();
    for (const NodeId id : order_) {
      const Node& node = graph.node(id);
      ValueNode::Settings settings;
      settings.bodies = this;
      if (kernels == Kernels::kReference &&
          reference.Find(node.domain, node.op, DeviceKind::kCpu) != nullptr) {
        settings.kernels = &reference;
      }
      nodes_.push_back(std::make_unique<ValueNode>(node, settings));
    }
  }

  absl::StatusOr<std::vector<Tensor>> Run(const std::map<ValueId, Tensor>& feeds,
                                          const std::vector<ValueId>& wanted) {
    std::vector<Value> values(graph_.value_capacity());
    for (const auto& [id, tensor] : feeds) values[id.value] = tensor;
    WEFT_RETURN_IF_ERROR(RunNodes(values));
    std::vector<Tensor> results;
    for (const ValueId id : wanted) results.push_back(values[id.value].tensor());
    return results;
  }

  // By a runner of its own for each body, with the same kernels.
  absl::StatusOr<std::vector<Value>> RunBody(const Graph& body,
                                             std::vector<Value> inputs) override {
    std::unique_ptr<GraphRunner>& runner = bodies_[&body];
    if (runner == nullptr) runner = std::make_unique<GraphRunner>(body, kernels_);
    std::vector<Value> values(body.value_capacity());
    for (size_t i = 0; i < inputs.size(); ++i) {
      values[body.inputs()[i].value] = std::move(inputs[i]);
    }
    WEFT_RETURN_IF_ERROR(runner->RunNodes(values));
    std::vector<Value> results;
    for (const ValueId id : body.outputs()) results.push_back(values[id.value]);
    return results;
  }

 private:
  absl::Status RunNodes(std::vector<Value>& values) {
    for (const ValueId id : graph_.value_ids()) {
      const ValueDef& value = graph_.value(id);
      if (value.source == ValueSource::kConstant) values[id.value] = value.constant;
    }
    for (const std::unique_ptr<ValueNode>& node : nodes_) {
      std::vector<Value> inputs;
      for (const ValueId input : node->node().inputs) {
        inputs.push_back(input.valid() ? values[input.value] : Value(Tensor()));
      }
      WEFT_ASSIGN_OR_RETURN(const std::vector<Value> outputs, node->Run(std::move(inputs)));
      for (size_t i = 0; i < outputs.size(); ++i) {
        const ValueId output = node->node().outputs[i];
        if (output.valid()) values[output.value] = outputs[i];
      }
    }
    return absl::OkStatus();
  }

  const Graph& graph_;
  const Kernels kernels_;
  std::vector<NodeId> order_;
  std::vector<std::unique_ptr<ValueNode>> nodes_;
  std::map<const Graph*, std::unique_ptr<GraphRunner>> bodies_;
};

// ---- One case.

// A graph with the case's outputs and the gradients of its inputs.
struct Differentiated {
  Graph forward;  // expanded only where there is no kernel
  Graph graph;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;                // floating ones
  std::vector<ValueId> output_gradients;       // graph inputs
  std::map<ValueId, ValueId> input_gradients;  // those that something flows to
};

bool HasKernel(const Node& node) {
  return RunSupportOf(*node.schema, DeviceKind::kCpu) != RunSupport::kExpanded;
}

bool Contains(const std::vector<int>& list, int i) {
  return std::find(list.begin(), list.end(), i) != list.end();
}

std::vector<int> CheckedInputs(const GradientCase& c) {
  if (!c.checked.empty()) return c.checked;
  std::vector<int> checked;
  for (int i = 0; i < static_cast<int>(c.inputs.size()); ++i) {
    const bool floating = c.inputs[i].valid() && IsFloatingPoint(c.inputs[i].dtype());
    if (floating && !Contains(c.constants, i)) checked.push_back(i);
  }
  return checked;
}

// The case's inputs, floating ones that are not constants as `dtype`.
std::vector<Tensor> InputsAs(const GradientCase& c, DType dtype) {
  std::vector<Tensor> inputs = c.inputs;
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    const bool floating = inputs[i].valid() && IsFloatingPoint(inputs[i].dtype());
    if (floating && !Contains(c.constants, i)) inputs[i] = Cast(inputs[i], dtype);
  }
  return inputs;
}

absl::StatusOr<Differentiated> Differentiate(const GradientCase& c,
                                             const std::vector<Tensor>& inputs) {
  Differentiated result;
  GraphBuilder builder(result.graph);
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    if (!inputs[i].valid()) {
      result.inputs.push_back(kNoValue);
    } else if (Contains(c.constants, i)) {
      result.inputs.push_back(builder.Constant(inputs[i]));
    } else {
      const ValueType type{ValueKind::kTensor, inputs[i].dtype(), inputs[i].shape()};
      result.inputs.push_back(result.graph.AddInput(absl::StrCat("x", i), type));
    }
  }
  for (const ValueId output : c.build(builder, result.inputs)) {
    WEFT_RETURN_IF_ERROR(builder.status());
    if (IsFloatingPoint(builder.type(output).dtype)) result.outputs.push_back(output);
  }
  WEFT_RETURN_IF_ERROR(builder.status());
  result.forward = result.graph.Clone();
  for (const ValueId output : result.outputs) result.forward.AddOutput(output);
  WEFT_RETURN_IF_ERROR(ExpandFunctions(result.forward, HasKernel).status());
  const auto has_rule = [](const Node& node) {
    return node.schema != nullptr && node.schema->gradient_kind() != GradientKind::kMissing;
  };
  for (const ValueId output : result.outputs) result.graph.AddOutput(output);
  WEFT_RETURN_IF_ERROR(ExpandFunctions(result.graph, has_rule).status());
  // An expanded node's outputs keep their names.
  std::vector<GradientSeed> seeds;
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const ValueId output = result.graph.outputs()[i];
    const ValueId dy = result.graph.AddInput(absl::StrCat("dy", i), builder.type(output));
    seeds.push_back({output, dy});
    result.output_gradients.push_back(dy);
  }
  std::vector<ValueId> wanted;
  for (const int i : CheckedInputs(c)) wanted.push_back(result.inputs[i]);
  WEFT_ASSIGN_OR_RETURN(result.input_gradients, AddGradients(result.graph, seeds, wanted));
  return result;
}

// One run of a case in one dtype.
class CaseRun {
 public:
  CaseRun(const GradientCase& c, DType dtype, Kernels kernels)
      : case_(c), inputs_(InputsAs(c, dtype)), kernels_(kernels) {}

  absl::Status Prepare() {
    WEFT_ASSIGN_OR_RETURN(differentiated_, Differentiate(case_, inputs_));
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const bool fed = inputs_[i].valid() && !Contains(case_.constants, static_cast<int>(i));
      if (fed) feeds_[differentiated_.inputs[i]] = inputs_[i];
    }
    forward_ = std::make_unique<GraphRunner>(differentiated_.forward, kernels_);
    WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs,
                          forward_->Run(feeds_, differentiated_.forward.outputs()));
    for (size_t i = 0; i < outputs.size(); ++i) {
      weights_.push_back(RandomTensor(outputs[i].shape(), 100 + i, -1, 1, outputs[i].dtype()));
    }
    return absl::OkStatus();
  }

  // By the rules: one per checked input.
  absl::StatusOr<std::vector<Tensor>> Gradients() {
    std::map<ValueId, Tensor> feeds = feeds_;
    for (size_t i = 0; i < weights_.size(); ++i) {
      feeds[differentiated_.output_gradients[i]] = weights_[i];
    }
    GraphRunner runner(differentiated_.graph, kernels_);
    std::vector<Tensor> gradients;
    for (const int i : CheckedInputs(case_)) {
      const auto found = differentiated_.input_gradients.find(differentiated_.inputs[i]);
      if (found == differentiated_.input_gradients.end()) {
        WEFT_ASSIGN_OR_RETURN(gradients.emplace_back(),
                              Tensor::Zeros(inputs_[i].dtype(), inputs_[i].shape()));
        continue;
      }
      WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> gradient, runner.Run(feeds, {found->second}));
      gradients.push_back(gradient[0]);
    }
    return gradients;
  }

  // Of the sum of outputs * weights by input `i`, by five points:
  // (8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h.
  absl::StatusOr<std::vector<double>> Numeric(int i, double step) {
    WEFT_ASSIGN_OR_RETURN(Tensor x, inputs_[i].Clone());
    feeds_[differentiated_.inputs[i]] = x;
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> centers, ToDoubles(inputs_[i]));
    std::vector<double> result(centers.size());
    for (size_t k = 0; k < centers.size(); ++k) {
      double sum = 0;
      double width = 0;
      for (const auto& [offset, weight] :
           {std::pair{1, 8.0}, std::pair{-1, -8.0}, std::pair{2, -1.0}, std::pair{-2, 1.0}}) {
        Set(x, k, centers[k] + offset * step);
        WEFT_ASSIGN_OR_RETURN(const double objective, Objective());
        sum += weight * objective;
        width = 12 * step;
      }
      Set(x, k, centers[k]);
      result[k] = sum / width;
    }
    feeds_[differentiated_.inputs[i]] = inputs_[i];
    return result;
  }

  const Tensor& input(int i) const { return inputs_[i]; }

 private:
  static void Set(Tensor& tensor, size_t k, double value) {
    if (tensor.dtype() == DType::kFloat64) {
      tensor.mutable_data<double>()[k] = value;
    } else {
      tensor.mutable_data<float>()[k] = static_cast<float>(value);
    }
  }

  absl::StatusOr<double> Objective() {
    WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs,
                          forward_->Run(feeds_, differentiated_.forward.outputs()));
    double sum = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<double> values, ToDoubles(outputs[i]));
      WEFT_ASSIGN_OR_RETURN(const std::vector<double> weights, ToDoubles(weights_[i]));
      for (size_t k = 0; k < values.size(); ++k) sum += values[k] * weights[k];
    }
    return sum;
  }

  const GradientCase& case_;
  const std::vector<Tensor> inputs_;
  const Kernels kernels_;
  Differentiated differentiated_;
  std::map<ValueId, Tensor> feeds_;
  std::vector<Tensor> weights_;  // per output
  std::unique_ptr<GraphRunner> forward_;
};

absl::Status CheckCase(const GradientCase& c) {
  const DType exact = c.single ? DType::kFloat32 : DType::kFloat64;
  CaseRun reference(c, exact, Kernels::kReference);
  WEFT_RETURN_IF_ERROR(reference.Prepare());
  WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> gradients, reference.Gradients());
  const std::vector<int> checked = CheckedInputs(c);
  for (size_t i = 0; i < checked.size(); ++i) {
    const Tensor& x = reference.input(checked[i]);
    if (!(gradients[i].shape() == x.shape()) || gradients[i].dtype() != x.dtype()) {
      return absl::InternalError(absl::StrCat("the gradient of input ", checked[i], " is ",
                                              gradients[i].ToString(0), ", the input ",
                                              x.ToString(0)));
    }
    const double step = c.single ? 0.05 : c.step;
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> numeric, reference.Numeric(checked[i], step));
    // A gradient that cancels to nothing is held against rounding.
    const testing::Tolerance tolerance{.of_magnitude = c.single ? 1e-4 : c.numeric_tolerance,
                                       .absolute = c.single ? 1e-5 : 1e-9};
    const absl::Status near =
        testing::CompareTensors(gradients[i], Tensor::Of<double>(x.shape(), numeric), tolerance,
                                /*any_dtype=*/true);
    if (!near.ok()) {
      return absl::InternalError(
          absl::StrCat("gradient of input ", checked[i],
                       " against the numeric one: ", std::string(near.message())));
    }
  }
  CaseRun production(c, DType::kFloat32, Kernels::kProduction);
  WEFT_RETURN_IF_ERROR(production.Prepare());
  WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> singles, production.Gradients());
  for (size_t i = 0; i < checked.size(); ++i) {
    const testing::Tolerance tolerance{.of_magnitude = c.production_tolerance, .absolute = 1e-6};
    const absl::Status near =
        testing::CompareTensors(singles[i], gradients[i], tolerance, /*any_dtype=*/true);
    if (!near.ok()) {
      return absl::InternalError(
          absl::StrCat("gradient of input ", checked[i],
                       " by the production kernels: ", std::string(near.message())));
    }
  }
  return absl::OkStatus();
}

// ---- All cases.

class OperatorGradientTest : public ::testing::TestWithParam<std::string> {};

TEST_P(OperatorGradientTest, IsTheNumericOne) {
  constexpr uint64_t kSeeds = 6;
  const std::vector<testing::GradientGenerator>& makers = testing::GradientCases().at(GetParam());
  for (size_t g = 0; g < makers.size(); ++g) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      CaseRandom random(1000 * g + seed);
      const GradientCase c = makers[g](random);
      const absl::Status status = CheckCase(c);
      EXPECT_TRUE(status.ok()) << c.name << ", generator " << g << ", seed " << seed << ": "
                               << status.message();
      if (!status.ok()) return;
    }
  }
}

std::vector<std::string> CheckedOperators() {
  std::vector<std::string> names;
  for (const auto& [name, makers] : testing::GradientCases()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, OperatorGradientTest, ::testing::ValuesIn(CheckedOperators()),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); },
                               '_');
                           return name;
                         });

}  // namespace
}  // namespace weft
