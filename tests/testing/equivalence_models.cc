#include "tests/testing/equivalence_models.h"

#include <cmath>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/testing/test_tensors.h"
#include "platform/status_macros.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kTokens = 5;
constexpr int64_t kWidth = 12;
constexpr int64_t kHeads = 4;
constexpr int64_t kHidden = 17;
constexpr int64_t kVocabulary = 13;
constexpr int64_t kFeatures = 6;
constexpr int64_t kStates = 7;
constexpr int64_t kClasses = 11;

// A forward graph in float32, written node by node.
class ModelBuilder {
 public:
  explicit ModelBuilder(Graph& graph) : graph_(graph), builder_(graph) {}

  void Name(const std::string& prefix) { builder_.set_name_prefix(prefix); }
  ValueId Input(const std::string& name, DType dtype, const Ints& sample) {
    std::vector<Dim> dims = {Dim::Symbol("N")};
    dims.insert(dims.end(), sample.begin(), sample.end());
    return graph_.AddInput(name, {ValueKind::kTensor, dtype, SymbolicShape(std::move(dims))});
  }
  ValueId Weight(const std::string& name, Shape shape, double center = 0) {
    const double spread = shape.rank() < 2 ? 0.2 : 0.5;
    Tensor initial = RandomTensor(shape, ++seed_, center - spread, center + spread);
    return graph_.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape}, initial, true);
  }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.Op(op, std::move(inputs), std::move(attributes));
  }
  // x W + b for the weight NAME.weight [from,to].
  ValueId Linear(ValueId x, const std::string& name, int64_t from, int64_t to) {
    const ValueId product = Op("MatMul", {x, Weight(name + ".weight", {from, to})});
    return Op("Add", {product, Weight(name + ".bias", {to})});
  }
  ValueId Normalize(ValueId x, const std::string& name) {
    return Op("LayerNormalization",
              {x, Weight(name + ".scale", {kWidth}, 1), Weight(name + ".shift", {kWidth})},
              {{"axis", int64_t{-1}}});
  }
  GraphBuilder& builder() { return builder_; }

 private:
  Graph& graph_;
  GraphBuilder builder_;
  uint64_t seed_ = 0;
};

void BuildMlp(Graph& graph, ModelBuilder& b) {
  const Attributes linear{{"transB", int64_t{1}}};
  const ValueId x = b.Input("x", DType::kFloat32, {7});
  b.Name("fc1/");
  ValueId h =
      b.Op("Gemm", {x, b.Weight("fc1.weight", {23, 7}), b.Weight("fc1.bias", {23})}, linear);
  h = b.Op("Relu", {h});
  b.Name("fc2/");
  h = b.Op("Gemm", {h, b.Weight("fc2.weight", {13, 23}), b.Weight("fc2.bias", {13})}, linear);
  h = b.Op("Sigmoid", {h});
  b.Name("fc3/");
  graph.AddOutput(b.Linear(h, "fc3", 13, 11));
}

void BuildLenet(Graph& graph, ModelBuilder& b) {
  const Attributes linear{{"transB", int64_t{1}}};
  const Attributes pool{{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};
  ValueId h = b.Input("x", DType::kFloat32, {1, 14, 14});
  b.Name("conv1/");
  h = b.Op("Conv", {h, b.Weight("conv1.weight", {5, 1, 5, 5}), b.Weight("conv1.bias", {5})},
           {{"kernel_shape", Ints{5, 5}}, {"pads", Ints{2, 2, 2, 2}}});
  h = b.Op("MaxPool", {b.Op("Relu", {h})}, pool);
  b.Name("conv2/");
  h = b.Op("Conv", {h, b.Weight("conv2.weight", {7, 5, 3, 3}), b.Weight("conv2.bias", {7})},
           {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 0, 0}}});
  h = b.Op("MaxPool", {b.Op("Relu", {h})}, pool);
  b.Name("fc1/");
  h = b.Op("Flatten", {h});
  h = b.Op("Gemm", {h, b.Weight("fc1.weight", {19, 63}), b.Weight("fc1.bias", {19})}, linear);
  h = b.Op("Relu", {h});
  b.Name("fc2/");
  h = b.Op("Gemm", {h, b.Weight("fc2.weight", {13, 19}), b.Weight("fc2.bias", {13})}, linear);
  h = b.Op("Relu", {h});
  b.Name("fc3/");
  graph.AddOutput(
      b.Op("Gemm", {h, b.Weight("fc3.weight", {11, 13}), b.Weight("fc3.bias", {11})}, linear));
}

// [N,T,width] -> [N,heads,T,width/heads].
ValueId SplitHeads(ModelBuilder& b, ValueId x) {
  const ValueId apart = b.Op("Reshape", {x, b.builder().Ints({0, 0, kHeads, kWidth / kHeads})});
  return b.Op("Transpose", {apart}, {{"perm", Ints{0, 2, 1, 3}}});
}

// 0 where a token may look, -10000 where it may not.
Tensor CausalMask() {
  std::vector<float> mask;
  for (int64_t row = 0; row < kTokens; ++row) {
    for (int64_t column = 0; column < kTokens; ++column) mask.push_back(column > row ? -1e4f : 0);
  }
  return Tensor::Of<float>(Shape{kTokens, kTokens}, mask);
}

ValueId Attention(ModelBuilder& b, ValueId x, const std::string& name, bool causal) {
  const ValueId qkv = b.Linear(x, name + ".qkv", kWidth, 3 * kWidth);
  const std::vector<ValueId> parts =
      b.builder().Ops("", "Split", {qkv, b.builder().Ints({kWidth, kWidth, kWidth})},
                      {{"axis", int64_t{2}}}, {true, true, true});
  if (parts.size() != 3) return kNoValue;
  const ValueId keys = b.Op("Transpose", {SplitHeads(b, parts[1])}, {{"perm", Ints{0, 1, 3, 2}}});
  const ValueId scale = b.builder().Float(1 / std::sqrt(static_cast<float>(kWidth / kHeads)));
  ValueId scores = b.Op("Mul", {b.Op("MatMul", {SplitHeads(b, parts[0]), keys}), scale});
  if (causal) scores = b.Op("Add", {scores, b.builder().Constant(CausalMask())});
  const ValueId weights = b.Op("Softmax", {scores}, {{"axis", int64_t{-1}}});
  const ValueId mixed = b.Op("Transpose", {b.Op("MatMul", {weights, SplitHeads(b, parts[2])})},
                             {{"perm", Ints{0, 2, 1, 3}}});
  const ValueId joined = b.Op("Reshape", {mixed, b.builder().Ints({0, 0, kWidth})});
  return b.Linear(joined, name + ".out", kWidth, kWidth);
}

ValueId Block(ModelBuilder& b, ValueId x, const std::string& name, bool causal) {
  b.Name(name + "/attention/");
  x = b.Op("Add", {x, Attention(b, b.Normalize(x, name + ".norm1"), name, causal)});
  b.Name(name + "/feed_forward/");
  const ValueId up = b.Linear(b.Normalize(x, name + ".norm2"), name + ".up", kWidth, kHidden);
  return b.Op("Add", {x, b.Linear(b.Op("Tanh", {up}), name + ".down", kHidden, kWidth)});
}

void BuildGpt(Graph& graph, ModelBuilder& b) {
  const ValueId tokens = b.Input("tokens", DType::kInt64, {kTokens});
  b.Name("embed/");
  ValueId x = b.Op("Gather", {b.Weight("tokens.weight", {kVocabulary, kWidth}), tokens});
  x = b.Op("Add", {x, b.Weight("positions.weight", {kTokens, kWidth})});
  x = Block(b, x, "block0", true);
  x = Block(b, x, "block1", true);
  b.Name("head/");
  graph.AddOutput(b.Linear(b.Normalize(x, "head.norm"), "head", kWidth, kVocabulary));
}

void BuildEncoder(Graph& graph, ModelBuilder& b) {
  const ValueId tokens = b.Input("tokens", DType::kInt64, {kTokens});
  b.Name("embed/");
  const ValueId embedding = b.Weight("embedding", {kVocabulary, kWidth});
  const ValueId first = b.Op("Gather", {embedding, tokens});
  const ValueId second = Block(b, first, "block0", false);
  const ValueId third = Block(b, second, "block1", false);
  b.Name("join/");
  const ValueId both = b.Op("Concat", {first, third}, {{"axis", int64_t{-1}}});
  const ValueId joined = b.Op("Add", {b.Linear(both, "join", 2 * kWidth, kWidth), second});
  b.Name("head/");
  const ValueId head = b.Op("Transpose", {embedding}, {{"perm", Ints{1, 0}}});
  graph.AddOutput(b.Op("MatMul", {b.Normalize(joined, "head.norm"), head}));
}

// Both directions over five steps; the head sees their last states, [2,N,7] as [N,14].
void BuildLstm(Graph& graph, ModelBuilder& b) {
  const ValueId x = b.Input("x", DType::kFloat32, {kTokens, kFeatures});
  b.Name("lstm/");
  const ValueId steps = b.Op("Transpose", {x}, {{"perm", Ints{1, 0, 2}}});
  const std::vector<ValueId> outputs = b.builder().Ops(
      "", "LSTM",
      {steps, b.Weight("lstm.W", {2, 4 * kStates, kFeatures}),
       b.Weight("lstm.R", {2, 4 * kStates, kStates}), b.Weight("lstm.B", {2, 8 * kStates})},
      {{"direction", std::string("bidirectional")}, {"hidden_size", kStates}}, {false, true});
  if (outputs.size() != 2) return;
  const ValueId last = b.Op("Transpose", {outputs[1]}, {{"perm", Ints{1, 0, 2}}});
  const ValueId state = b.Op("Reshape", {last, b.builder().Ints({0, 2 * kStates})});
  b.Name("head/");
  graph.AddOutput(b.Linear(b.Op("Tanh", {state}), "head", 2 * kStates, kClasses));
}

}  // namespace

std::vector<std::string> EquivalenceModelNames() { return {"mlp", "lenet", "gpt", "encoder"}; }

absl::StatusOr<EquivalenceModel> BuildEquivalenceModel(const std::string& name, int64_t samples) {
  EquivalenceModel model;
  model.name = name;
  model.graph.name = name;
  model.graph.opsets[""] = 17;
  ModelBuilder builder(model.graph);
  const auto whole_numbers = [&](Shape shape, uint64_t seed, int64_t count) {
    return RandomTensor(std::move(shape), seed, 0, static_cast<double>(count), DType::kInt64);
  };
  if (name == "mlp" || name == "lenet") {
    name == "mlp" ? BuildMlp(model.graph, builder) : BuildLenet(model.graph, builder);
    model.data["x"] =
        RandomTensor(name == "mlp" ? Shape{samples, 7} : Shape{samples, 1, 14, 14}, 1001);
    model.data["labels"] = whole_numbers({samples}, 1002, 11);
  } else if (name == "gpt" || name == "encoder") {
    name == "gpt" ? BuildGpt(model.graph, builder) : BuildEncoder(model.graph, builder);
    model.data["tokens"] = whole_numbers({samples, kTokens}, 1003, kVocabulary);
    model.data["labels"] = whole_numbers({samples, kTokens}, 1004, kVocabulary);
  } else if (name == "lstm") {
    BuildLstm(model.graph, builder);
    model.data["x"] = RandomTensor({samples, kTokens, kFeatures}, 1005);
    model.data["labels"] = whole_numbers({samples}, 1006, kClasses);
  } else {
    return absl::InvalidArgumentError(absl::StrCat("no model is called '", name, "'"));
  }
  WEFT_RETURN_IF_ERROR(builder.builder().status());
  return model;
}

std::map<std::string, std::string> WriteDataFiles(const EquivalenceModel& model,
                                                  const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& [input, tensor] : model.data) {
    files[input] = absl::StrCat(folder, "/", model.name, "-", input, ".npy");
    std::ofstream(files[input], std::ios::binary) << ToNpy(tensor).value();
  }
  return files;
}

}  // namespace weft::testing
