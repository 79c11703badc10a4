#include "tools/models/gpt_model.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using IntList = std::vector<int64_t>;

class GptBuilder {
 public:
  GptBuilder(Graph& graph, const GptBlocks& shape)
      : graph_(graph), builder_(graph), shape_(shape) {}

  absl::Status BuildClassifier() {
    const int64_t width = shape_.width;
    ValueId x =
        graph_.AddInput("x", {ValueKind::kTensor, DType::kFloat32,
                              SymbolicShape({Dim::Symbol("N"), Dim(shape_.tokens), Dim(width)})});
    for (int i = 0; i < shape_.blocks; ++i) x = Block(x, absl::StrCat("block", i));
    builder_.set_name_prefix("head/");
    const ValueId mean = Op("ReduceMean", {x, builder_.Ints({1})}, {{"keepdims", int64_t{0}}});
    graph_.AddOutput(Linear(mean, "head", width, 10));
    return builder_.status();
  }

  absl::Status BuildLanguageModel(const GptText& text) {
    compute_ = text.compute;
    dropout_ = text.dropout;
    activation_ = "Gelu";
    const int64_t vocabulary = text.vocabulary;
    const int64_t width = shape_.width;
    builder_.set_name_prefix("embedding/");
    const ValueId tokens = graph_.AddInput(
        "tokens",
        {ValueKind::kTensor, DType::kInt64, SymbolicShape({Dim::Symbol("N"), Dim(shape_.tokens)})});
    const ValueId embedding = Weight("embedding.weight", {vocabulary, width}, 1);
    const ValueId word = Op("Gather", {embedding, tokens});
    ValueId x = Dropout(Op("Add", {word, Weight("position.weight", {shape_.tokens, width}, 1)}));
    for (int i = 0; i < shape_.blocks; ++i) x = Block(x, absl::StrCat("block", i));
    builder_.set_name_prefix("head/");
    const ValueId normal = Normalize(x, "head.norm");
    const ValueId head = text.tied ? Op("Transpose", {embedding}, {{"perm", IntList{1, 0}}})
                                   : Weight("head.weight", {width, vocabulary}, 1);
    graph_.AddOutput(Cast(Op("MatMul", {normal, head}), DType::kFloat32));
    return builder_.status();
  }

 private:
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.Op(op, std::move(inputs), std::move(attributes));
  }
  ValueId Cast(ValueId x, DType to) {
    if (builder_.type(x).dtype == to) return x;
    return Op("Cast", {x}, {{"to", static_cast<int64_t>(to)}});
  }
  ValueId Dropout(ValueId x) {
    if (dropout_ <= 0) return x;
    const ValueId trains = builder_.Constant(Tensor::Scalar<bool>(true));
    return Op("Dropout", {x, builder_.Float(dropout_), trains});
  }
  // As the model computes with it.
  ValueId Weight(const std::string& name, const Shape& shape, float scale) {
    const ValueId weight =
        graph_.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape},
                           shape_.with_values ? SpreadValues(shape, scale) : Tensor(), true);
    return Cast(weight, compute_);
  }
  ValueId Linear(ValueId x, const std::string& name, int64_t from, int64_t to) {
    const float scale = 1 / std::sqrt(static_cast<float>(from));
    const ValueId product = Op("MatMul", {x, Weight(name + ".weight", {from, to}, scale)});
    return Op("Add", {product, Weight(name + ".bias", {to}, 0)});
  }
  ValueId Normalize(ValueId x, const std::string& name) {
    const Shape shape{shape_.width};
    return Op("LayerNormalization",
              {x, Weight(name + ".scale", shape, 1), Weight(name + ".shift", shape, 0)},
              {{"axis", int64_t{-1}}});
  }
  ValueId SplitHeads(ValueId x, const IntList& order) {
    const ValueId sizes = builder_.Ints({0, 0, shape_.heads, shape_.width / shape_.heads});
    return Op("Transpose", {Op("Reshape", {x, sizes})}, {{"perm", order}});
  }

  ValueId Attention(ValueId x, const std::string& name) {
    const int64_t width = shape_.width;
    const std::vector<ValueId> parts = builder_.Ops(
        "", "Split",
        {Linear(x, name + ".qkv", width, 3 * width), builder_.Ints({width, width, width})},
        {{"axis", int64_t{2}}}, {true, true, true});
    if (parts.size() != 3) return kNoValue;
    const ValueId scores =
        Op("MatMul", {SplitHeads(parts[0], {0, 2, 1, 3}), SplitHeads(parts[1], {0, 2, 3, 1})});
    const float scale = 1 / std::sqrt(static_cast<float>(width / shape_.heads));
    const ValueId weights =
        Op("Softmax",
           {Op("Add", {Op("Mul", {scores, builder_.Scalar(compute_, scale)}), CausalMask()})},
           {{"axis", int64_t{-1}}});
    const ValueId mixed =
        Op("Transpose", {Op("MatMul", {Dropout(weights), SplitHeads(parts[2], {0, 2, 1, 3})})},
           {{"perm", IntList{0, 2, 1, 3}}});
    return Linear(Op("Reshape", {mixed, builder_.Ints({0, 0, width})}), name + ".out", width,
                  width);
  }

  // 0 where a token may look, -10000 where it may not. One constant for all blocks.
  ValueId CausalMask() {
    if (mask_.valid()) return mask_;
    std::vector<float> mask;
    for (int64_t row = 0; row < shape_.tokens; ++row) {
      for (int64_t column = 0; column < shape_.tokens; ++column) {
        mask.push_back(column > row ? -1e4f : 0);
      }
    }
    absl::StatusOr<Tensor> cast =
        CastTensor(Tensor::Of<float>(Shape{shape_.tokens, shape_.tokens}, mask), compute_);
    if (!cast.ok()) return kNoValue;  // which the op that reads it refuses
    mask_ = builder_.Constant(*std::move(cast));
    return mask_;
  }

  ValueId Block(ValueId x, const std::string& name) {
    builder_.set_name_prefix(name + "/");
    x = Op("Add", {x, Dropout(Attention(Normalize(x, name + ".norm1"), name))});
    const ValueId up =
        Linear(Normalize(x, name + ".norm2"), name + ".up", shape_.width, 4 * shape_.width);
    return Op("Add", {x, Dropout(Linear(Op(activation_, {up}), name + ".down", 4 * shape_.width,
                                        shape_.width))});
  }

  Graph& graph_;
  GraphBuilder builder_;
  const GptBlocks& shape_;
  DType compute_ = DType::kFloat32;
  float dropout_ = 0;
  std::string activation_ = "Tanh";
  ValueId mask_ = kNoValue;
};

}  // namespace

absl::StatusOr<Graph> GptModel(const GptBlocks& shape) {
  Graph graph;
  WEFT_RETURN_IF_ERROR(GptBuilder(graph, shape).BuildClassifier());
  return graph;
}

absl::StatusOr<Graph> GptLanguageModel(const GptBlocks& shape, const GptText& text) {
  Graph graph;
  WEFT_RETURN_IF_ERROR(GptBuilder(graph, shape).BuildLanguageModel(text));
  return graph;
}

Tensor SpreadValues(const Shape& shape, float scale) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t hash = static_cast<uint32_t>(i) * 2654435761u;
    values[i] = scale * (static_cast<float>(hash >> 8) / static_cast<float>(1 << 23) - 1);
  }
  return Tensor::Of<float>(shape, values);
}

}  // namespace weft
