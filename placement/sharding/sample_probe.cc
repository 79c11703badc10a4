#include "placement/sharding/sample_probe.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <variant>

#include "graph/op_schema.h"
#include "placement/graph_views/graph_node_view.h"
#include "tensor/tensor.h"

namespace weft {
namespace {

// Of all operands together, and of the work, at most: a node is run three times, in milliseconds.
constexpr int64_t kMaxElements = int64_t{1} << 23;
constexpr double kMaxFlops = 5e7;

// A shape seen as outer x samples x inner.
struct Slabs {
  int64_t inner = 1;
  int64_t samples = 1;
  int64_t SampleOf(int64_t element) const { return element / inner % samples; }
};

Slabs SlabsOf(const Shape& shape, const BatchPlace& place, int64_t samples) {
  const int64_t rest = std::max<int64_t>(1, shape.dim(place.axis) / (place.blocks * samples));
  return {rest * shape.ProductOf(place.axis + 1, shape.rank()), samples};
}

class SampleProber {
 public:
  SampleProber(const Graph& graph, const Node& node, const std::vector<BatchPlace>& inputs,
               const std::vector<BatchPlace>& grown, int64_t samples, NodeEvaluator& evaluator)
      : graph_(graph),
        node_(node),
        inputs_(inputs),
        grown_(grown),
        samples_(samples),
        evaluator_(evaluator) {}

  std::optional<std::vector<BatchPlace>> Run() {
    if (!IsSmallAndPlain()) return std::nullopt;
    const auto before = Evaluate(kNobody, /*with_integers=*/true);
    if (!before.has_value()) return std::nullopt;
    std::vector<Changes> changes(node_.outputs.size());
    for (const int64_t sample : {int64_t{0}, samples_ - 1}) {
      auto after = Evaluate(sample, /*with_integers=*/true);
      if (!after.has_value()) after = Evaluate(sample, /*with_integers=*/false);
      if (!after.has_value()) return std::nullopt;
      for (size_t i = 0; i < node_.outputs.size(); ++i) {
        if (!node_.outputs[i].valid()) continue;
        if ((*before)[i].shape() != (*after)[i].shape()) return std::nullopt;
        changes[i].push_back({sample, ChangedElements((*before)[i], (*after)[i])});
      }
    }
    std::vector<BatchPlace> places(node_.outputs.size());
    for (size_t i = 0; i < node_.outputs.size(); ++i) {
      if (node_.outputs[i].valid())
        places[i] = PlaceOf((*before)[i].shape(), grown_[i], changes[i]);
    }
    return places;
  }

 private:
  static constexpr int64_t kNobody = -1;
  // The sample that was changed, and which elements of an output that changed.
  using Changes = std::vector<std::pair<int64_t, std::vector<int64_t>>>;

  bool IsSmallAndPlain() const;
  Tensor ValueOf(size_t input, int64_t changed, bool with_integers) const;
  std::vector<double> MadeUpValues(size_t input, int64_t changed, bool with_integers) const;
  std::optional<std::vector<Tensor>> Evaluate(int64_t changed, bool with_integers) const;
  static std::vector<int64_t> ChangedElements(const Tensor& a, const Tensor& b);
  std::vector<BatchPlace> Candidates(const Shape& shape, const BatchPlace& grown) const;
  BatchPlace PlaceOf(const Shape& shape, const BatchPlace& grown, const Changes& changes) const;
  bool Explains(const Shape& shape, const BatchPlace& place, const Changes& changes) const;

  const Graph& graph_;
  const Node& node_;
  const std::vector<BatchPlace>& inputs_;
  const std::vector<BatchPlace>& grown_;
  const int64_t samples_;
  NodeEvaluator& evaluator_;
};

bool SampleProber::IsSmallAndPlain() const {
  if (node_.schema == nullptr || node_.schema->stateful()) return false;
  for (const auto& [name, attribute] : node_.attributes.items()) {
    if (std::holds_alternative<std::shared_ptr<Graph>>(attribute)) return false;
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const BatchPlace& place = inputs_[i];
    if (!place.is(BatchPlace::Kind::kSplit)) continue;
    const std::optional<Shape> shape = graph_.value(node_.inputs[i]).type.shape.ToConcrete();
    const bool fits = shape.has_value() && place.axis < shape->rank() &&
                      shape->dim(place.axis) % (place.blocks * samples_) == 0;
    if (!fits) return false;
  }
  int64_t elements = 0;
  for (const std::vector<ValueId>* values : {&node_.inputs, &node_.outputs}) {
    for (const ValueId id : *values) {
      if (!id.valid()) continue;
      const ValueType& type = graph_.value(id).type;
      const std::optional<Shape> shape = type.shape.ToConcrete();
      const bool is_number =
          IsFloatingPoint(type.dtype) || IsInteger(type.dtype) || type.dtype == DType::kBool;
      if (type.kind != ValueKind::kTensor || !shape.has_value() || !is_number) return false;
      elements += shape->num_elements();
    }
  }
  if (elements > kMaxElements) return false;
  const absl::StatusOr<GraphNodeView> view = GraphNodeView::Create(graph_, node_);
  return view.ok() && (!node_.schema->cost() || node_.schema->cost()(*view).flops <= kMaxFlops);
}

// Distinct numbers in [0.25, 1), the same ones each time.
double MadeUp(size_t input, int64_t element) {
  uint64_t bits = (static_cast<uint64_t>(element) + 1) * 0x9E3779B97F4A7C15u + input * 0x632BE59Bu;
  bits ^= bits >> 29;
  bits *= 0xBF58476D1CE4E5B9u;
  return 0.25 + 0.75 * static_cast<double>(bits >> 12) / static_cast<double>(uint64_t{1} << 52);
}

// Floating numbers of the changed sample become larger than all others. Integers may be positions,
// so they are zeros, and ones for the changed sample if `with_integers`.
std::vector<double> SampleProber::MadeUpValues(size_t input, int64_t changed,
                                               bool with_integers) const {
  const ValueType& type = graph_.value(node_.inputs[input]).type;
  const Shape shape = *type.shape.ToConcrete();
  const BatchPlace& place = inputs_[input];
  const bool is_split = place.is(BatchPlace::Kind::kSplit) && shape.num_elements() > 0;
  const Slabs slabs = is_split ? SlabsOf(shape, place, samples_) : Slabs{};
  const int64_t last = shape.rank() == 0 ? 1 : std::max<int64_t>(1, shape.dim(shape.rank() - 1));
  std::vector<double> values(static_cast<size_t>(shape.num_elements()));
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    const bool is_changed = is_split && changed >= 0 && slabs.SampleOf(i) == changed;
    double& value = values[static_cast<size_t>(i)];
    if (IsFloatingPoint(type.dtype)) {
      value = MadeUp(input, i) + (is_changed ? 5 : 0);
    } else if (place.stride > 0 && (!place.only_first || i % last == 0)) {
      value = static_cast<double>(slabs.SampleOf(i) * place.stride);
    } else if (is_changed && with_integers) {
      value = 1;
    }
  }
  return values;
}

Tensor SampleProber::ValueOf(size_t input, int64_t changed, bool with_integers) const {
  const ValueDef& def = graph_.value(node_.inputs[input]);
  if (def.source == ValueSource::kConstant) return def.constant;
  const Tensor made =
      Tensor::Of<double>(*def.type.shape.ToConcrete(), MadeUpValues(input, changed, with_integers));
  const absl::StatusOr<Tensor> cast = CastTensor(made, def.type.dtype);
  return cast.ok() ? *cast : Tensor();
}

std::optional<std::vector<Tensor>> SampleProber::Evaluate(int64_t changed,
                                                          bool with_integers) const {
  std::vector<Tensor> values(node_.inputs.size());
  for (size_t i = 0; i < node_.inputs.size(); ++i) {
    if (!node_.inputs[i].valid()) continue;
    values[i] = ValueOf(i, changed, with_integers);
    if (!values[i].valid()) return std::nullopt;
  }
  absl::StatusOr<std::vector<Tensor>> results = evaluator_.Evaluate(graph_, node_, values);
  if (!results.ok() || results->size() < node_.outputs.size()) return std::nullopt;
  for (size_t i = 0; i < node_.outputs.size(); ++i) {
    if (node_.outputs[i].valid() && !(*results)[i].valid()) return std::nullopt;
  }
  return *std::move(results);
}

std::vector<int64_t> SampleProber::ChangedElements(const Tensor& a, const Tensor& b) {
  std::vector<int64_t> changed;
  const int64_t bytes = DTypeBytes(a.dtype(), 1);
  const auto* const of_a = static_cast<const std::byte*>(a.raw_data());
  const auto* const of_b = static_cast<const std::byte*>(b.raw_data());
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    const int64_t at = i * bytes;
    if (std::memcmp(of_a + at, of_b + at, static_cast<size_t>(bytes)) != 0) changed.push_back(i);
  }
  return changed;
}

bool SampleProber::Explains(const Shape& shape, const BatchPlace& place,
                            const Changes& changes) const {
  const Slabs slabs = SlabsOf(shape, place, samples_);
  return std::all_of(changes.begin(), changes.end(), [&](const auto& change) {
    return std::all_of(change.second.begin(), change.second.end(),
                       [&](int64_t i) { return slabs.SampleOf(i) == change.first; });
  });
}

// Where the samples may be in an output: the place that they have in an input comes first.
std::vector<BatchPlace> SampleProber::Candidates(const Shape& shape,
                                                 const BatchPlace& grown) const {
  std::vector<BatchPlace> candidates;
  const auto add = [&](int axis, int64_t blocks) {
    const bool fits = axis < shape.rank() && shape.dim(axis) % (blocks * samples_) == 0;
    const bool is_other = grown.is(BatchPlace::Kind::kSplit) && grown.axis != axis;
    if (fits && !is_other) candidates.push_back(BatchPlace::Split(axis, blocks));
  };
  for (const BatchPlace& input : inputs_) {
    if (input.is(BatchPlace::Kind::kSplit)) add(input.axis, input.blocks);
  }
  for (int axis = 0; axis < shape.rank(); ++axis) {
    for (int64_t blocks = 1; blocks * samples_ <= shape.dim(axis); ++blocks) add(axis, blocks);
  }
  return candidates;
}

// What changes a few elements only, as a choice does, may be explained by a wrong axis of the same
// size: so sizes are asked first.
BatchPlace SampleProber::PlaceOf(const Shape& shape, const BatchPlace& grown,
                                 const Changes& changes) const {
  const bool any = std::any_of(changes.begin(), changes.end(),
                               [](const auto& change) { return !change.second.empty(); });
  if (!any) return {};
  if (grown.is(BatchPlace::Kind::kNone)) return BatchPlace::Of(BatchPlace::Kind::kLost);
  for (const BatchPlace& place : Candidates(shape, grown)) {
    if (Explains(shape, place, changes)) return place;
  }
  return BatchPlace::Of(BatchPlace::Kind::kLost);
}

}  // namespace

std::optional<std::vector<BatchPlace>> ProbeSamples(const Graph& graph, const Node& node,
                                                    const std::vector<BatchPlace>& inputs,
                                                    const std::vector<BatchPlace>& grown,
                                                    int64_t samples, NodeEvaluator& evaluator) {
  return SampleProber(graph, node, inputs, grown, samples, evaluator).Run();
}

}  // namespace weft
