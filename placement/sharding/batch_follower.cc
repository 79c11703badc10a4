#include "placement/sharding/batch_follower.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/node_class.h"
#include "graph/node_description.h"
#include "graph/op_schema.h"
#include "placement/graph_views/control_flow_bodies.h"
#include "placement/sharding/sample_probe.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

bool IsAliasOfInput(const Node& node) {
  return node.schema != nullptr && !node.schema->aliases().empty() &&
         node.schema->aliases().front() == std::pair<int, int>(0, 0);
}

// A number becomes another type's that holds sums: but for rounding, a sum stays one. (No
// conversion of the tensor axis is put behind it, so that its rule does not say so.)
bool KeepsSums(const Graph& graph, const Node& node) {
  if (IsAliasOfInput(node)) return true;
  const bool is_cast = node.domain.empty() && node.op == "Cast" && node.outputs[0].valid();
  if (!is_cast) return false;
  const DType from = graph.value(node.inputs[0]).type.dtype;
  const DType to = graph.value(node.outputs[0]).type.dtype;
  return IsFloatingPoint(to) || (IsInteger(from) && IsInteger(to));
}

// The node divides a sum over all elements that it reduces by their number.
bool IsMean(const Node& node) {
  return node.schema->mean_loss() && node.attributes.String("reduction", "mean") == "mean";
}

// Its mean counts each sample alike: it has no weights, and ignores no label.
bool IsPlainMean(const Node& node) {
  const bool has_weights = node.inputs.size() > 2 && node.inputs[2].valid();
  return IsMean(node) && !has_weights && !node.attributes.Has("ignore_index");
}

// Each micro-batch has its samples at their places in the batch and zeros elsewhere, so that sums
// over micro-batches are those of one.
bool PlacesSamples(const Node& node) {
  return node.domain == kWeftDomain && node.op == "PlaceSamples";
}

// Each micro-batch has what it observes in a row of its own. It reaches no loss.
bool Observes(const Node& node) { return node.domain == kWeftDomain && node.op == "RangeOfBatch"; }

bool HoldsSet(const FactorRule& rule, const std::vector<int>& set) {
  return std::find(rule.linear.begin(), rule.linear.end(), set) != rule.linear.end();
}

bool Holds(const std::vector<int>& set, size_t i) {
  return std::find(set.begin(), set.end(), static_cast<int>(i)) != set.end();
}

bool IsTensorNode(const Graph& graph, const Node& node) {
  const auto is_tensor = [&graph](ValueId id) {
    return !id.valid() || graph.value(id).type.kind == ValueKind::kTensor;
  };
  return std::all_of(node.inputs.begin(), node.inputs.end(), is_tensor) &&
         std::all_of(node.outputs.begin(), node.outputs.end(), is_tensor);
}

// The one element of a constant that is a whole number above 0; else 0.
int64_t PositiveConstant(const Graph& graph, ValueId id) {
  const ValueDef& value = graph.value(id);
  if (value.source != ValueSource::kConstant || value.constant.num_elements() != 1) return 0;
  if (!IsInteger(value.constant.dtype())) return 0;
  const absl::StatusOr<std::vector<int64_t>> elements = ToInt64s(value.constant);
  return elements.ok() ? std::max<int64_t>(0, elements->front()) : 0;
}

// A constant with this one element.
bool IsConstantOf(const Graph& graph, ValueId id, double number) {
  const ValueDef& value = graph.value(id);
  if (value.source != ValueSource::kConstant || value.constant.num_elements() != 1) return false;
  const absl::StatusOr<std::vector<double>> elements = ToDoubles(value.constant);
  return elements.ok() && elements->front() == number;
}

}  // namespace

BatchFollower::BatchFollower(const Graph& graph, int64_t samples, NodeEvaluator& evaluator,
                             std::vector<MixingNode>& found)
    : graph_(graph),
      samples_(samples),
      evaluator_(evaluator),
      found_(found),
      places_(static_cast<size_t>(graph.value_capacity())) {}

void BatchFollower::CompareWith(const Graph& other, int64_t samples) {
  other_ = &other;
  other_samples_ = samples;
}

bool BatchFollower::Visit::Has(Kind kind) const {
  return std::any_of(inputs.begin(), inputs.end(),
                     [kind](const BatchPlace& place) { return place.is(kind); });
}

absl::Status BatchFollower::Run() {
  PlaceConstants();
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
  for (const NodeId id : order) {
    const Node& node = graph_.node(id);
    if (IsBoundary(node)) {
      VisitBoundary(node);
    } else if (IsForward(node)) {
      WEFT_RETURN_IF_ERROR(VisitNode(node));
    }
  }
  return absl::OkStatus();
}

void BatchFollower::PlaceConstants() {
  if (other_ == nullptr) return;
  for (const ValueId id : graph_.value_ids()) {
    const ValueDef& value = graph_.value(id);
    if (value.source != ValueSource::kConstant) continue;
    const std::optional<ValueId> same = other_->FindValue(value.name);
    if (!same.has_value()) continue;
    const ValueDef& other = other_->value(*same);
    if (other.source != ValueSource::kConstant) continue;
    if (other.constant.buffer() == value.constant.buffer()) continue;
    places_[id.value] = PlaceOfConstant(value.constant, samples_, other.constant, other_samples_);
  }
}

std::optional<FactorRule> BatchFollower::RuleOf(const Node& node) const {
  if (node.schema == nullptr || !node.schema->sharding()) return std::nullopt;
  const absl::StatusOr<GraphNodeView> view = GraphNodeView::Create(graph_, node);
  if (!view.ok()) return std::nullopt;
  absl::StatusOr<FactorRule> rule = node.schema->sharding()(*view);
  if (!rule.ok() || rule->inputs.size() < node.inputs.size() ||
      rule->outputs.size() < node.outputs.size()) {
    return std::nullopt;
  }
  return *std::move(rule);
}

BatchFollower::Visit BatchFollower::VisitOf(const Node& node) const {
  Visit visit;
  visit.node = &node;
  visit.rule = RuleOf(node);
  for (const ValueId input : node.inputs) {
    visit.inputs.push_back(input.valid() ? places_[input.value] : BatchPlace());
  }
  const auto forget = [&visit](int input) {
    if (input < static_cast<int>(visit.inputs.size())) visit.inputs[input] = BatchPlace();
  };
  if (node.schema != nullptr) {
    for (const int input : node.schema->value_inputs()) forget(input);
  }
  if (visit.rule.has_value()) {
    for (const int input : visit.rule->shape_inputs) forget(input);
  }
  return visit;
}

std::string BatchFollower::NameOf(ValueId value) const {
  return absl::StrCat("'", graph_.value(value).name, "'");
}

void BatchFollower::SetOutputs(const Node& node, const BatchPlace& place) {
  for (const ValueId output : node.outputs) {
    if (output.valid()) places_[output.value] = place;
  }
}

absl::Status BatchFollower::VisitNode(const Node& node) {
  const Visit visit = VisitOf(node);
  if (HasBody(node)) return VisitBodies(visit);
  if (Observes(node)) {
    BatchPlace sum = BatchPlace::Of(Kind::kSum);
    sum.maker = node.name;
    SetOutputs(node, sum);
    return absl::OkStatus();
  }
  if (visit.Has(Kind::kLost)) {
    SetOutputs(node, BatchPlace::Of(Kind::kLost));
  } else if (!IsTensorNode(graph_, node)) {
    // Sequences: their elements are taken to lie as what they are made of.
    const auto batch = std::find_if(visit.inputs.begin(), visit.inputs.end(),
                                    [](const BatchPlace& p) { return !p.is(Kind::kNone); });
    SetOutputs(node, batch == visit.inputs.end() ? BatchPlace() : *batch);
  } else if (visit.Has(Kind::kSplit)) {
    VisitSplit(visit);
  } else if (std::all_of(visit.inputs.begin(), visit.inputs.end(),
                         [](const BatchPlace& place) { return place.is(Kind::kNone); })) {
    VisitIndependent(visit);
  } else {
    VisitReduced(visit);
  }
  return absl::OkStatus();
}

// What comes to a sum over micro-batches is a sum over samples, or the same in each.
void BatchFollower::VisitBoundary(const Node& node) {
  const Visit visit = VisitOf(node);
  if (visit.Has(Kind::kMean) || visit.Has(Kind::kSplit) || visit.Has(Kind::kOther) ||
      visit.Has(Kind::kShare)) {
    Report(visit, absl::StrCat("adds up ", NameOf(node.inputs[0]),
                               " over micro-batches, which is no sum over samples"));
  }
}

// What nothing of the batch goes into may have an axis for it all the same: something repeated.
void BatchFollower::VisitIndependent(const Visit& visit) {
  if (other_ == nullptr) return;
  for (const ValueId output : visit.node->outputs) {
    if (!output.valid()) continue;
    const std::optional<ValueId> same = other_->FindValue(graph_.value(output).name);
    if (!same.has_value()) continue;
    BatchPlace place =
        PlaceByShape(ShapeOf(graph_, output), samples_, ShapeOf(*other_, *same), other_samples_);
    if (place.is(Kind::kLost)) place = BatchPlace::Of(Kind::kOther);
    places_[output.value] = std::move(place);
  }
}

// -- Samples on an axis.

void BatchFollower::VisitAlias(const Visit& visit) {
  const Node& node = *visit.node;
  const std::optional<Shape> from = graph_.value(node.inputs[0]).type.shape.ToConcrete();
  const std::optional<Shape> to = graph_.value(node.outputs[0]).type.shape.ToConcrete();
  BatchPlace place = visit.inputs[0];
  if (from.has_value() && to.has_value() && *from != *to) {
    place = PlaceUnderShape(*from, visit.inputs[0], *to, samples_);
    if (place.is(Kind::kLost)) return ReportWhole(visit, 0);
    if (!visit.inputs[0].only_first) place.stride = visit.inputs[0].stride;
  }
  places_[node.outputs[0].value] = std::move(place);
}

void BatchFollower::VisitSplit(const Visit& visit) {
  const Node& node = *visit.node;
  if (IsAliasOfInput(node) && visit.inputs[0].is(Kind::kSplit)) return VisitAlias(visit);
  if (PlacesSamples(node) && visit.inputs[0].axis == 0 && visit.inputs[0].blocks == 1) {
    BatchPlace sum = BatchPlace::Of(Kind::kSum);
    sum.maker = node.name;
    return SetOutputs(node, sum);
  }
  if (visit.Has(Kind::kSum) || visit.Has(Kind::kMean)) return ReportSum(visit);
  if (visit.Has(Kind::kCount) || visit.Has(Kind::kShare) || visit.Has(Kind::kOther)) {
    return Report(visit, "uses how many samples there are");
  }
  if (!visit.rule.has_value()) return VisitWithoutRule(visit);
  int first = -1;
  const std::optional<BatchFactor> batch = FindFactor(visit, first);
  if (!batch.has_value()) return;
  const FactorKind kind = visit.rule->factors[batch->factor].kind;
  if (kind == FactorKind::kParallel || kind == FactorKind::kSum) return FollowFactor(visit, *batch);
  if (IsPlainMean(node)) {
    BatchPlace mean = BatchPlace::Of(Kind::kMean);
    mean.maker = node.name;
    return SetOutputs(node, mean);
  }
  if (!TakesOwnRows(visit)) ReportWhole(visit, first);
}

// The factor that holds the samples in all inputs, `first` being the first of these; nullopt where
// there is no one such factor, which is reported. What is the same along its axis fits any.
std::optional<BatchFactor> BatchFollower::FindFactor(const Visit& visit, int& first) {
  const FactorRule& rule = *visit.rule;
  std::optional<BatchFactor> batch;
  for (const bool uniform : {false, true}) {
    for (size_t i = 0; i < visit.inputs.size(); ++i) {
      const BatchPlace& place = visit.inputs[i];
      const bool counts = place.is(Kind::kSplit) && place.is_uniform == uniform;
      if (!counts || (uniform && batch.has_value())) continue;
      const auto own = FactorOfBatch(rule, rule.inputs[i], place, samples_);
      const bool once = own.has_value() && PlaceOfFactor(rule, rule.inputs[i], *own).has_value();
      const bool same = !batch.has_value() || !own.has_value() ||
                        (own->factor == batch->factor && own->blocks == batch->blocks);
      if ((!once || !same) && TakesOwnRows(visit)) return std::nullopt;
      if (!once) return ReportWhole(visit, static_cast<int>(i)), std::nullopt;
      if (!same) return ReportPairs(visit, first, static_cast<int>(i)), std::nullopt;
      if (!batch.has_value()) first = static_cast<int>(i);
      batch = own;
    }
  }
  return batch;
}

// A factor that may be split: each output has it, or a sum over it.
void BatchFollower::FollowFactor(const Visit& visit, const BatchFactor& batch) {
  const Node& node = *visit.node;
  const bool sums = visit.rule->factors[batch.factor].kind == FactorKind::kSum;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].valid()) continue;
    std::optional<BatchPlace> place = PlaceOfFactor(*visit.rule, visit.rule->outputs[i], batch);
    if (place.has_value() && place->is(Kind::kNone) && sums) {
      place->kind = IsMean(node) ? Kind::kMean : Kind::kSum;
      place->maker = node.name;
    } else if (!place.has_value() || place->is(Kind::kNone)) {
      return Report(visit, absl::StrCat("makes ", NameOf(node.outputs[i]),
                                        ", in which the samples have no axis of their own"));
    }
    places_[node.outputs[i].value] = *std::move(place);
  }
  CarryNumbers(visit);
}

// What arithmetic makes of the numbers of the samples in input `input`: numbers times a constant,
// or with positions within a sample added, which are taken to be less than the stride. 0 = neither.
int64_t BatchFollower::StrideAfter(const Visit& visit, int input) const {
  const FactorRule& rule = *visit.rule;
  const int64_t stride = visit.inputs[input].stride;
  // From the end of the samples.
  const std::string& op = visit.node->op;
  if (visit.node->domain.empty() && (op == "Neg" || (op == "Sub" && input == 1))) return 0;
  if (visit.inputs.size() == 1) {
    return HoldsSet(rule, {0}) || KeepsSums(graph_, *visit.node) ? stride : 0;
  }
  if (visit.inputs.size() != 2) return 0;
  const int other = 1 - input;
  const bool is_sum = HoldsSet(rule, {0, 1});
  const bool is_product = HoldsSet(rule, {0}) && HoldsSet(rule, {1});
  if (is_sum && visit.inputs[other].is(Kind::kSplit)) {
    return visit.inputs[other].stride == 0 ? stride : 0;
  }
  const int64_t constant = PositiveConstant(graph_, visit.node->inputs[other]);
  if (is_product) return stride * constant;
  return is_sum && constant > 0 && constant < stride ? stride : 0;
}

// Numbers of samples that are moved, scaled or added to stay such; others use them.
void BatchFollower::CarryNumbers(const Visit& visit) {
  const Node& node = *visit.node;
  const auto has_numbers = [](const BatchPlace& place) { return place.stride > 0; };
  const auto numbers = std::find_if(visit.inputs.begin(), visit.inputs.end(), has_numbers);
  if (numbers == visit.inputs.end()) return;
  const ValueId output = node.outputs.empty() ? kNoValue : node.outputs[0];
  const auto input = static_cast<int>(numbers - visit.inputs.begin());
  const bool is_integer = output.valid() && IsInteger(graph_.value(output).type.dtype);
  const bool all =
      std::all_of(visit.inputs.begin(), visit.inputs.end(), [&](const BatchPlace& place) {
        return !place.is(Kind::kSplit) || place.stride == numbers->stride;
      });
  const auto keep = [&](int64_t stride, bool only_first) {
    places_[output.value].stride = stride;
    places_[output.value].only_first = only_first;
  };
  const bool moves = node.schema->element_use() == ElementUse::kMoves;
  if (is_integer && !numbers->only_first) {
    if (moves && all) return keep(numbers->stride, false);
    if (moves && input == 0 && node.inputs.size() > 1) {
      // Beside other positions, in the front.
      const Shape shape = ShapeOf(graph_, node.inputs[0]);
      if (shape.rank() > 0 && shape.dim(shape.rank() - 1) == 1) return keep(numbers->stride, true);
    } else if (const int64_t stride = StrideAfter(visit, input); stride > 0) {
      return keep(stride, false);
    }
  }
  Report(visit, absl::StrCat("uses ", NameOf(node.inputs[input]),
                             ", the numbers of the samples in the batch"));
}

// Of each output: PlaceByShape, kLost where there is nothing to compare with.
std::vector<BatchPlace> BatchFollower::GrownAxes(const Node& node) const {
  std::vector<BatchPlace> grown(node.outputs.size(), BatchPlace::Of(Kind::kLost));
  for (size_t i = 0; i < node.outputs.size() && other_ != nullptr; ++i) {
    if (!node.outputs[i].valid()) continue;
    const ValueDef& value = graph_.value(node.outputs[i]);
    const std::optional<ValueId> same = other_->FindValue(value.name);
    if (!same.has_value()) continue;
    const std::optional<Shape> shape = value.type.shape.ToConcrete();
    const std::optional<Shape> other = other_->value(*same).type.shape.ToConcrete();
    if (!shape.has_value() || !other.has_value()) continue;
    grown[i] = PlaceByShape(*shape, samples_, *other, other_samples_);
  }
  return grown;
}

// Each sample reads its own rows of a value with all samples, by their numbers: found by trying.
bool BatchFollower::TakesOwnRows(const Visit& visit) {
  const auto places =
      ProbeSamples(graph_, *visit.node, visit.inputs, GrownAxes(*visit.node), samples_, evaluator_);
  if (!places.has_value()) return false;
  const std::vector<ValueId>& outputs = visit.node->outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].valid() && !(*places)[i].is(Kind::kSplit)) return false;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].valid()) places_[outputs[i].value] = (*places)[i];
  }
  return true;
}

void BatchFollower::VisitWithoutRule(const Visit& visit) {
  const Node& node = *visit.node;
  const auto tried =
      ProbeSamples(graph_, node, visit.inputs, GrownAxes(node), samples_, evaluator_);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId output = node.outputs[i];
    if (!output.valid()) continue;
    const bool is_known = tried.has_value() && !(*tried)[i].is(Kind::kNone);
    BatchPlace place = is_known ? (*tried)[i] : GuessPlace(output, visit);
    if (place.is(Kind::kLost)) {
      return Report(visit, is_known ? "lets one sample change what it makes of others"
                                    : absl::StrCat("makes ", NameOf(output),
                                                   ", in which the samples have no axis of their "
                                                   "own"));
    }
    places_[output.value] = std::move(place);
  }
}

BatchPlace BatchFollower::GuessPlace(ValueId output, const Visit& visit) const {
  const std::optional<Shape> shape = graph_.value(output).type.shape.ToConcrete();
  const auto split = std::find_if(visit.inputs.begin(), visit.inputs.end(),
                                  [](const BatchPlace& place) { return place.is(Kind::kSplit); });
  if (split == visit.inputs.end()) return BatchPlace::Of(Kind::kLost);
  BatchPlace like = BatchPlace::Split(split->axis, split->blocks);
  if (!shape.has_value()) return like;
  const ValueId input = visit.node->inputs[static_cast<size_t>(split - visit.inputs.begin())];
  const Shape from = ShapeOf(graph_, input);
  const auto keeps = [&](int axis) {
    return axis == like.axis && axis < from.rank() && from.dim(axis) == shape->dim(axis);
  };
  const std::optional<ValueId> same =
      other_ == nullptr ? std::nullopt : other_->FindValue(graph_.value(output).name);
  if (same.has_value()) {
    const BatchPlace place =
        PlaceByShape(*shape, samples_, ShapeOf(*other_, *same), other_samples_);
    if (!place.is(Kind::kSplit)) return BatchPlace::Of(Kind::kLost);
    return keeps(place.axis) ? like : place;
  }
  if (like.axis < shape->rank() && keeps(like.axis)) return like;
  for (int axis = 0; axis < shape->rank(); ++axis) {
    if (shape->dim(axis) == samples_) return BatchPlace::Split(axis);
  }
  return BatchPlace::Of(Kind::kLost);
}

// -- Sums and means over the samples.

// In a graph for one number of samples no other graph tells that a constant grows with it: one that
// is the number itself counts as it.
bool BatchFollower::IsMeanTimesSamples(const Visit& visit) const {
  if (other_ != nullptr || visit.inputs.size() != 2) return false;
  if (!HoldsSet(*visit.rule, {0}) || !HoldsSet(*visit.rule, {1})) return false;
  for (const int at : {0, 1}) {
    const ValueId number = visit.node->inputs[1 - at];
    if (!visit.inputs[at].is(Kind::kMean) || !number.valid()) continue;
    if (IsConstantOf(graph_, number, static_cast<double>(samples_))) return true;
  }
  return false;
}

std::optional<BatchPlace::Kind> BatchFollower::KindOfReduced(const Visit& visit) const {
  if (KeepsSums(graph_, *visit.node)) return visit.inputs[0].kind;
  if (!visit.rule.has_value()) return std::nullopt;
  const auto fits = [&](const std::vector<int>& set, Kind inside, Kind also) {
    for (size_t i = 0; i < visit.inputs.size(); ++i) {
      const Kind kind = visit.inputs[i].kind;
      const bool good = Holds(set, i) ? kind == inside || kind == also : kind == Kind::kNone;
      if (!good) return false;
    }
    return true;
  };
  if (IsMeanTimesSamples(visit)) return Kind::kSum;
  for (const std::vector<int>& set : visit.rule->linear) {
    if (fits(set, Kind::kSum, Kind::kCount)) return Kind::kSum;
    if (fits(set, Kind::kMean, Kind::kNone)) return Kind::kMean;
  }
  // By the number of samples: a mean times it is a sum, a sum divided by it a mean.
  if (visit.inputs.size() != 2) return std::nullopt;
  for (const int at : {0, 1}) {
    const Kind kind = visit.inputs[at].kind;
    const Kind number = visit.inputs[1 - at].kind;
    if (!HoldsSet(*visit.rule, {at})) continue;
    const bool times = HoldsSet(*visit.rule, {1 - at});
    if (kind == Kind::kMean && number == (times ? Kind::kCount : Kind::kShare)) return Kind::kSum;
    if (kind == Kind::kSum && number == (times ? Kind::kShare : Kind::kCount)) return Kind::kMean;
  }
  return std::nullopt;
}

void BatchFollower::VisitReduced(const Visit& visit) {
  const std::optional<Kind> kind = KindOfReduced(visit);
  if (!kind.has_value()) return ReportSum(visit);
  BatchPlace place = BatchPlace::Of(*kind);
  for (const BatchPlace& input : visit.inputs) {
    if (!input.maker.empty()) place.maker = input.maker;
  }
  SetOutputs(*visit.node, place);
}

// -- Reports.

void BatchFollower::Report(const Visit& visit, std::string reason) {
  const Node& node = *visit.node;
  MixingNode mixing;
  mixing.node = node.name;
  mixing.op = FullOpName(node);
  mixing.reason = std::move(reason);
  mixing.sums_over_replicas = node.schema != nullptr && node.schema->whole_batch() != nullptr;
  found_.push_back(std::move(mixing));
  for (const ValueId output : node.outputs) {
    if (output.valid()) places_[output.value] = GuessPlace(output, visit);
  }
}

void BatchFollower::ReportWhole(const Visit& visit, int input) {
  const OpSchema* const schema = visit.node->schema;
  if (schema != nullptr && schema->whole_batch() != nullptr) {
    return Report(visit, "computes statistics over the samples of the batch");
  }
  Report(visit,
         absl::StrCat("takes all samples of the batch together: axis ", visit.inputs[input].axis,
                      " of ", NameOf(visit.node->inputs[static_cast<size_t>(input)])));
}

void BatchFollower::ReportPairs(const Visit& visit, int a, int b) {
  const std::vector<ValueId>& inputs = visit.node->inputs;
  Report(visit, absl::StrCat("pairs each sample with all others: the samples are on axis ",
                             visit.inputs[a].axis, " of ", NameOf(inputs[a]), " and on axis ",
                             visit.inputs[b].axis, " of ", NameOf(inputs[b])));
}

void BatchFollower::ReportSum(const Visit& visit) {
  for (size_t i = 0; i < visit.inputs.size(); ++i) {
    const BatchPlace& place = visit.inputs[i];
    if (!place.is(Kind::kSum) && !place.is(Kind::kMean)) continue;
    return Report(
        visit, absl::StrCat("reads ", NameOf(visit.node->inputs[i]), ", the ",
                            place.is(Kind::kSum) ? "sum" : "mean",
                            " over the samples of the batch that node '", place.maker, "' makes"));
  }
  Report(visit, "uses how many samples there are");
}

}  // namespace weft
