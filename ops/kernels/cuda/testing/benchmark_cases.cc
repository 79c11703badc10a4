#include "ops/kernels/cuda/testing/benchmark_cases.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph.h"
#include "graph/op_schema.h"
#include "ops/fusion/attention_gradient.h"
#include "ops/testing/gradient_rule.h"
#include "ops/testing/test_tensors.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

constexpr int64_t kSamplesOfGpt = 8, kHeadsOfGpt = 12, kTokensOfGpt = 1024, kHeadSizeOfGpt = 64;

Tensor Indices(int64_t count, int64_t limit) {
  return RandomTensor(Shape{count}, 2, 0, static_cast<double>(limit), DType::kInt64);
}

OpCase AttentionCase(DType dtype) {
  const Shape shape{kSamplesOfGpt, kHeadsOfGpt, kTokensOfGpt, kHeadSizeOfGpt};
  return {.op = "Attention",
          .attributes = {{"is_causal", int64_t{1}}},
          .inputs = {Uninitialized(shape, dtype), Uninitialized(shape, dtype),
                     Uninitialized(shape, dtype)}};
}

// Of one product of attention. Causal: half of the scores count.
double OperationsOfAttention() {
  return static_cast<double>(kSamplesOfGpt * kHeadsOfGpt * kTokensOfGpt) *
         static_cast<double>(kTokensOfGpt * kHeadSizeOfGpt);
}

// The nodes that the wanted values need, but for `left_out`, as cases of their own.
absl::StatusOr<std::vector<OpCase>> CasesOfNodes(const Graph& graph,
                                                 const std::vector<ValueId>& wanted,
                                                 NodeId left_out) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  std::set<ValueId> needed(wanted.begin(), wanted.end());
  std::vector<OpCase> cases;
  for (auto id = order.rbegin(); id != order.rend(); ++id) {
    const Node& node = graph.node(*id);
    OpCase made{.domain = node.domain,
                .op = node.op,
                .attributes = node.attributes,
                .inputs = {},
                .outputs = {}};
    bool is_needed = false;
    for (const ValueId output : node.outputs) {
      is_needed = is_needed || needed.contains(output);
      made.outputs.push_back(output.valid());
    }
    if (!is_needed || *id == left_out) continue;
    for (const ValueId input : node.inputs) {
      if (!input.valid()) {
        made.inputs.emplace_back();
        continue;
      }
      needed.insert(input);
      const ValueDef& value = graph.value(input);
      const bool is_constant = value.source == ValueSource::kConstant;
      const auto shape = value.type.shape.ToConcrete();
      if (!is_constant && !shape.has_value()) {
        return absl::InternalError(absl::StrCat("value '", value.name, "' has no known shape"));
      }
      made.inputs.push_back(is_constant ? value.constant : Uninitialized(*shape, value.type.dtype));
    }
    cases.insert(cases.begin(), std::move(made));
  }
  return cases;
}

}  // namespace

Tensor Uninitialized(const Shape& shape, DType dtype) {
  return Tensor::Allocate(dtype, shape).value();
}

std::vector<BenchmarkCase> MemoryCases(DType dtype) {
  const Shape plain{65536, 1024};
  const Shape rows{98304, 768};
  const auto floats = [dtype](const Shape& shape) { return Uninitialized(shape, dtype); };
  const auto statistics = [] { return Uninitialized({98304, 1}, DType::kFloat32); };
  const std::string weft("ai.weft");
  const int64_t tokens = 4096, vocabulary = 50257;
  std::vector<BenchmarkCase> cases;
  const auto add = [&cases](std::string name, OpCase op_case, double low = -1) {
    cases.push_back({std::move(name), std::move(op_case), /*operations=*/0, low});
  };
  for (const char* op : {"Add", "Mul"}) {
    add(op, {.op = op, .inputs = {floats(plain), floats(plain)}});
  }
  for (const char* op : {"Relu", "Gelu"}) add(op, {.op = op, .inputs = {floats(plain)}});
  add("Softmax", {.op = "Softmax", .inputs = {floats(plain)}});
  add("LayerNormalization", {.op = "LayerNormalization",
                             .inputs = {floats(rows), floats({768}), floats({768})},
                             .outputs = {true, true, true}});
  add("LayerNormalizationGrad",
      {.domain = weft,
       .op = "LayerNormalizationGrad",
       .inputs = {floats(rows), floats(rows), floats({768}), statistics(), statistics()},
       .outputs = {true, true, true}});
  add("Transpose of a matrix", {.op = "Transpose",
                                .attributes = {{"perm", std::vector<int64_t>{1, 0}}},
                                .inputs = {floats({8192, 8192})}});
  add("Transpose of heads", {.op = "Transpose",
                             .attributes = {{"perm", std::vector<int64_t>{0, 2, 1, 3}}},
                             .inputs = {floats({64, 1024, 16, 64})}});
  for (const int64_t axis : {0, 1}) {
    add(absl::StrCat("ReduceSum over axis ", axis),
        {.op = "ReduceSum", .inputs = {floats({32768, 4096}), Int64s({axis})}});
  }
  add("Gather of rows", {.op = "Gather", .inputs = {floats(plain), Indices(65536, 65536)}});
  add("GatherGrad of rows",
      {.domain = weft,
       .op = "GatherGrad",
       .inputs = {floats(plain), Indices(65536, vocabulary), Int64s({vocabulary, 1024})}});
  add("SoftmaxCrossEntropyLoss",
      {.op = "SoftmaxCrossEntropyLoss",
       .inputs = {floats({tokens, vocabulary}), Indices(tokens, vocabulary)}});
  add("SoftmaxCrossEntropyGrad",
      {.domain = weft,
       .op = "SoftmaxCrossEntropyGrad",
       .inputs = {floats({}), floats({tokens, vocabulary}), Indices(tokens, vocabulary)}});
  const Shape images{64, 64, 112, 112}, halved{64, 64, 56, 56};
  const Attributes windows = {{"kernel_shape", std::vector<int64_t>{3, 3}},
                              {"pads", std::vector<int64_t>{1, 1, 1, 1}},
                              {"strides", std::vector<int64_t>{2, 2}}};
  add("MaxPool", {.op = "MaxPool", .attributes = windows, .inputs = {floats(images)}});
  add("AveragePool", {.op = "AveragePool", .attributes = windows, .inputs = {floats(images)}});
  add("Resize to twice the size",
      {.op = "Resize",
       .attributes = {{"mode", std::string("linear")}},
       .inputs = {floats(halved), Tensor(), Tensor::Of<float>({4}, {1, 1, 2, 2})}});
  add("Dropout",
      {.op = "Dropout",
       .inputs = {floats(plain), Tensor::Scalar<float>(0.1f), Tensor::Scalar<bool>(true)},
       .outputs = {true, true}},
      /*low=*/0.1);                            // a share, too
  if (dtype != DType::kFloat32) return cases;  // weights are updated in float32
  add("QuantizeLinear",
      {.op = "QuantizeLinear",
       .inputs = {floats(plain), Tensor::Scalar<float>(0.1f), Tensor::Scalar<int8_t>(3)}});
  add("DFT of 1,024", {.op = "DFT", .inputs = {floats({32768, 1024, 1})}});
  add("AdamUpdate",
      {.domain = weft,
       .op = "AdamUpdate",
       .inputs = {floats(plain), floats(plain), floats({}), Tensor::Scalar<int64_t>(3),
                  floats(plain), floats(plain)},
       .outputs = {true, true, true}},
      /*low=*/0.1);
  return cases;
}

std::vector<BenchmarkCase> WorkCases(DType dtype) {
  const auto floats = [dtype](const Shape& shape) { return Uninitialized(shape, dtype); };
  std::vector<BenchmarkCase> cases;
  for (BenchmarkCase& convolution : ConvolutionCases(dtype)) {
    if (convolution.name == "Conv 64x56^2 3^2 64") cases.push_back(std::move(convolution));
  }
  cases.push_back(AttentionForward(dtype));
  const int64_t time = 128, batch = 128, width = 512;
  cases.push_back({"LSTM 128 steps of 128x512",
                   {.op = "LSTM",
                    .attributes = {{"hidden_size", width}},
                    .inputs = {floats({time, batch, width}), floats({1, 4 * width, width}),
                               floats({1, 4 * width, width})}},
                   2.0 * static_cast<double>(time * batch * 4 * width) * (2.0 * width)});
  if (dtype != DType::kFloat32) return cases;
  const auto codes = [](int64_t rows, int64_t columns) {
    return RandomTensor({rows, columns}, 1, -100, 100, DType::kInt8);
  };
  cases.push_back({"MatMulInteger 4096x1024x4096",
                   {.op = "MatMulInteger", .inputs = {codes(4096, 1024), codes(1024, 4096)}},
                   2.0 * 4096 * 1024 * 4096});
  return cases;
}

std::vector<BenchmarkCase> ConvolutionCases(DType dtype) {
  struct Layer {
    int64_t channels, size, outputs, window, stride;
  };
  std::vector<BenchmarkCase> cases;
  for (const Layer& layer : {Layer{3, 224, 64, 7, 2}, Layer{64, 56, 64, 3, 1},
                             Layer{256, 56, 64, 1, 1}, Layer{512, 7, 512, 3, 1}}) {
    const int64_t images = 64, pad = layer.window / 2;
    const int64_t size = (layer.size + 2 * pad - layer.window) / layer.stride + 1;
    const Shape x{images, layer.channels, layer.size, layer.size};
    const Shape w{layer.outputs, layer.channels, layer.window, layer.window};
    const Shape y{images, layer.outputs, size, size};
    const Attributes attributes = {
        {"kernel_shape", std::vector<int64_t>{layer.window, layer.window}},
        {"pads", std::vector<int64_t>{pad, pad, pad, pad}},
        {"strides", std::vector<int64_t>{layer.stride, layer.stride}}};
    const std::string text = absl::StrCat(" ", layer.channels, "x", layer.size, "^2 ", layer.window,
                                          "^2 ", layer.outputs);
    const double operations =
        2.0 * static_cast<double>(y.num_elements() * w.num_elements() / layer.outputs);
    const std::string weft("ai.weft");
    cases.push_back({"Conv" + text,
                     {.op = "Conv",
                      .attributes = attributes,
                      .inputs = {Uninitialized(x, dtype), Uninitialized(w, dtype)}},
                     operations});
    cases.push_back({"its input's" + text,
                     {.domain = weft,
                      .op = "ConvGradInput",
                      .attributes = attributes,
                      .inputs = {Uninitialized(y, dtype), Uninitialized(w, dtype),
                                 Int64s({x.dim(0), x.dim(1), x.dim(2), x.dim(3)})}},
                     operations});
    cases.push_back({"its weights'" + text,
                     {.domain = weft,
                      .op = "ConvGradWeights",
                      .attributes = attributes,
                      .inputs = {Uninitialized(x, dtype), Uninitialized(y, dtype)},
                      .outputs = {true, false}},
                     operations});
  }
  return cases;
}

std::vector<BenchmarkCase> NormalizationCases(DType dtype) {
  const std::string weft("ai.weft");
  const Shape rows{32768, 768}, scales{768}, of_rows{32768, 1};
  const Shape images{64, 256, 56, 56}, channels{256};
  const auto floats = [dtype](const Shape& shape) { return Uninitialized(shape, dtype); };
  const auto wide = [](const Shape& shape) { return Uninitialized(shape, DType::kFloat32); };
  const Attributes training = {{"training_mode", int64_t{1}}};
  return {
      {"LayerNormalization",
       {.op = "LayerNormalization",
        .inputs = {floats(rows), floats(scales), floats(scales)},
        .outputs = {true, true, true}}},
      {"LayerNormalizationGrad",
       {.domain = weft,
        .op = "LayerNormalizationGrad",
        .inputs = {floats(rows), floats(rows), floats(scales), wide(of_rows), wide(of_rows)},
        .outputs = {true, true, true}}},
      {"RMSNormalization", {.op = "RMSNormalization", .inputs = {floats(rows), floats(scales)}}},
      {"RMSNormalizationGrad",
       {.domain = weft,
        .op = "RMSNormalizationGrad",
        .inputs = {floats(rows), floats(rows), floats(scales)},
        .outputs = {true, true}}},
      {"BatchNormalization",
       {.op = "BatchNormalization",
        .attributes = training,
        .inputs = {floats(images), wide(channels), wide(channels), wide(channels), wide(channels)},
        .outputs = {true, true, true}}},
      {"BatchNormalizationGrad",
       {.domain = weft,
        .op = "BatchNormalizationGrad",
        .attributes = training,
        .inputs = {floats(images), floats(images), wide(channels)},
        .outputs = {true, true, true}}}};
}

BenchmarkCase AttentionForward(DType dtype) {
  return {"Attention 8x12x1024x64", AttentionCase(dtype), 2 * OperationsOfAttention()};
}

absl::StatusOr<AttentionGradientCase> AttentionBackward(DType dtype) {
  static const bool schema_is_known = OpRegistry::Global().Register(AttentionGradSchema()).ok();
  if (!schema_is_known) return absl::InternalError("AttentionGrad is registered already");
  AttentionGradientCase made;
  made.name = "its gradient";
  // Scores once more, and the gradients of probabilities, query, key and value.
  made.operations = 5 * OperationsOfAttention();
  const OpCase forward = AttentionCase(dtype);
  WEFT_ASSIGN_OR_RETURN(const GradientGraph rule, BuildGradientGraph(forward, {0, 1, 2}));
  WEFT_ASSIGN_OR_RETURN(made.own, CasesOfNodes(*rule.graph, rule.input_gradients, rule.node));
  const Shape shape = forward.inputs[0].shape();
  const auto operand = [&] { return Uninitialized(shape, dtype); };
  made.joined = {
      .domain = std::string(kWeftDomain),
      .op = kAttentionGradOp,
      .attributes = {{"is_causal", int64_t{1}},
                     {"scale", 1 / std::sqrt(static_cast<float>(kHeadSizeOfGpt))},
                     {"q_num_heads", kHeadsOfGpt},
                     {"kv_num_heads", kHeadsOfGpt}},
      .inputs = {operand(), operand(), operand(), operand(), operand(),
                 Uninitialized({kSamplesOfGpt, kHeadsOfGpt, kTokensOfGpt}, DType::kFloat32)},
      .outputs = {true, true, true}};
  return made;
}

}  // namespace weft::testing
