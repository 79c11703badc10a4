#include "ops/rewrites/sequences.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/rewrites/pattern.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// More pieces than any chunk has: a sequence of all rows of a table stays one.
constexpr int64_t kMaxElements = 4096;

// What a node costs beside an element that is remembered.
constexpr int64_t kNodeWork = 16;

// One element of a known sequence: a tensor, or a piece of a SplitToSequence that is not made yet.
struct Element {
  ValueId tensor = kNoValue;
  NodeId split = NodeId();
  int64_t piece = 0;
};
using Elements = std::vector<Element>;

// How a SplitToSequence cuts.
struct Cut {
  int64_t axis = 0;
  std::vector<int64_t> sizes;
  bool drops_axis = false;
  std::vector<ValueId> pieces;  // made when the first is asked for
};

class SequenceResolver {
 public:
  SequenceResolver(Graph& graph, int64_t& work)
      : graph_(graph), work_(work), replacement_(graph.value_capacity()) {}

  absl::StatusOr<int> Run() {
    WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    for (const NodeId id : order) WEFT_RETURN_IF_ERROR(Visit(id));
    if (replaced_.empty()) return 0;
    KeepOutputNames();
    graph_.ReplaceUses(replacement_);
    for (const NodeId id : replaced_) graph_.RemoveNode(id);
    RemoveUnread();
    return static_cast<int>(replaced_.size());
  }

 private:
  absl::Status Visit(NodeId id) {
    const Node& node = graph_.node(id);
    if (!node.domain.empty()) return absl::OkStatus();
    if (node.op == "SequenceAt") return VisitAt(node);
    if (node.op == "SequenceLength") return VisitLength(node);
    if (node.op == "ConcatFromSequence") return VisitConcat(node);
    std::optional<Elements> made;
    if (node.op == "SplitToSequence") made = PiecesOf(node);
    if (node.op == "SequenceEmpty") made = Elements();
    if (node.op == "SequenceConstruct") made = ConstructedBy(node);
    if (node.op == "SequenceInsert") made = InsertedBy(node);
    if (node.op == "SequenceErase") made = ErasedBy(node);
    if (node.op == "Identity") made = KnownElements(node.inputs[0]);
    if (!made.has_value() || static_cast<int64_t>(made->size()) > kMaxElements ||
        !MayDo(static_cast<int64_t>(made->size()))) {
      return absl::OkStatus();
    }
    known_[node.outputs[0]] = *std::move(made);
    sequence_nodes_.push_back(id);
    return absl::OkStatus();
  }

  // Whether so much more may be done; a sequence beyond it stays one.
  bool MayDo(int64_t work) {
    work_ += work;
    return work_ <= kMaxSequenceWork;
  }

  // ---- Nodes that make sequences.

  std::optional<Elements> KnownElements(ValueId sequence) const {
    const auto found = known_.find(sequence);
    return found == known_.end() ? std::nullopt : std::optional<Elements>(found->second);
  }

  // A tensor as its readers will find it.
  ValueId Now(ValueId value) const {
    while (value.value < static_cast<int32_t>(replacement_.size()) &&
           replacement_[value.value].valid()) {
      value = replacement_[value.value];
    }
    return value;
  }

  std::optional<Elements> ConstructedBy(const Node& node) const {
    Elements elements;
    for (const ValueId input : node.inputs) {
      if (graph_.value(input).type.kind != ValueKind::kTensor) return std::nullopt;
      elements.push_back({Now(input)});
    }
    return elements;
  }

  // The place that a position input names in a sequence of `count`, -1 where it is not known;
  // `fallback` without a position.
  int64_t PositionOf(const Node& node, size_t input, int64_t count, int64_t fallback) const {
    if (node.inputs.size() <= input || !node.inputs[input].valid()) return fallback;
    const auto positions = KnownInts(graph_, node.inputs[input]);
    if (!positions.has_value() || positions->size() != 1) return -1;
    const int64_t position = positions->front();
    return position < 0 ? position + count : position;
  }

  std::optional<Elements> InsertedBy(const Node& node) const {
    std::optional<Elements> elements = KnownElements(node.inputs[0]);
    if (!elements.has_value()) return std::nullopt;
    if (graph_.value(node.inputs[1]).type.kind != ValueKind::kTensor) return std::nullopt;
    const auto count = static_cast<int64_t>(elements->size());
    const int64_t position = PositionOf(node, 2, count, count);
    if (position < 0 || position > count) return std::nullopt;
    elements->insert(elements->begin() + position, Element{Now(node.inputs[1])});
    return elements;
  }

  std::optional<Elements> ErasedBy(const Node& node) const {
    std::optional<Elements> elements = KnownElements(node.inputs[0]);
    if (!elements.has_value()) return std::nullopt;
    const auto count = static_cast<int64_t>(elements->size());
    const int64_t position = PositionOf(node, 1, count, count - 1);
    if (position < 0 || position >= count) return std::nullopt;
    elements->erase(elements->begin() + position);
    return elements;
  }

  // The sizes along the axis; empty: not known.
  std::vector<int64_t> SizesOf(const Node& node, const Dim& dim) const {
    const bool has_split = node.inputs.size() > 1 && node.inputs[1].valid();
    if (!has_split) {
      const bool fits = dim.is_known() && dim.size() <= kMaxElements;
      return std::vector<int64_t>(fits ? static_cast<size_t>(dim.size()) : 0, 1);
    }
    const auto split = KnownInts(graph_, node.inputs[1]);
    const SymbolicShape& shape = graph_.value(node.inputs[1]).type.shape;
    if (!split.has_value() || split->empty() || !shape.has_rank()) return {};
    if (shape.rank() == 1) {
      int64_t total = 0;
      for (const int64_t size : *split) {
        if (size < 0 || __builtin_add_overflow(total, size, &total)) return {};
      }
      return !dim.is_known() || dim.size() == total ? *split : std::vector<int64_t>();
    }
    const int64_t size = split->front();
    if (size < 1 || !dim.is_known() || dim.size() / size > kMaxElements) return {};
    std::vector<int64_t> sizes(static_cast<size_t>(dim.size() / size), size);
    if (dim.size() % size != 0) sizes.push_back(dim.size() % size);
    return sizes;
  }

  std::optional<Elements> PiecesOf(const Node& node) {
    const SymbolicShape& shape = graph_.value(Now(node.inputs[0])).type.shape;
    if (!shape.has_rank()) return std::nullopt;
    const auto axis = NormalizeAxis(node.attributes.Int("axis", 0), shape.rank());
    if (!axis.ok()) return std::nullopt;
    Cut cut;
    cut.axis = *axis;
    cut.sizes = SizesOf(node, shape.dim(*axis));
    if (cut.sizes.empty()) return std::nullopt;
    const bool has_split = node.inputs.size() > 1 && node.inputs[1].valid();
    cut.drops_axis = !has_split && node.attributes.Int("keepdims", 1) == 0;
    Elements elements;
    for (size_t i = 0; i < cut.sizes.size(); ++i) {
      elements.push_back({kNoValue, node.id, static_cast<int64_t>(i)});
    }
    cuts_[node.id] = std::move(cut);
    return elements;
  }

  // ---- Nodes that read them.

  // All pieces, as one Split makes them.
  absl::Status MakePieces(const Node& node, Cut& cut) {
    GraphBuilder builder = BuilderFor(graph_, node);
    const ValueId whole = Now(node.inputs[0]);
    const Attributes axis = {{"axis", cut.axis}};
    cut.pieces = builder.Ops("", "Split", {whole, builder.Ints(cut.sizes)}, axis,
                             std::vector<bool>(cut.sizes.size(), true));
    for (ValueId& piece : cut.pieces) {
      if (cut.drops_axis) piece = builder.Op("Squeeze", {piece, builder.Ints({cut.axis})});
    }
    return builder.status();
  }

  absl::StatusOr<ValueId> TensorOf(const Element& element) {
    if (element.tensor.valid()) return element.tensor;
    Cut& cut = cuts_.at(element.split);
    if (cut.pieces.empty()) WEFT_RETURN_IF_ERROR(MakePieces(graph_.node(element.split), cut));
    return cut.pieces[static_cast<size_t>(element.piece)];
  }

  void ReplaceBy(const Node& node, ValueId value) {
    replacement_[node.outputs[0].value] = value;
    replaced_.push_back(node.id);
  }

  absl::Status VisitAt(const Node& node) {
    const std::optional<Elements> elements = KnownElements(node.inputs[0]);
    if (!elements.has_value()) return absl::OkStatus();
    const auto count = static_cast<int64_t>(elements->size());
    const int64_t position = PositionOf(node, 1, count, -1);
    if (position < 0 || position >= count) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const ValueId tensor,
                          TensorOf((*elements)[static_cast<size_t>(position)]));
    ReplaceBy(node, tensor);
    return absl::OkStatus();
  }

  absl::Status VisitLength(const Node& node) {
    const std::optional<Elements> elements = KnownElements(node.inputs[0]);
    if (!elements.has_value()) return absl::OkStatus();
    GraphBuilder builder = BuilderFor(graph_, node);
    ReplaceBy(node,
              builder.Constant(Tensor::Scalar<int64_t>(static_cast<int64_t>(elements->size()))));
    return builder.status();
  }

  absl::Status VisitConcat(const Node& node) {
    const std::optional<Elements> elements = KnownElements(node.inputs[0]);
    if (!elements.has_value() || elements->empty()) return absl::OkStatus();
    const bool stacks = node.attributes.Int("new_axis", 0) != 0;
    const auto count = static_cast<int64_t>(elements->size());
    if (!MayDo(count * (stacks ? kNodeWork : 1))) return absl::OkStatus();
    GraphBuilder builder = BuilderFor(graph_, node);
    const int64_t axis = node.attributes.Int("axis", 0);
    std::vector<ValueId> parts;
    for (const Element& element : *elements) {
      WEFT_ASSIGN_OR_RETURN(ValueId part, TensorOf(element));
      if (stacks) {
        part = builder.Op("Unsqueeze", {part, builder.Ints({axis})});
      }
      parts.push_back(part);
    }
    ReplaceBy(node, builder.Op("Concat", std::move(parts), {{"axis", axis}}));
    return builder.status();
  }

  // ---- The end.

  // An output of the graph keeps its name: it gets a node of its own.
  void KeepOutputNames() {
    std::vector<ValueId> outputs = graph_.outputs();
    for (ValueId& output : outputs) {
      const bool is_replaced = output.value < static_cast<int32_t>(replacement_.size()) &&
                               replacement_[output.value].valid();
      if (!is_replaced) continue;
      const std::string name = graph_.value(output).name;
      GraphBuilder builder = BuilderFor(graph_, graph_.node(graph_.value(output).producer));
      const ValueId copy = builder.Op("Identity", {Now(output)});
      graph_.RenameValue(output, absl::StrCat(name, "/sequence"));
      graph_.RenameValue(copy, name);
      output = copy;
    }
    graph_.SetOutputs(std::move(outputs));
  }

  void RemoveUnread() {
    std::vector<int> readers(graph_.value_capacity());
    for (const NodeId id : graph_.node_ids()) {
      for (const ValueId input : graph_.node(id).inputs) {
        if (input.valid()) ++readers[input.value];
      }
    }
    for (const ValueId output : graph_.outputs()) ++readers[output.value];
    for (auto id = sequence_nodes_.rbegin(); id != sequence_nodes_.rend(); ++id) {
      const Node& node = graph_.node(*id);
      if (readers[node.outputs[0].value] > 0) continue;
      for (const ValueId input : node.inputs) {
        if (input.valid()) --readers[input.value];
      }
      graph_.RemoveNode(*id);
    }
  }

  Graph& graph_;
  int64_t& work_;
  std::map<ValueId, Elements> known_;
  std::map<NodeId, Cut> cuts_;
  std::vector<NodeId> sequence_nodes_;  // of known sequences, producers first
  std::vector<ValueId> replacement_;    // by ValueId
  std::vector<NodeId> replaced_;
};

}  // namespace

absl::StatusOr<int> ResolveSequences(Graph& graph, int64_t& work) {
  return SequenceResolver(graph, work).Run();
}

}  // namespace weft
