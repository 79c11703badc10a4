#include "placement/pipeline/recomputation.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "graph/inference.h"
#include "graph/node_class.h"
#include "graph/op_schema.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

constexpr int kNoSegment = -1;

// Running it again gives the same bits and does nothing else.
bool CanRunAgain(const Node& node) {
  if (node.schema == nullptr || node.schema->stateful()) return false;
  if (node.schema->op_class() != OpClass::kCompute) return false;
  const auto& attributes = node.attributes.items();
  return std::none_of(attributes.begin(), attributes.end(), [](const auto& attribute) {
    return std::holds_alternative<std::shared_ptr<Graph>>(attribute.second);
  });
}

// "block*" for a node that "block*/up" fits at "block7" is "block7".
std::string FillIn(const std::string& segment, const std::string& pattern,
                   const std::string& name) {
  const size_t star = segment.find('*');
  if (star == std::string::npos) return segment;
  return absl::StrCat(segment.substr(0, star), TextOfFirstStar(pattern, name),
                      segment.substr(star + 1));
}

absl::Status CheckEntry(const std::string& pattern, const Graph& graph,
                        const std::vector<std::string>& forward) {
  if (const auto node = graph.FindNode(pattern); node && IsForward(graph.node(*node))) {
    return absl::OkStatus();
  }
  const auto fits = [&](const std::string& name) {
    return name == pattern || MatchesPattern(pattern, name);
  };
  if (std::any_of(forward.begin(), forward.end(), fits)) return absl::OkStatus();
  const std::string begin = absl::StrCat("the plan recomputes '", pattern, "', but ");
  for (const NodeId id : graph.node_ids()) {
    if (!fits(graph.node(id).name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(begin, "that is a node of the ", std::string(PhaseName(graph.node(id).phase)),
                     " phase ('", graph.node(id).name, "'); only forward nodes can be recomputed"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(begin, "no forward node has this name", DidYouMean(pattern, forward)));
}

// What must run again, decided segment by segment, the last one first: what it keeps of earlier
// ones need not be recomputed there.
class RecomputationFinder {
 public:
  RecomputationFinder(const Graph& graph, const RecomputedSegments& segments)
      : graph_(graph),
        segments_(segments),
        segment_(graph.node_capacity(), kNoSegment),
        runs_again_(graph.node_capacity()),
        kept_(graph.value_capacity()),
        wanted_(graph.value_capacity()) {}

  absl::Status Run() {
    WEFT_ASSIGN_OR_RETURN(order_, graph_.TopologicalOrder());
    AssignSegments();
    KeepWhatOthersRead();
    std::vector<bool> decided(members_.size());
    for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
      const int segment = segment_[it->value];
      if (segment == kNoSegment || !IsForward(graph_.node(*it)) || decided[segment]) continue;
      decided[segment] = true;
      DecideSegment(segment);
    }
    return absl::OkStatus();
  }

  const std::vector<NodeId>& order() const { return order_; }
  bool RunsAgain(NodeId node) const { return runs_again_[node.value]; }
  // The copy's value is read in place of this one.
  bool IsWanted(ValueId value) const { return wanted_[value.value]; }
  // The node is one of the segment that makes `value`, or a backward node of one.
  bool IsOfSegment(const Node& node, ValueId value) const {
    const NodeId producer = graph_.value(value).producer;
    return producer.valid() && segment_[node.id.value] != kNoSegment &&
           segment_[node.id.value] == segment_[producer.value];
  }

 private:
  std::string SegmentNameOf(const Node& node) const;
  void AssignSegments();
  void KeepWhatOthersRead();
  void DecideSegment(int segment);
  void Keep(ValueId value, const Node& reader);
  void Want(ValueId value, const Node& reader, std::vector<NodeId>& pending);

  const Graph& graph_;
  const RecomputedSegments& segments_;
  std::vector<NodeId> order_;
  std::vector<int> segment_;                  // by NodeId; of backward nodes: their forward node's
  std::vector<std::vector<NodeId>> members_;  // by segment: its backward nodes
  std::vector<bool> runs_again_;              // by NodeId
  std::vector<bool> kept_;                    // by ValueId
  std::vector<bool> wanted_;                  // by ValueId
};

// A node that another one was taken apart into has that one's name before its own.
std::string RecomputationFinder::SegmentNameOf(const Node& node) const {
  std::string name = IsForward(node) ? node.name : node.origin.forward_node;
  while (true) {
    if (const auto it = segments_.find(name); it != segments_.end()) return it->second;
    const size_t end = name.rfind('/');
    if (end == std::string::npos) return "";
    name.resize(end);
  }
}

void RecomputationFinder::AssignSegments() {
  std::map<std::pair<std::string, int>, int> numbers;
  for (const bool forward : {true, false}) {
    for (const NodeId id : order_) {
      const Node& node = graph_.node(id);
      if (!(forward ? IsForward(node) : IsBackward(node))) continue;
      const std::string name = SegmentNameOf(node);
      if (name.empty()) continue;
      const std::pair<std::string, int> key = {name, node.stage.value};
      if (forward) numbers.try_emplace(key, static_cast<int>(numbers.size()));
      const auto number = numbers.find(key);
      if (number != numbers.end()) segment_[id.value] = number->second;
    }
  }
  members_.resize(numbers.size());
  for (const NodeId id : order_) {
    const int segment = segment_[id.value];
    if (segment != kNoSegment && IsBackward(graph_.node(id))) members_[segment].push_back(id);
  }
}

// What a later stage reads it has received: it is that one's to keep.
void RecomputationFinder::Keep(ValueId value, const Node& reader) {
  const NodeId producer = graph_.value(value).producer;
  if (!producer.valid() || reader.stage.value > graph_.node(producer).stage.value) return;
  kept_[value.value] = true;
}

void RecomputationFinder::KeepWhatOthersRead() {
  for (const NodeId id : order_) {
    const Node& node = graph_.node(id);
    for (const ValueId input : node.inputs) {
      if (IsBackward(node) && input.valid() && !IsOfSegment(node, input)) Keep(input, node);
    }
  }
}

// Computes `value` anew if it is of the reader's segment and can be, or keeps it.
void RecomputationFinder::Want(ValueId value, const Node& reader, std::vector<NodeId>& pending) {
  const NodeId producer = graph_.value(value).producer;
  if (!producer.valid() || kept_[value.value] || !IsForward(graph_.node(producer))) return;
  if (!IsOfSegment(reader, value) || !CanRunAgain(graph_.node(producer))) {
    Keep(value, reader);
    return;
  }
  wanted_[value.value] = true;
  if (runs_again_[producer.value]) return;
  runs_again_[producer.value] = true;
  pending.push_back(producer);
}

void RecomputationFinder::DecideSegment(int segment) {
  std::vector<NodeId> pending = members_[segment];
  while (!pending.empty()) {
    const NodeId id = pending.back();
    pending.pop_back();
    for (const ValueId input : graph_.node(id).inputs) {
      if (input.valid()) Want(input, graph_.node(id), pending);
    }
  }
}

// Adds the copies in topological order.
class Copier {
 public:
  Copier(Graph& graph, const RecomputationFinder& finder)
      : graph_(graph), finder_(finder), copy_(graph.value_capacity(), kNoValue) {}

  absl::StatusOr<std::vector<RecomputedNode>> Run() {
    for (const NodeId id : finder_.order()) {
      if (finder_.RunsAgain(id)) WEFT_RETURN_IF_ERROR(Copy(id));
    }
    for (const NodeId id : finder_.order()) {
      if (IsBackward(graph_.node(id))) ReadCopies(graph_.node(id));
    }
    return std::move(copies_);
  }

 private:
  // What a node of the value's segment reads in the backward phase.
  ValueId CopyFor(const Node& node, ValueId value) const {
    if (!value.valid() || !finder_.IsOfSegment(node, value)) return value;
    return copy_[value.value].valid() ? copy_[value.value] : value;
  }

  absl::Status Copy(NodeId id) {
    const Node& node = graph_.node(id);
    Graph::NodeSpec spec;
    spec.name = absl::StrCat(kRecomputedPrefix, node.name);
    spec.domain = node.domain;
    spec.op = node.op;
    spec.attributes = node.attributes;
    for (const ValueId input : node.inputs) spec.inputs.push_back(CopyFor(node, input));
    spec.keep_empty_outputs = true;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId output = node.outputs[i];
      const FormalParameter* formal = node.schema->FormalOutput(static_cast<int>(i));
      const bool is_optional = formal != nullptr && formal->optional;
      const bool is_asked = output.valid() && (finder_.IsWanted(output) || !is_optional);
      spec.outputs.push_back(is_asked ? absl::StrCat(kRecomputedPrefix, graph_.value(output).name)
                                      : "");
    }
    spec.phase = Phase::kBackward;
    spec.stage = node.stage;
    spec.origin = {node.name, graph_.value(FirstOutput(node)).name, false};
    const NodeId copy = graph_.AddNode(std::move(spec));
    WEFT_RETURN_IF_ERROR(InferNode(graph_, copy));
    const std::vector<ValueId> made = graph_.node(copy).outputs;
    for (size_t i = 0; i < made.size(); ++i) {
      if (!made[i].valid()) continue;
      const ValueId original = graph_.node(id).outputs[i];
      graph_.value(made[i]).origin = {graph_.node(id).name, graph_.value(original).name, false};
      if (finder_.IsWanted(original)) copy_[original.value] = made[i];
    }
    copies_.push_back({copy, id});
    return absl::OkStatus();
  }

  static ValueId FirstOutput(const Node& node) {
    return *std::find_if(node.outputs.begin(), node.outputs.end(),
                         [](ValueId id) { return id.valid(); });
  }

  void ReadCopies(Node& node) {
    for (ValueId& input : node.inputs) input = CopyFor(node, input);
  }

  Graph& graph_;
  const RecomputationFinder& finder_;
  std::vector<ValueId> copy_;  // by ValueId
  std::vector<RecomputedNode> copies_;
};

}  // namespace

absl::StatusOr<RecomputedSegments> FindRecomputedSegments(const Graph& graph, const Plan& plan) {
  std::vector<std::string> names;
  bool is_training = false;
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (IsForward(node)) names.push_back(node.name);
    is_training |= IsBackward(node);
  }
  for (const auto& [pattern, segment] : plan.recompute) {
    if (is_training) WEFT_RETURN_IF_ERROR(CheckEntry(pattern, graph, names));
  }
  RecomputedSegments segments;
  for (const std::string& name : names) {
    const auto* entry = FindEntry(plan.recompute, name);
    segments[name] = entry == nullptr ? "" : FillIn(entry->second, entry->first, name);
  }
  return segments;
}

bool IsRecomputed(const Node& node) {
  return node.phase == Phase::kBackward && !node.origin.is_gradient &&
         node.name == absl::StrCat(kRecomputedPrefix, node.origin.forward_node);
}

absl::StatusOr<std::vector<NodeId>> FindRecomputedNodes(const Graph& graph,
                                                        const RecomputedSegments& segments) {
  RecomputationFinder finder(graph, segments);
  WEFT_RETURN_IF_ERROR(finder.Run());
  std::vector<NodeId> nodes;
  for (const NodeId id : finder.order()) {
    if (finder.RunsAgain(id)) nodes.push_back(id);
  }
  return nodes;
}

absl::StatusOr<std::vector<RecomputedNode>> AddRecomputation(Graph& graph,
                                                             const RecomputedSegments& segments) {
  RecomputationFinder finder(graph, segments);
  WEFT_RETURN_IF_ERROR(finder.Run());
  return Copier(graph, finder).Run();
}

std::vector<NodeId> PlaceRecomputed(const Graph& graph, const std::vector<NodeId>& order,
                                    const std::vector<RecomputedNode>& copies) {
  std::vector<int> place(graph.node_capacity(), -1);  // in `copies`; -1 = none, or done
  for (size_t i = 0; i < copies.size(); ++i) place[copies[i].copy.value] = static_cast<int>(i);
  std::vector<NodeId> result;
  for (const NodeId id : order) {
    std::set<int> missing;  // in topological order
    std::vector<NodeId> pending = {id};
    while (!pending.empty()) {
      const NodeId reader = pending.back();
      pending.pop_back();
      for (const ValueId input : graph.node(reader).inputs) {
        const NodeId producer = input.valid() ? graph.value(input).producer : NodeId();
        if (!producer.valid() || place[producer.value] < 0) continue;
        missing.insert(std::exchange(place[producer.value], -1));
        pending.push_back(producer);
      }
    }
    for (const int i : missing) result.push_back(copies[i].copy);
    result.push_back(id);
  }
  return result;
}

}  // namespace weft
