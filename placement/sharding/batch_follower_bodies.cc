// Samples in the bodies of If, Loop and Scan.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/node_bodies.h"
#include "placement/sharding/batch_follower.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// A value without its axis `axis`: what Scan hands to its body.
ValueType SliceType(const ValueType& type, int axis) {
  ValueType slice = type;
  std::vector<Dim> dims = type.shape.dims();
  dims.erase(dims.begin() + axis);
  slice.shape = SymbolicShape(std::move(dims));
  return slice;
}

int AxisOf(const Attributes& attributes, const std::string& name, size_t i, int rank) {
  const std::vector<int64_t> axes = attributes.Ints(name);
  const int64_t axis = i < axes.size() ? axes[i] : 0;
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

bool IsSame(const BatchPlace& a, const BatchPlace& b) {
  return a.kind == b.kind && a.axis == b.axis && a.blocks == b.blocks && a.stride == b.stride &&
         a.is_uniform == b.is_uniform && a.only_first == b.only_first;
}

// What two branches, or two rounds, make in turn: what holds of both, kLost where nothing does.
BatchPlace Merge(const BatchPlace& a, const BatchPlace& b) {
  if (a.is(BatchPlace::Kind::kNone)) return b;
  if (b.is(BatchPlace::Kind::kNone) || IsSame(a, b)) return a;
  if (a.kind == b.kind && a.axis == b.axis) {
    // What may be split anywhere may be split as the other is.
    if (a.is_uniform) return b;
    if (b.is_uniform) return a;
  }
  return BatchPlace::Of(BatchPlace::Kind::kLost);
}

// The samples of each were known, and of both together they are not.
bool AreAtOdds(const BatchPlace& a, const BatchPlace& b) {
  const auto is_lost = [](const BatchPlace& place) { return place.is(BatchPlace::Kind::kLost); };
  return !is_lost(a) && !is_lost(b) && is_lost(Merge(a, b));
}

// The value of all rounds, stacked along `axis`.
BatchPlace Stacked(BatchPlace place, int axis) {
  if (place.is(BatchPlace::Kind::kSplit) && place.axis >= axis) ++place.axis;
  place.stride = 0;
  place.is_uniform = false;
  return place;
}

ValueType ScalarOf(DType dtype) { return {ValueKind::kTensor, dtype, SymbolicShape(Shape{})}; }

}  // namespace

absl::Status BatchFollower::VisitBodies(const Visit& visit) {
  const Node& node = *visit.node;
  const bool any = std::any_of(visit.inputs.begin(), visit.inputs.end(),
                               [](const BatchPlace& place) { return !place.is(Kind::kNone); });
  if (!any) {
    VisitIndependent(visit);
    return absl::OkStatus();
  }
  // What decides which body runs, and how often, must not depend on the batch.
  const int own = NumOwnInputs(node);
  const int deciding = node.op == "If" ? 1 : node.op == "Loop" ? std::min(own, 2) : 0;
  for (int i = 0; i < deciding; ++i) {
    if (visit.inputs[i].is(Kind::kNone)) continue;
    Report(visit, absl::StrCat(node.op == "If" ? "chooses its branch by " : "runs as often as ",
                               NameOf(node.inputs[i]), " says, which depends on the whole batch"));
    return absl::OkStatus();
  }
  if (node.op == "If") return VisitIf(visit);
  if (node.op == "Loop") return VisitLoop(visit);
  if (node.op == "Scan") return VisitScan(visit);
  VisitByShape(visit);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<BatchPlace>> BatchFollower::FollowBody(
    const Visit& visit, const std::string& name, const std::vector<BodyInput>& inputs,
    std::vector<MixingNode>& found) {
  const Node& node = *visit.node;
  for (const NodeBody& body : BodiesOf(node)) {
    if (body.name != name) continue;
    Graph graph = body.graph->Clone();
    std::vector<BodyInput> all = inputs;
    all.resize(static_cast<size_t>(body.num_inputs()));
    for (int i = 0; i < body.captures; ++i) {
      const auto outer = static_cast<size_t>(body.first_capture + i);
      all.push_back({graph_.value(node.inputs[outer]).type, visit.inputs[outer]});
    }
    for (size_t i = 0; i < all.size(); ++i) graph.value(graph.inputs()[i]).type = all[i].type;
    // Where a body does not fit its inputs, shapes stay unknown: it says so when it runs.
    InferShapes(graph).IgnoreError();
    BatchFollower follower(graph, samples_, evaluator_, found);
    for (size_t i = 0; i < all.size(); ++i) follower.SetPlace(graph.inputs()[i], all[i].place);
    WEFT_RETURN_IF_ERROR(follower.Run());
    std::vector<BatchPlace> places;
    for (const ValueId output : graph.outputs()) places.push_back(follower.PlaceOf(output));
    return places;
  }
  return absl::InternalError(absl::StrCat("node '", node.name, "' has no body '", name, "'"));
}

absl::StatusOr<BatchFollower::SettledBody> BatchFollower::SettleBody(const Visit& visit,
                                                                     std::vector<BodyInput> inputs,
                                                                     size_t first_state,
                                                                     size_t states,
                                                                     size_t first_output) {
  SettledBody body;
  std::vector<MixingNode> found;
  // Each round that settles nothing moves a state on: to the samples, to their place, to kLost.
  for (size_t round = 0; round < 3 * states + 2; ++round) {
    found.clear();
    WEFT_ASSIGN_OR_RETURN(body.outputs, FollowBody(visit, "body", inputs, found));
    bool settled = true;
    for (size_t i = 0; i < states && first_output + i < body.outputs.size(); ++i) {
      BatchPlace& before = inputs[first_state + i].place;
      BatchPlace& made = body.outputs[first_output + i];
      if (AreAtOdds(before, made)) body.moving_state = static_cast<int>(i);
      made = Merge(before, made);  // also what comes out if there is no round
      settled = settled && IsSame(made, before);
      before = made;
    }
    if (settled) break;
  }
  found_.insert(found_.end(), found.begin(), found.end());
  return body;
}

void BatchFollower::ReportMovingState(const Visit& visit, int state) {
  Report(visit, absl::StrCat("carries its state ", state,
                             " from round to round, in which the samples then lie otherwise"));
}

absl::Status BatchFollower::VisitIf(const Visit& visit) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<BatchPlace> first,
                        FollowBody(visit, "then_branch", {}, found_));
  WEFT_ASSIGN_OR_RETURN(const std::vector<BatchPlace> second,
                        FollowBody(visit, "else_branch", {}, found_));
  const std::vector<ValueId>& outputs = visit.node->outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].valid() || i >= first.size() || i >= second.size()) continue;
    if (AreAtOdds(first[i], second[i])) {
      Report(visit, absl::StrCat("makes ", NameOf(outputs[i]),
                                 ", in which the samples lie otherwise from branch to branch"));
      return absl::OkStatus();
    }
    places_[outputs[i].value] = Merge(first[i], second[i]);
  }
  return absl::OkStatus();
}

// Of a node whose bodies are not followed: where the shapes say.
void BatchFollower::VisitByShape(const Visit& visit) {
  for (const ValueId output : visit.node->outputs) {
    if (!output.valid()) continue;
    BatchPlace place = GuessPlace(output, visit);
    if (place.is(Kind::kLost) && !visit.Has(Kind::kLost)) {
      return Report(visit, absl::StrCat("makes ", NameOf(output),
                                        ", in which the samples have no axis of their own"));
    }
    places_[output.value] = std::move(place);
  }
}

absl::Status BatchFollower::VisitLoop(const Visit& visit) {
  const Node& node = *visit.node;
  const auto own = static_cast<size_t>(NumOwnInputs(node));
  std::vector<BodyInput> inputs = {{ScalarOf(DType::kInt64), {}}, {ScalarOf(DType::kBool), {}}};
  for (size_t i = 2; i < own; ++i) {
    if (!node.inputs[i].valid()) return VisitByShape(visit), absl::OkStatus();
    inputs.push_back({graph_.value(node.inputs[i]).type, visit.inputs[i]});
  }
  const size_t states = inputs.size() - 2;
  WEFT_ASSIGN_OR_RETURN(const SettledBody body, SettleBody(visit, std::move(inputs), 2, states, 1));
  const std::vector<BatchPlace>& outputs = body.outputs;
  if (!outputs.empty() && !outputs[0].is(Kind::kNone)) {
    Report(visit, "goes on as long as its body says, which depends on the whole batch");
    return absl::OkStatus();
  }
  if (body.moving_state.has_value()) {
    ReportMovingState(visit, *body.moving_state);
    return absl::OkStatus();
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].valid() || i + 1 >= outputs.size()) continue;
    places_[node.outputs[i].value] = i < states ? outputs[i + 1] : Stacked(outputs[i + 1], 0);
  }
  return absl::OkStatus();
}

absl::Status BatchFollower::VisitScan(const Visit& visit) {
  const Node& node = *visit.node;
  const auto own = static_cast<size_t>(NumOwnInputs(node));
  const auto scanned = static_cast<size_t>(node.attributes.Int("num_scan_inputs", 0));
  const size_t states = own - std::min(own, scanned);
  std::vector<BodyInput> inputs;
  for (size_t i = 0; i < own; ++i) {
    if (!node.inputs[i].valid()) return VisitByShape(visit), absl::OkStatus();
    BodyInput input = {graph_.value(node.inputs[i]).type, visit.inputs[i]};
    if (i >= states) {
      const int rank = input.type.shape.has_rank() ? input.type.shape.rank() : 0;
      const int axis = AxisOf(node.attributes, "scan_input_axes", i - states, rank);
      if (axis < 0 || axis >= rank) return VisitByShape(visit), absl::OkStatus();
      BatchPlace& place = input.place;
      if (place.is(Kind::kSplit) && place.axis == axis) {
        Report(visit, absl::StrCat("runs over the samples of the batch one after the other: axis ",
                                   axis, " of ", NameOf(node.inputs[i])));
        return absl::OkStatus();
      }
      if (place.is(Kind::kSplit) && place.axis > axis) --place.axis;
      input.type = SliceType(input.type, axis);
    }
    inputs.push_back(std::move(input));
  }
  WEFT_ASSIGN_OR_RETURN(const SettledBody body, SettleBody(visit, std::move(inputs), 0, states, 0));
  if (body.moving_state.has_value()) {
    ReportMovingState(visit, *body.moving_state);
    return absl::OkStatus();
  }
  const std::vector<BatchPlace>& outputs = body.outputs;
  for (size_t i = 0; i < node.outputs.size() && i < outputs.size(); ++i) {
    if (!node.outputs[i].valid()) continue;
    const int rank = ShapeOf(graph_, node.outputs[i]).rank();
    places_[node.outputs[i].value] =
        i < states
            ? outputs[i]
            : Stacked(outputs[i], AxisOf(node.attributes, "scan_output_axes", i - states, rank));
  }
  return absl::OkStatus();
}

}  // namespace weft
