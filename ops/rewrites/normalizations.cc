// Normalizations that exporters write as several operators.
//   LayerNormalization   (x - mean(x)) / sqrt(mean((x - mean(x))^2) + e) * scale + bias
//   RMSNormalization     x / sqrt(mean(x^2) + e) * scale
//   GroupNormalization   of the groups' elements as rows of an InstanceNormalization, then a scale
//                        and a bias for each channel
#include <cstdint>
#include <optional>
#include <utility>

#include "ops/rewrites/rewriter.h"

namespace weft {
namespace {

// Ones and zeros that a rewrite makes: an axis of a file may be declared to have 2^40 elements.
constexpr int64_t kMaxMadeElements = int64_t{1} << 22;

bool KeepsReducedAxes(const Graph&, const Node& node) {
  return node.attributes.Int("keepdims", 1) != 0;
}

Pattern MeanOf(const Pattern& value, const char* axes) {
  return Pattern::Op("ReduceMean", {value, Pattern::Value(axes)}, KeepsReducedAxes);
}

Pattern SquareOf(const Pattern& value) {
  return Pattern::OneOf(
      {Pattern::Op("Pow", {value, Pattern::Number(2)}), Pattern::Op("Mul", {value, value})});
}

// value / sqrt(variance)
Pattern OverRootOf(const Pattern& value, const Pattern& variance) {
  const Pattern root = Pattern::OneOf(
      {Pattern::Op("Sqrt", {variance}), Pattern::Op("Pow", {variance, Pattern::Number(0.5)})});
  const Pattern inverse = Pattern::OneOf({Pattern::Op("Reciprocal", {root}),
                                          Pattern::Op("Div", {Pattern::Number(1), root}),
                                          Pattern::Op("Pow", {variance, Pattern::Number(-0.5)})});
  return Pattern::OneOf({Pattern::Op("Div", {value, root}), Pattern::Op("Mul", {value, inverse})});
}

Pattern LayerPattern() {
  const Pattern x = Pattern::Value("x");
  const Pattern centred = Pattern::Op("Sub", {x, MeanOf(x, "axes of mean")});
  const Pattern variance = MeanOf(SquareOf(centred), "axes of variance");
  return OverRootOf(centred, Pattern::Op("Add", {variance, Pattern::Scalar("epsilon")}));
}

Pattern RmsPattern() {
  const Pattern x = Pattern::Value("x");
  const Pattern mean = MeanOf(SquareOf(x), "axes of mean");
  return OverRootOf(x, Pattern::Op("Add", {mean, Pattern::Scalar("epsilon")}));
}

Pattern Scaled(const Pattern& pattern) {
  return Pattern::Op("Mul", {pattern, Pattern::Value("scale")});
}
Pattern Biased(const Pattern& pattern) {
  return Pattern::Op("Add", {pattern, Pattern::Value("bias")});
}

// The first of the reduced axes, if these are the last ones of x.
std::optional<int> FirstOfLastAxes(const Rewriter& rewriter, const Match& match, const char* name) {
  const int rank = rewriter.rank(match.value("x"));
  const auto axes = KnownInts(rewriter.graph(), match.value(name));
  if (rank < 1 || !axes.has_value() || axes->empty()) return std::nullopt;
  std::vector<bool> reduced(rank, false);
  for (int64_t axis : *axes) {
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) return std::nullopt;
    reduced[static_cast<size_t>(axis)] = true;
  }
  int first = rank;
  while (first > 0 && reduced[static_cast<size_t>(first - 1)]) --first;
  for (int i = 0; i < first; ++i) {
    if (reduced[static_cast<size_t>(i)]) return std::nullopt;
  }
  return first < rank ? std::optional<int>(first) : std::nullopt;
}

// The scale of the match; ones of the shape of the normalized axes where it has none.
ValueId ScaleOf(Rewriter& rewriter, const Match& match, int axis) {
  const auto scale = match.values.find("scale");
  if (scale != match.values.end()) return scale->second;
  const SymbolicShape& x = rewriter.type(match.value("x")).shape;
  Shape shape;
  for (int i = axis; i < x.rank(); ++i) {
    if (!x.dim(i).is_known()) return kNoValue;
    shape.AddDim(x.dim(i).size());
  }
  if (shape.num_elements() > kMaxMadeElements) return kNoValue;
  const std::vector<float> ones(static_cast<size_t>(shape.num_elements()), 1.0f);
  auto tensor =
      CastTensor(Tensor::Of<float>(std::move(shape), ones), rewriter.type(match.value("x")).dtype);
  if (!tensor.ok()) return kNoValue;
  return rewriter.BuilderFor(match).Constant(*std::move(tensor));
}

// A scale or a bias has the normalized axes whole: the operators would broadcast others, too.
bool HasNormalizedAxes(const Rewriter& rewriter, const Match& match, const char* name, int axis) {
  const auto found = match.values.find(name);
  if (found == match.values.end()) return true;
  const int64_t elements = ElementsFrom(rewriter.type(found->second).shape, 0);
  const int64_t normalized = ElementsFrom(rewriter.type(match.value("x")).shape, axis);
  return elements > 0 && elements == normalized;
}

bool ToLayerNormalization(Rewriter& rewriter, const Match& match) {
  const auto axis = FirstOfLastAxes(rewriter, match, "axes of mean");
  if (!axis.has_value() || axis != FirstOfLastAxes(rewriter, match, "axes of variance")) {
    return false;
  }
  const bool fits = HasNormalizedAxes(rewriter, match, "scale", *axis) &&
                    HasNormalizedAxes(rewriter, match, "bias", *axis);
  const ValueId scale = fits ? ScaleOf(rewriter, match, *axis) : kNoValue;
  if (!scale.valid()) return false;
  std::vector<ValueId> inputs = {match.value("x"), scale};
  if (match.values.contains("bias")) inputs.push_back(match.value("bias"));
  return rewriter.Replace(match, {"LayerNormalization",
                                  std::move(inputs),
                                  {{"axis", int64_t{*axis}},
                                   {"epsilon", static_cast<float>(match.numbers.at("epsilon"))}}});
}

bool ToRmsNormalization(Rewriter& rewriter, const Match& match) {
  const auto axis = FirstOfLastAxes(rewriter, match, "axes of mean");
  const bool fits = axis.has_value() && HasNormalizedAxes(rewriter, match, "scale", *axis);
  const ValueId scale = fits ? ScaleOf(rewriter, match, *axis) : kNoValue;
  if (!scale.valid()) return false;
  return rewriter.Replace(match, {"RMSNormalization",
                                  {match.value("x"), scale},
                                  {{"axis", int64_t{*axis}},
                                   {"epsilon", static_cast<float>(match.numbers.at("epsilon"))}}});
}

// ---- Groups.

// The groups of [batch, groups, the rest], which nothing scales or shifts.
Pattern GroupPattern() {
  const Pattern rows =
      Pattern::Op("Reshape", {Pattern::Value("x"), Pattern::Value("shape of rows")}).As("rows");
  const Pattern normal =
      Pattern::Op("InstanceNormalization", {rows, Pattern::Number(1), Pattern::Number(0)})
          .As("normal");
  return Pattern::Op("Reshape", {normal, Pattern::Value("shape")}).As("groups");
}

// A scale or bias, as it is or cast to the type of what it is applied to.
Pattern AsTypeOf(const char* parameter, const char* like) {
  const Pattern value = Pattern::Value(parameter);
  return Pattern::OneOf({Pattern::Op("CastLike", {value, Pattern::Value(like)}), value});
}

Pattern AffineGroupPattern() {
  const Pattern scaled =
      Pattern::Op("Mul", {GroupPattern(), AsTypeOf("scale", "groups")}).As("scaled");
  return Pattern::Op("Add", {scaled, AsTypeOf("bias", "scaled")});
}

// How many groups there are, if the match is a normalization of groups of channels; else 0.
int64_t GroupsOf(const Rewriter& rewriter, const Match& match) {
  const SymbolicShape& x = rewriter.type(match.value("x")).shape;
  const SymbolicShape& rows = rewriter.type(match.value("rows")).shape;
  const SymbolicShape& groups = rewriter.type(match.value("groups")).shape;
  if (!x.has_rank() || !rows.has_rank() || !groups.has_rank()) return 0;
  if (x.rank() < 2 || rows.rank() != 3 || groups.rank() != x.rank()) return 0;
  for (int i = 0; i < x.rank(); ++i) {
    if (!(x.dim(i) == groups.dim(i))) return 0;
  }
  const Dim& channels = x.dim(1);
  const bool fits = rows.dim(0) == x.dim(0) && rows.dim(1).is_known() && channels.is_known() &&
                    rows.dim(1).size() > 0 && channels.size() % rows.dim(1).size() == 0;
  return fits ? rows.dim(1).size() : 0;
}

// Whether a value broadcasts along the channels of x alone, one element for each.
bool IsPerChannel(const Rewriter& rewriter, ValueId value, const SymbolicShape& x) {
  const SymbolicShape& shape = rewriter.type(value).shape;
  if (!shape.has_rank() || shape.rank() > x.rank()) return false;
  const int channels = shape.rank() - x.rank() + 1;
  if (channels < 0) return false;
  for (int i = 0; i < shape.rank(); ++i) {
    const int64_t expected = i == channels ? x.dim(1).size() : 1;
    if (!shape.dim(i).is_known() || shape.dim(i).size() != expected) return false;
  }
  return true;
}

// [channels] of a value that broadcasts along the channels: what it was made of, or a Reshape.
ValueId ChannelVector(Rewriter& rewriter, const Match& match, ValueId value, int64_t channels) {
  const ValueDef& def = rewriter.graph().value(value);
  if (def.source == ValueSource::kNode) {
    const Node& node = rewriter.graph().node(def.producer);
    const bool is_view = node.domain.empty() && (node.op == "Unsqueeze" || node.op == "Reshape");
    if (is_view && rewriter.type(node.inputs[0]).shape == SymbolicShape(Shape{channels})) {
      return node.inputs[0];
    }
  }
  if (rewriter.type(value).shape == SymbolicShape(Shape{channels})) return value;
  GraphBuilder builder = rewriter.BuilderFor(match);
  return builder.Op("Reshape", {value, builder.Ints({channels})});
}

bool ToGroupNormalization(Rewriter& rewriter, const Match& match) {
  const int64_t groups = GroupsOf(rewriter, match);
  if (groups == 0) return false;
  const SymbolicShape x = rewriter.type(match.value("x")).shape;
  const DType dtype = rewriter.type(match.value("x")).dtype;
  const int64_t channels = x.dim(1).size();
  if (channels > kMaxMadeElements) return false;
  std::vector<ValueId> inputs = {match.value("x")};
  for (const char* const name : {"scale", "bias"}) {
    const auto found = match.values.find(name);
    if (found == match.values.end()) continue;
    if (!IsPerChannel(rewriter, found->second, x)) return false;
  }
  for (const char* const name : {"scale", "bias"}) {
    const auto found = match.values.find(name);
    if (found != match.values.end()) {
      inputs.push_back(ChannelVector(rewriter, match, found->second, channels));
      continue;
    }
    const std::vector<float> same(static_cast<size_t>(channels), *name == 's' ? 1.0f : 0.0f);
    auto tensor = CastTensor(Tensor::Of<float>(Shape{channels}, same), dtype);
    if (!tensor.ok()) return false;
    inputs.push_back(rewriter.BuilderFor(match).Constant(*std::move(tensor)));
  }
  const Graph& graph = rewriter.graph();
  const Node& normal = graph.node(graph.value(match.value("normal")).producer);
  return rewriter.Replace(
      match, {"GroupNormalization",
              std::move(inputs),
              {{"num_groups", groups}, {"epsilon", normal.attributes.Float("epsilon", 1e-5f)}}});
}

}  // namespace

std::vector<Rewrite> NormalizationRewrites() {
  return {{"layer_normalization", Biased(Scaled(LayerPattern())), ToLayerNormalization},
          {"layer_normalization", Scaled(LayerPattern()), ToLayerNormalization},
          {"layer_normalization", LayerPattern(), ToLayerNormalization},
          {"rms_normalization", Scaled(RmsPattern()), ToRmsNormalization},
          {"rms_normalization", RmsPattern(), ToRmsNormalization},
          {"group_normalization", AffineGroupPattern(), ToGroupNormalization},
          {"group_normalization", GroupPattern(), ToGroupNormalization}};
}

}  // namespace weft
