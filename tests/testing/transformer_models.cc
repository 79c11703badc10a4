#include "tests/testing/transformer_models.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/testing/test_tensors.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kLength = 6;
constexpr int64_t kModelWidth = 48;
constexpr int64_t kQueryHeads = 8;
constexpr int64_t kKeyHeads = 4;  // where queries share keys
constexpr int64_t kHeadSize = kModelWidth / kQueryHeads;
constexpr int64_t kInner = 80;
constexpr int64_t kWords = 13;

// The order of operands of a weight: [from, to], or [to, from] as torch keeps it.
enum class Layout { kFromTo, kToFrom };

// The nodes that all of the models have.
class TransformerWriter {
 public:
  TransformerWriter(TransformerModel& result, int64_t heads)
      : result_(result), graph_(result.model.graph), builder_(graph_), heads_(heads) {}

  GraphBuilder& builder() { return builder_; }
  int64_t heads() const { return heads_; }
  void Output(ValueId value) { graph_.AddOutput(value); }

  ValueId Input(const std::string& name, DType dtype, const Ints& sample) {
    std::vector<Dim> dims = {Dim::Symbol("N")};
    dims.insert(dims.end(), sample.begin(), sample.end());
    return graph_.AddInput(name, {ValueKind::kTensor, dtype, SymbolicShape(std::move(dims))});
  }
  ValueId Weight(const std::string& name, const Shape& shape, double center = 0) {
    const double spread = shape.rank() < 2 ? 0.1 : 0.2;
    return graph_.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape},
                              RandomTensor(shape, ++seed_, center - spread, center + spread), true);
  }
  // A weight that is split so.
  ValueId SplitWeight(const std::string& name, const Shape& shape, const AxisSharding& sharding) {
    result_.split[name] = sharding;
    return Weight(name, shape);
  }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.Op(op, std::move(inputs), std::move(attributes));
  }
  ValueId Number(double value) { return builder_.Float(static_cast<float>(value)); }
  ValueId Reshape(ValueId x, const Ints& shape) { return Op("Reshape", {x, builder_.Ints(shape)}); }
  ValueId Transpose(ValueId x, const Ints& order) {
    return Op("Transpose", {x}, {{"perm", order}});
  }

  // x W by columns, which are split, or by rows, in blocks; the weight is NAME.weight.
  ValueId Product(ValueId x, const std::string& name, int64_t from, int64_t to, bool by_columns,
                  Layout layout = Layout::kFromTo, int64_t blocks = 1) {
    const bool is_turned = layout == Layout::kToFrom;
    const AxisSharding sharding = AxisSharding::Split(by_columns != is_turned ? 1 : 0, blocks);
    const Shape shape = is_turned ? Shape{to, from} : Shape{from, to};
    ValueId weight = SplitWeight(name + ".weight", shape, sharding);
    if (is_turned) weight = Transpose(weight, {1, 0});
    return Op("MatMul", {x, weight});
  }
  ValueId Columns(ValueId x, const std::string& name, int64_t from, int64_t to,
                  int64_t blocks = 1) {
    return Op("Add", {Product(x, name, from, to, true, Layout::kFromTo, blocks),
                      Weight(name + ".bias", {to})});
  }
  ValueId Rows(ValueId x, const std::string& name, int64_t from, int64_t to) {
    return Op("Add", {Product(x, name, from, to, false), Weight(name + ".bias", {to})});
  }
  ValueId Normalize(ValueId x, const std::string& name) {
    return Op(
        "LayerNormalization",
        {x, Weight(name + ".scale", {kModelWidth}, 1), Weight(name + ".shift", {kModelWidth})},
        {{"axis", int64_t{-1}}});
  }
  // By parts, as both exporters write it.
  ValueId RmsNormalize(ValueId x, const std::string& name) {
    const ValueId squares = Op("Pow", {x, Number(2)});
    const ValueId mean = Op("ReduceMean", {squares, builder_.Ints({-1})});
    const ValueId root = Op("Sqrt", {Op("Add", {mean, Number(1e-6)})});
    return Op("Mul", {Weight(name + ".scale", {kModelWidth}, 1),
                      Op("Mul", {x, Op("Reciprocal", {root})})});
  }
  ValueId Gelu(ValueId x) {
    const ValueId erf = Op("Erf", {Op("Div", {x, Number(std::sqrt(2.0))})});
    return Op("Mul", {Op("Mul", {x, Op("Add", {erf, Number(1)})}), Number(0.5)});
  }
  ValueId TanhGelu(ValueId x) {
    const ValueId cube = Op("Mul", {Op("Pow", {x, Number(3)}), Number(0.044715)});
    const ValueId bent =
        Op("Tanh", {Op("Mul", {Op("Add", {x, cube}), Number(std::sqrt(2 / 3.14159265358979))})});
    return Op("Mul", {Op("Mul", {x, Number(0.5)}), Op("Add", {bent, Number(1)})});
  }
  ValueId FeedForward(ValueId x, const std::string& name) {
    return Rows(Gelu(Columns(x, name + ".up", kModelWidth, kInner)), name + ".down", kInner,
                kModelWidth);
  }

  // [N,T,width] -> [N,heads,T,width / heads], and back.
  ValueId HeadsApart(ValueId x, int64_t heads, int64_t size) {
    return Transpose(Reshape(x, {0, 0, heads, size}), {0, 2, 1, 3});
  }
  ValueId HeadsApart(ValueId x) { return HeadsApart(x, heads_, kModelWidth / heads_); }
  ValueId HeadsTogether(ValueId x) {
    return Reshape(Transpose(x, {0, 2, 1, 3}), {0, 0, kModelWidth});
  }
  // Of heads apart. `bias`: added to the scores; may be absent.
  ValueId Mixed(ValueId q, ValueId k, ValueId v, ValueId bias, double scale) {
    ValueId scores = Op("MatMul", {q, Transpose(k, {0, 1, 3, 2})});
    if (scale != 1) scores = Op("Mul", {scores, Number(scale)});
    if (bias.valid()) scores = Op("Add", {scores, bias});
    return Op("MatMul", {Op("Softmax", {scores}, {{"axis", int64_t{-1}}}), v});
  }
  double Scale() const { return 1 / std::sqrt(static_cast<double>(kModelWidth / heads_)); }
  // 0 where a token may look, -10000 where it may not.
  ValueId CausalBias() {
    std::vector<float> bias;
    for (int64_t row = 0; row < kLength; ++row) {
      for (int64_t column = 0; column < kLength; ++column) {
        bias.push_back(column > row ? -1e4f : 0);
      }
    }
    return builder_.Constant(Tensor::Of<float>(Shape{1, 1, kLength, kLength}, bias));
  }
  // Query, key and value by a product each, of `x` and what it looks at.
  ValueId Attention(ValueId x, ValueId seen, const std::string& name, ValueId bias) {
    const ValueId q = HeadsApart(Columns(x, name + ".q", kModelWidth, kModelWidth));
    const ValueId k = HeadsApart(Columns(seen, name + ".k", kModelWidth, kModelWidth));
    const ValueId v = HeadsApart(Columns(seen, name + ".v", kModelWidth, kModelWidth));
    return Rows(HeadsTogether(Mixed(q, k, v, bias, Scale())), name + ".out", kModelWidth,
                kModelWidth);
  }

  ValueId Embed(const std::string& name, const std::string& input) {
    const ValueId tokens = Input(input, DType::kInt64, {kLength});
    return Op("Gather", {Weight(name, {kWords, kModelWidth}), tokens});
  }
  void Head(ValueId x, int64_t classes) {
    Output(Op("Add", {Op("MatMul", {x, Weight("head.weight", {kModelWidth, classes})}),
                      Weight("head.bias", {classes})}));
  }
  ValueId Constant(const Shape& shape, uint64_t seed, double low, double high) {
    return builder_.Constant(RandomTensor(shape, seed, low, high));
  }

 private:
  TransformerModel& result_;
  Graph& graph_;
  GraphBuilder builder_;
  const int64_t heads_;
  uint64_t seed_ = 0;
};

void WriteBert(TransformerWriter& w) {
  ValueId x = w.Normalize(w.Embed("words", "tokens"), "embed.norm");
  for (const std::string name : {"block0", "block1"}) {
    x = w.Normalize(w.Op("Add", {w.Attention(x, x, name, kNoValue), x}), name + ".norm1");
    x = w.Normalize(w.Op("Add", {w.FeedForward(x, name), x}), name + ".norm2");
  }
  w.Head(x, kWords);
}

// rows W + b as a Gemm.
ValueId RowsGemm(TransformerWriter& w, ValueId rows, const std::string& name, int64_t from,
                 int64_t to, const AxisSharding& sharding) {
  return w.Op("Gemm", {rows, w.SplitWeight(name + ".weight", {from, to}, sharding),
                       w.Weight(name + ".bias", {to})});
}

void WriteGpt2(TransformerWriter& w) {
  ValueId x = w.Op("Add", {w.Embed("words", "tokens"), w.Weight("places", {kLength, kModelWidth})});
  const auto rows_of = [&](ValueId value, int64_t width) { return w.Reshape(value, {-1, width}); };
  const auto tokens_of = [&](ValueId rows, int64_t width) {
    return w.Reshape(rows, {-1, kLength, width});
  };
  for (const std::string name : {"block0", "block1"}) {
    const ValueId qkv =
        RowsGemm(w, rows_of(w.Normalize(x, name + ".norm1"), kModelWidth), name + ".qkv",
                 kModelWidth, 3 * kModelWidth, AxisSharding::Split(1, 3));
    const std::vector<ValueId> parts =
        w.builder().Ops("", "Split",
                        {tokens_of(qkv, 3 * kModelWidth),
                         w.builder().Ints({kModelWidth, kModelWidth, kModelWidth})},
                        {{"axis", int64_t{2}}}, {true, true, true});
    if (parts.size() != 3) return;
    const ValueId mixed = w.Mixed(w.HeadsApart(parts[0]), w.HeadsApart(parts[1]),
                                  w.HeadsApart(parts[2]), w.CausalBias(), w.Scale());
    const ValueId out = RowsGemm(w, rows_of(w.HeadsTogether(mixed), kModelWidth), name + ".out",
                                 kModelWidth, kModelWidth, AxisSharding::Split(0));
    x = w.Op("Add", {tokens_of(out, kModelWidth), x});
    const ValueId up = RowsGemm(w, rows_of(w.Normalize(x, name + ".norm2"), kModelWidth),
                                name + ".up", kModelWidth, kInner, AxisSharding::Split(1));
    const ValueId bent = w.TanhGelu(tokens_of(up, kInner));
    const ValueId down = RowsGemm(w, rows_of(bent, kInner), name + ".down", kInner, kModelWidth,
                                  AxisSharding::Split(0));
    x = w.Op("Add", {x, tokens_of(down, kModelWidth)});
  }
  w.Head(w.Normalize(x, "last"), kWords);
}

void WriteSlices(TransformerWriter& w) {
  ValueId x = w.Embed("words", "tokens");
  const ValueId qkv = w.Columns(w.Normalize(x, "norm1"), "qkv", kModelWidth, 3 * kModelWidth, 3);
  const auto part = [&](int64_t i) {
    const int64_t end = i == 2 ? INT64_MAX : (i + 1) * kModelWidth;
    GraphBuilder& b = w.builder();
    return w.HeadsApart(
        w.Op("Slice", {qkv, b.Ints({i * kModelWidth}), b.Ints({end}), b.Ints({2})}));
  };
  const ValueId mixed = w.Mixed(part(0), part(1), part(2), w.CausalBias(), w.Scale());
  x = w.Op("Add", {x, w.Rows(w.HeadsTogether(mixed), "out", kModelWidth, kModelWidth)});
  x = w.Op("Add", {x, w.FeedForward(w.Normalize(x, "norm2"), "block")});
  w.Head(x, kWords);
}

// x cos + rotated(x) sin, where the halves of a head change places.
ValueId Rotated(TransformerWriter& w, ValueId x) {
  GraphBuilder& b = w.builder();
  const int64_t half = kHeadSize / 2;
  const ValueId first = w.Op("Slice", {x, b.Ints({0}), b.Ints({half}), b.Ints({3}), b.Ints({1})});
  const ValueId second =
      w.Op("Slice", {x, b.Ints({half}), b.Ints({INT64_MAX}), b.Ints({3}), b.Ints({1})});
  const ValueId turned = w.Op("Concat", {w.Op("Neg", {second}), first}, {{"axis", int64_t{-1}}});
  const Shape angles{1, 1, kLength, kHeadSize};
  return w.Op("Add", {w.Op("Mul", {x, w.Constant(angles, 501, -1, 1)}),
                      w.Op("Mul", {turned, w.Constant(angles, 502, -1, 1)})});
}

// [N,kv,T,size] -> [N,heads,T,size]: each head of keys for the queries that share it.
ValueId Repeated(TransformerWriter& w, ValueId x) {
  const int64_t group = kQueryHeads / kKeyHeads;
  const ValueId apart = w.Op("Unsqueeze", {x, w.builder().Ints({2})});
  const ValueId more =
      w.Op("Expand", {apart, w.builder().Ints({1, kKeyHeads, group, kLength, kHeadSize})});
  return w.Reshape(more, {0, kQueryHeads, kLength, kHeadSize});
}

void WriteLlama(TransformerWriter& w) {
  ValueId x = w.Embed("words", "tokens");
  const auto columns = [&](ValueId value, const std::string& name, int64_t to) {
    return w.Product(value, name, kModelWidth, to, true, Layout::kToFrom);
  };
  const auto rows = [&](ValueId value, const std::string& name, int64_t from) {
    return w.Product(value, name, from, kModelWidth, false, Layout::kToFrom);
  };
  const int64_t key_width = kKeyHeads * kHeadSize;
  for (const std::string name : {"block0", "block1"}) {
    const ValueId normal = w.RmsNormalize(x, name + ".norm1");
    const ValueId q = w.HeadsApart(columns(normal, name + ".q", kModelWidth));
    const ValueId k = w.HeadsApart(columns(normal, name + ".k", key_width), kKeyHeads, kHeadSize);
    const ValueId v = w.HeadsApart(columns(normal, name + ".v", key_width), kKeyHeads, kHeadSize);
    const ValueId mixed = w.Mixed(Rotated(w, q), Repeated(w, Rotated(w, k)), Repeated(w, v),
                                  w.CausalBias(), w.Scale());
    x = w.Op("Add", {x, rows(w.HeadsTogether(mixed), name + ".out", kModelWidth)});
    const ValueId second = w.RmsNormalize(x, name + ".norm2");
    const ValueId gate = columns(second, name + ".gate", kInner);
    const ValueId open = w.Op("Mul", {gate, w.Op("Sigmoid", {gate})});
    const ValueId inner = w.Op("Mul", {open, columns(second, name + ".up", kInner)});
    x = w.Op("Add", {x, rows(inner, name + ".down", kInner)});
  }
  w.Head(w.RmsNormalize(x, "last"), kWords);
}

// [1,heads,T,T] from a table of distances.
ValueId RelativeBias(TransformerWriter& w, const std::string& name) {
  Ints buckets;
  for (int64_t row = 0; row < kLength; ++row) {
    for (int64_t column = 0; column < kLength; ++column) buckets.push_back((row - column + 8) % 8);
  }
  const ValueId places =
      w.builder().Constant(Tensor::Of<int64_t>(Shape{kLength, kLength}, buckets));
  const ValueId values = w.Op("Gather", {w.Weight(name, {8, kQueryHeads}), places});
  return w.Op("Unsqueeze", {w.Transpose(values, {2, 0, 1}), w.builder().Ints({0})});
}

ValueId T5Attention(TransformerWriter& w, ValueId x, ValueId seen, const std::string& name,
                    ValueId bias) {
  const auto columns = [&](ValueId value, const std::string& part) {
    return w.HeadsApart(w.Product(value, name + part, kModelWidth, kModelWidth, true));
  };
  const ValueId mixed =
      w.Mixed(columns(x, ".q"), columns(seen, ".k"), columns(seen, ".v"), bias, 1);
  return w.Product(w.HeadsTogether(mixed), name + ".out", kModelWidth, kModelWidth, false);
}

ValueId T5FeedForward(TransformerWriter& w, ValueId x, const std::string& name) {
  const ValueId inner = w.Op("Relu", {w.Product(x, name + ".up", kModelWidth, kInner, true)});
  return w.Product(inner, name + ".down", kInner, kModelWidth, false);
}

void WriteT5(TransformerWriter& w) {
  const ValueId words = w.Weight("words", {kWords, kModelWidth});
  const auto embed = [&](const std::string& input) {
    return w.Op("Gather", {words, w.Input(input, DType::kInt64, {kLength})});
  };
  ValueId x = embed("tokens");
  const ValueId encoder_bias = RelativeBias(w, "encoder.bias");
  for (const std::string name : {"encoder0", "encoder1"}) {
    const ValueId normal = w.RmsNormalize(x, name + ".norm1");
    x = w.Op("Add", {x, T5Attention(w, normal, normal, name, encoder_bias)});
    x = w.Op("Add", {x, T5FeedForward(w, w.RmsNormalize(x, name + ".norm2"), name)});
  }
  const ValueId seen = w.RmsNormalize(x, "encoder.last");
  ValueId y = embed("targets");
  const ValueId bias = w.Op("Add", {RelativeBias(w, "decoder.bias"), w.CausalBias()});
  const ValueId normal = w.RmsNormalize(y, "decoder0.norm1");
  y = w.Op("Add", {y, T5Attention(w, normal, normal, "decoder0.self", bias)});
  const ValueId asks = w.RmsNormalize(y, "decoder0.norm2");
  y = w.Op("Add", {y, T5Attention(w, asks, seen, "decoder0.cross", kNoValue)});
  y = w.Op("Add", {y, T5FeedForward(w, w.RmsNormalize(y, "decoder0.norm3"), "decoder0")});
  w.Head(w.RmsNormalize(y, "last"), kWords);
}

constexpr int64_t kPatches = 4;
constexpr int64_t kSeen = kPatches + 1;  // with the class token

// Patches of 4 x 4 pixels behind a class token.
ValueId ImageTokens(TransformerWriter& w) {
  GraphBuilder& b = w.builder();
  const ValueId image = w.Input("x", DType::kFloat32, {3, 8, 8});
  const ValueId patches = w.Op("Conv",
                               {image, w.Weight("patch.weight", {kModelWidth, 3, 4, 4}),
                                w.Weight("patch.bias", {kModelWidth})},
                               {{"kernel_shape", Ints{4, 4}}, {"strides", Ints{4, 4}}});
  const ValueId rows = w.Transpose(w.Reshape(patches, {0, kModelWidth, kPatches}), {0, 2, 1});
  const ValueId samples = w.Op("Shape", {image}, {{"start", int64_t{0}}, {"end", int64_t{1}}});
  const ValueId shape = w.Op("Concat", {samples, b.Ints({1, kModelWidth})}, {{"axis", int64_t{0}}});
  const ValueId token = w.Op("Expand", {w.Weight("class_token", {1, 1, kModelWidth}), shape});
  const ValueId all = w.Op("Concat", {token, rows}, {{"axis", int64_t{1}}});
  return w.Op("Add", {all, w.Weight("places", {1, kSeen, kModelWidth})});
}

// torch's MultiheadAttention: [T,N,D], one weight [3 D, D], heads and batch in one axis.
ValueId TorchAttention(TransformerWriter& w, ValueId x, const std::string& name) {
  GraphBuilder& b = w.builder();
  const ValueId in = w.Transpose(
      w.SplitWeight(name + ".in.weight", {3 * kModelWidth, kModelWidth}, AxisSharding::Split(0, 3)),
      {1, 0});
  const ValueId product = w.Op("Add", {w.Op("MatMul", {w.Transpose(x, {1, 0, 2}), in}),
                                       w.Weight(name + ".in.bias", {3 * kModelWidth})});
  const ValueId apart =
      w.Op("Unsqueeze", {w.Reshape(product, {kSeen, -1, 3, kModelWidth}), b.Ints({0})});
  const ValueId three = w.Op("Squeeze", {w.Transpose(apart, {3, 1, 2, 0, 4}), b.Ints({3})});
  const auto part = [&](int64_t i) {
    const ValueId index = b.Constant(Tensor::Scalar<int64_t>(i));
    const ValueId one = w.Op("Gather", {three, index}, {{"axis", int64_t{0}}});
    return w.Transpose(w.Reshape(one, {kSeen, -1, kHeadSize}), {1, 0, 2});
  };
  const ValueId q = w.Op("Mul", {part(0), w.Number(w.Scale())});
  const ValueId scores = w.Op("MatMul", {q, w.Transpose(part(1), {0, 2, 1})});
  const ValueId mixed =
      w.Op("MatMul", {w.Op("Softmax", {scores}, {{"axis", int64_t{-1}}}), part(2)});
  const ValueId rows = w.Reshape(w.Transpose(mixed, {1, 0, 2}), {-1, kModelWidth});
  const ValueId out =
      w.Op("Gemm",
           {rows,
            w.SplitWeight(name + ".out.weight", {kModelWidth, kModelWidth}, AxisSharding::Split(1)),
            w.Weight(name + ".out.bias", {kModelWidth})},
           {{"transB", int64_t{1}}});
  return w.Transpose(w.Reshape(out, {kSeen, -1, kModelWidth}), {1, 0, 2});
}

void WriteVit(TransformerWriter& w) {
  ValueId x = ImageTokens(w);
  for (const std::string name : {"block0", "block1"}) {
    x = w.Op("Add", {x, TorchAttention(w, w.Normalize(x, name + ".norm1"), name)});
    x = w.Op("Add", {x, w.FeedForward(w.Normalize(x, name + ".norm2"), name)});
  }
  const ValueId first = w.builder().Constant(Tensor::Scalar<int64_t>(0));
  w.Head(w.Op("Gather", {w.Normalize(x, "last"), first}, {{"axis", int64_t{1}}}), kWords);
}

void WriteWhisper(TransformerWriter& w) {
  ValueId x = w.Input("x", DType::kFloat32, {5, 2 * kLength});
  const auto conv = [&](const std::string& name, int64_t from, int64_t stride) {
    return w.Gelu(
        w.Op("Conv",
             {x, w.Weight(name + ".weight", {kModelWidth, from, 3}),
              w.Weight(name + ".bias", {kModelWidth})},
             {{"kernel_shape", Ints{3}}, {"strides", Ints{stride}}, {"pads", Ints{1, 1}}}));
  };
  x = conv("conv1", 5, 1);
  x = conv("conv2", kModelWidth, 2);
  x = w.Op("Add", {w.Transpose(x, {0, 2, 1}), w.Constant(Shape{kLength, kModelWidth}, 503, -1, 1)});
  for (const std::string name : {"encoder0", "encoder1"}) {
    const ValueId normal = w.Normalize(x, name + ".norm1");
    x = w.Op("Add", {x, w.Attention(normal, normal, name, kNoValue)});
    x = w.Op("Add", {x, w.FeedForward(w.Normalize(x, name + ".norm2"), name)});
  }
  const ValueId seen = w.Normalize(x, "encoder.last");
  ValueId y =
      w.Op("Add", {w.Embed("words", "targets"), w.Weight("places", {kLength, kModelWidth})});
  const ValueId normal = w.Normalize(y, "decoder0.norm1");
  y = w.Op("Add", {y, w.Attention(normal, normal, "decoder0.self", w.CausalBias())});
  y = w.Op("Add",
           {y, w.Attention(w.Normalize(y, "decoder0.norm2"), seen, "decoder0.cross", kNoValue)});
  y = w.Op("Add", {y, w.FeedForward(w.Normalize(y, "decoder0.norm3"), "decoder0")});
  w.Head(w.Normalize(y, "last"), kWords);
}

void WriteFused(TransformerWriter& w) {
  GraphBuilder& b = w.builder();
  ValueId x = w.Embed("words", "tokens");
  const ValueId samples = w.Op("Shape", {x}, {{"start", int64_t{0}}, {"end", int64_t{1}}});
  const ValueId shape = w.Op("Concat", {samples, b.Ints({kLength})}, {{"axis", int64_t{0}}});
  const ValueId places =
      w.Op("Expand",
           {b.Constant(Tensor::Of<int64_t>(Shape{1, kLength}, Ints{0, 1, 2, 3, 4, 5})), shape});
  const Shape table{kLength, kHeadSize / 2};
  const auto turned = [&](ValueId value, int64_t heads) {
    return w.Op("RotaryEmbedding",
                {value, w.Constant(table, 504, -1, 1), w.Constant(table, 505, -1, 1), places},
                {{"num_heads", heads}});
  };
  const int64_t key_width = kKeyHeads * kHeadSize;
  for (const std::string name : {"block0", "block1"}) {
    const ValueId normal = w.Normalize(x, name + ".norm1");
    const ValueId q = turned(w.Columns(normal, name + ".q", kModelWidth, kModelWidth), kQueryHeads);
    const ValueId k = turned(w.Columns(normal, name + ".k", kModelWidth, key_width), kKeyHeads);
    const ValueId v = w.Columns(normal, name + ".v", kModelWidth, key_width);
    const ValueId mixed = w.Op(
        "Attention", {q, k, v},
        {{"q_num_heads", kQueryHeads}, {"kv_num_heads", kKeyHeads}, {"is_causal", int64_t{1}}});
    x = w.Op("Add", {x, w.Rows(mixed, name + ".out", kModelWidth, kModelWidth)});
    x = w.Op("Add", {x, w.FeedForward(w.Normalize(x, name + ".norm2"), name)});
  }
  w.Head(w.Normalize(x, "last"), kWords);
}

using Writer = void (*)(TransformerWriter&);
const std::map<std::string, Writer>& Writers() {
  static const auto* const writers = new std::map<std::string, Writer>{
      {"bert", WriteBert}, {"gpt2", WriteGpt2}, {"slices", WriteSlices},   {"llama", WriteLlama},
      {"t5", WriteT5},     {"vit", WriteVit},   {"whisper", WriteWhisper}, {"fused", WriteFused}};
  return *writers;
}

// For the graph's inputs, and labels.
void FillData(const std::string& name, int64_t samples, EquivalenceModel& model) {
  const auto words = [&](Shape shape, uint64_t seed) {
    return RandomTensor(std::move(shape), seed, 0, kWords, DType::kInt64);
  };
  const bool is_vit = name == "vit";
  model.data["labels"] = is_vit ? words({samples}, 1001) : words({samples, kLength}, 1001);
  for (const ValueId input : model.graph.inputs()) {
    const ValueDef& value = model.graph.value(input);
    Shape shape{samples};
    for (int axis = 1; axis < value.type.shape.rank(); ++axis) {
      shape.AddDim(value.type.shape.dim(axis).size());
    }
    const bool is_words = value.type.dtype == DType::kInt64;
    const uint64_t seed = 1002 + model.data.size();
    model.data[value.name] = is_words ? words(shape, seed) : RandomTensor(shape, seed);
  }
}

}  // namespace

std::vector<std::string> TransformerNames() {
  std::vector<std::string> names;
  for (const auto& [name, writer] : Writers()) names.push_back(name);
  return names;
}

absl::StatusOr<TransformerModel> BuildTransformer(const std::string& name, int64_t samples,
                                                  int64_t heads) {
  const auto writer = Writers().find(name);
  if (writer == Writers().end()) {
    return absl::InvalidArgumentError(absl::StrCat("no transformer is called '", name, "'"));
  }
  TransformerModel result;
  result.model.name = name;
  result.model.graph.name = name;
  result.model.graph.opsets[""] = 23;
  TransformerWriter w(result, heads);
  writer->second(w);
  WEFT_RETURN_IF_ERROR(w.builder().status());
  FillData(name, samples, result.model);
  return result;
}

}  // namespace weft::testing
