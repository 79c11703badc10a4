#include "tools/models/example_models.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "onnx_import/graph_wire.h"
#include "platform/random.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"
#include "tensor/tensor.h"

namespace weft {
namespace {

// The examples use no operator that changed after this set.
constexpr int64_t kOperatorSet = 17;

// Appends layers to a graph, each to the output of the one before.
class LayerStack {
 public:
  LayerStack(Graph& graph, uint64_t seed, ValueId input)
      : graph_(graph), builder_(graph), key_(seed, "example weights"), top_(input) {}

  void Add(const std::string& op, Attributes attributes = {}) {
    top_ = builder_.Op(op, {top_}, std::move(attributes));
  }

  // A layer with the parameters NAME.weight and NAME.bias.
  void AddWithParameters(const std::string& op, const std::string& name, Shape weight,
                         Attributes attributes) {
    const int64_t fan_in = weight.ProductOf(1, weight.rank());
    const Shape bias({weight.dim(0)});
    const ValueId w = Parameter(absl::StrCat(name, ".weight"), std::move(weight), fan_in);
    const ValueId b = Parameter(absl::StrCat(name, ".bias"), bias, fan_in);
    top_ = builder_.Op(op, {top_, w, b}, std::move(attributes));
  }

  // A hidden layer SwiGlu(NAME.gate, NAME.up) of the custom op in docs/custom-ops.md.
  void AddSwiGlu(const std::string& name, Shape weight) {
    const ValueId input = top_;
    AddWithParameters("Gemm", name + ".gate", weight, {{"transB", int64_t{1}}});
    const ValueId gate = top_;
    top_ = input;
    AddWithParameters("Gemm", name + ".up", weight, {{"transB", int64_t{1}}});
    const auto outputs = builder_.Ops("example", "SwiGlu", {gate, top_}, {}, {true});
    top_ = outputs.empty() ? kNoValue : outputs.front();
  }

  absl::Status Finish() {
    WEFT_RETURN_IF_ERROR(builder_.status());
    builder_.Name(top_, "logits");
    graph_.AddOutput(top_);
    return absl::OkStatus();
  }

 private:
  ValueId Parameter(const std::string& name, Shape shape, int64_t fan_in) {
    std::vector<float> values(static_cast<size_t>(shape.num_elements()));
    const float bound = 1.0f / std::sqrt(static_cast<float>(fan_in));
    FillUniform(key_.Fold(next_parameter_++), 0, -bound, bound, values);
    const ValueType type{ValueKind::kTensor, DType::kFloat32, shape};
    return graph_.AddVariable(name, type, Tensor::Of<float>(std::move(shape), values),
                              /*trainable=*/true);
  }

  Graph& graph_;
  GraphBuilder builder_;
  RandomKey key_;
  uint64_t next_parameter_ = 0;
  ValueId top_;
};

using Ints = std::vector<int64_t>;

void AddLenet(LayerStack& layers) {
  const Attributes pool{{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};
  const Attributes linear{{"transB", int64_t{1}}};
  layers.AddWithParameters("Conv", "conv1", {6, 1, 5, 5},
                           {{"kernel_shape", Ints{5, 5}}, {"pads", Ints{2, 2, 2, 2}}});
  layers.Add("Relu");
  layers.Add("MaxPool", pool);
  layers.AddWithParameters("Conv", "conv2", {16, 6, 5, 5}, {{"kernel_shape", Ints{5, 5}}});
  layers.Add("Relu");
  layers.Add("MaxPool", pool);
  layers.Add("Flatten");
  layers.AddWithParameters("Gemm", "fc1", {120, 400}, linear);
  layers.Add("Relu");
  layers.AddWithParameters("Gemm", "fc2", {84, 120}, linear);
  layers.Add("Relu");
  layers.AddWithParameters("Gemm", "fc3", {10, 84}, linear);
}

void AddMlp(LayerStack& layers) {
  const Attributes linear{{"transB", int64_t{1}}};
  layers.Add("Flatten");
  layers.AddWithParameters("Gemm", "fc1", {256, 784}, linear);
  layers.Add("Relu");
  layers.AddWithParameters("Gemm", "fc2", {128, 256}, linear);
  layers.Add("Relu");
  layers.AddWithParameters("Gemm", "fc3", {10, 128}, linear);
}

void AddSwiGluMlp(LayerStack& layers) {
  layers.Add("Flatten");
  layers.AddSwiGlu("fc1", {128, 784});
  layers.AddWithParameters("Gemm", "fc2", {10, 128}, {{"transB", int64_t{1}}});
}

}  // namespace

std::vector<std::string> ExampleModelNames() { return {"lenet", "mlp", "swiglu"}; }

absl::StatusOr<Graph> BuildExampleModel(const std::string& name, uint64_t seed) {
  Graph graph;
  graph.name = name;
  graph.opsets[""] = kOperatorSet;
  const SymbolicShape images({Dim::Symbol("N"), 1, 28, 28});
  LayerStack layers(graph, seed,
                    graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, images}));
  if (name == "lenet") {
    AddLenet(layers);
  } else if (name == "mlp") {
    AddMlp(layers);
  } else if (name == "swiglu") {
    if (OpRegistry::Global().Find("example", "SwiGlu") == nullptr) {
      return absl::FailedPreconditionError(
          "the example 'swiglu' has the op example::SwiGlu of docs/custom-ops.md: build it and "
          "give "
          "it with --op_library");
    }
    graph.opsets["example"] = 1;
    AddSwiGluMlp(layers);
  } else {
    return absl::InvalidArgumentError(absl::StrCat("no example is called '", name,
                                                   "'; there are lenet, mlp and swiglu",
                                                   DidYouMean(name, ExampleModelNames())));
  }
  WEFT_RETURN_IF_ERROR(layers.Finish());
  return graph;
}

absl::StatusOr<std::string> ExampleModelFile(const std::string& name, uint64_t seed) {
  WEFT_ASSIGN_OR_RETURN(const Graph graph, BuildExampleModel(name, seed));
  GraphToOnnxOptions options;
  options.annotations = false;
  options.opset = kOperatorSet;
  return GraphToOnnx(graph, options);
}

}  // namespace weft
