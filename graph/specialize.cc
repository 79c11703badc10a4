// Specialize and ValueInputsOf: from a graph with symbols to one in which every shape is concrete.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/constant_folder.h"
#include "graph/inference.h"
#include "graph/liveness.h"
#include "graph/node_description.h"
#include "graph/node_inference.h"
#include "graph/op_schema.h"
#include "graph/verifier.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Follows `value` back through the nodes that compute it to the graph inputs whose values it
// depends on. Elements that are known from shapes alone end the walk, like constants and variables.
void CollectInputsBehind(const Graph& graph, ValueId value, std::vector<bool>& seen,
                         std::set<ValueId>& inputs) {
  std::vector<ValueId> todo = {value};
  while (!todo.empty()) {
    const ValueId id = todo.back();
    todo.pop_back();
    if (!id.valid() || seen[id.value]) continue;
    seen[id.value] = true;
    const ValueDef& def = graph.value(id);
    if (def.source == ValueSource::kInput) inputs.insert(id);
    if (def.source != ValueSource::kNode || def.elements.has_value()) continue;
    for (const ValueId input : graph.node(def.producer).inputs) todo.push_back(input);
  }
}

std::string QuotedNames(const Graph& graph, const std::vector<ValueId>& values) {
  return absl::StrJoin(values, ", ", [&graph](std::string* out, ValueId id) {
    absl::StrAppend(out, "'", graph.value(id).name, "'");
  });
}

// Symbols get their sizes from the inputs' shapes.
class SymbolBinder {
 public:
  explicit SymbolBinder(Graph& graph) : graph_(graph) {}

  // Gives the input this shape. InvalidArgument when it is not one that the graph declares.
  absl::Status BindInput(ValueId input, const Shape& shape);
  // Puts the sizes into the types of all inputs, variables and nodes' outputs. InvalidArgument when
  // one of an input or variable is then unknown, and may not be.
  absl::Status BindOthers(bool allow_unknown);

 private:
  struct Binding {
    int64_t size = 0;
    std::string input;  // that it was first seen in
  };
  absl::Status BindDim(const ValueDef& input, int axis, const Dim& declared, const Shape& shape);

  Graph& graph_;
  std::map<std::string, Binding> bindings_;
};

absl::Status SymbolBinder::BindInput(ValueId input, const Shape& shape) {
  ValueDef& def = graph_.value(input);
  const absl::Status valid = Shape::Create(shape.dims()).status();
  if (!valid.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", def.name, "': ", std::string(valid.message())));
  }
  const SymbolicShape declared = def.type.shape;
  if (declared.has_rank()) {
    if (declared.rank() != shape.rank()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input '", def.name, "' is given the shape ", shape.ToString(), " of rank ", shape.rank(),
          ", but the model declares ", declared.ToString(), " of rank ", declared.rank()));
    }
    for (int axis = 0; axis < shape.rank(); ++axis) {
      WEFT_RETURN_IF_ERROR(BindDim(def, axis, declared.dim(axis), shape));
    }
  }
  def.type.shape = shape;
  return absl::OkStatus();
}

absl::Status SymbolBinder::BindDim(const ValueDef& input, int axis, const Dim& declared,
                                   const Shape& shape) {
  const int64_t size = shape.dim(axis);
  if (declared.is_known() && declared.size() != size) {
    return absl::InvalidArgumentError(absl::StrCat("input '", input.name, "' is given the shape ",
                                                   shape.ToString(), ", but the model declares ",
                                                   input.type.shape.ToString(), ": axis ", axis,
                                                   " must be ", declared.size()));
  }
  if (!declared.is_symbol()) return absl::OkStatus();
  const auto [bound, is_new] = bindings_.try_emplace(declared.symbol(), Binding{size, input.name});
  if (is_new || bound->second.size == size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "dimension '", declared.symbol(), "' is ", bound->second.size, " in input '",
      bound->second.input, "' and ", size, " in axis ", axis, " of input '", input.name,
      "', which is given the shape ", shape.ToString(), "; they must be equal"));
}

absl::Status SymbolBinder::BindOthers(bool allow_unknown) {
  std::map<std::string, int64_t> sizes;
  for (const auto& [symbol, binding] : bindings_) sizes[symbol] = binding.size;
  for (const ValueId id : graph_.value_ids()) {
    ValueDef& def = graph_.value(id);
    if (def.source == ValueSource::kConstant) continue;
    def.type.shape = def.type.shape.Bind(sizes);
    if (def.source == ValueSource::kNode || def.type.kind != ValueKind::kTensor) continue;
    if (allow_unknown || def.type.shape.ToConcrete().has_value()) continue;
    const bool is_input = def.source == ValueSource::kInput;
    return absl::InvalidArgumentError(absl::StrCat(is_input ? "input '" : "variable '", def.name,
                                                   "' has the shape ", def.type.shape.ToString(),
                                                   ", in which not every size is known",
                                                   is_input ? "; give the input's shape" : ""));
  }
  return absl::OkStatus();
}

class Specializer {
 public:
  Specializer(Graph graph, NodeEvaluator& evaluator)
      : graph_(std::move(graph)),
        folder_(graph_, evaluator),
        replacement_(graph_.value_capacity()),
        is_output_(graph_.value_capacity()) {}
  Specializer(const Specializer&) = delete;
  Specializer& operator=(const Specializer&) = delete;

  absl::StatusOr<Graph> Run(const Specialization& specialization);

 private:
  absl::Status BindInputs(const Specialization& specialization);
  absl::StatusOr<ValueId> FindInput(const std::string& name) const;
  absl::Status FixInput(ValueId input, const Tensor& tensor);
  absl::Status VisitNode(NodeId id);
  absl::Status CheckValueInputs(const Node& node) const;
  absl::Status CheckConcrete(const Node& node) const;
  // The uses of outputs that equal inputs become uses of the inputs. True if no output is left.
  bool BypassNoOps(const Node& node);
  void Bypass(const Node& node, ValueId input, ValueId output);

  Graph graph_;
  ConstantFolder folder_;
  bool allow_unknown_ = false;
  std::vector<InferredOutput> scratch_;
  std::vector<ValueId> replacement_;  // by ValueId
  std::vector<bool> is_output_;       // by ValueId: of the graph
};

absl::StatusOr<Graph> Specializer::Run(const Specialization& specialization) {
  allow_unknown_ = specialization.allow_unknown_shapes;
  WEFT_RETURN_IF_ERROR(BindInputs(specialization));
  RemoveDeadCode(graph_);  // what nobody needs shall not be refused
  for (const ValueId id : graph_.outputs()) is_output_[id.value] = true;
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
  for (const NodeId id : order) WEFT_RETURN_IF_ERROR(VisitNode(id));
  graph_.ReplaceUses(replacement_);
  RemoveDeadCode(graph_);
  VerifyOptions options;
  options.concrete_shapes = !allow_unknown_;
  WEFT_RETURN_IF_ERROR(VerifyGraph(graph_, options));
  return std::move(graph_);
}

absl::StatusOr<ValueId> Specializer::FindInput(const std::string& name) const {
  const std::optional<ValueId> id = graph_.FindValue(name);
  if (id.has_value() && graph_.value(*id).source == ValueSource::kInput) return *id;
  return absl::InvalidArgumentError(absl::StrCat("the graph has no input '", name,
                                                 "'; its inputs are ",
                                                 QuotedNames(graph_, graph_.inputs())));
}

absl::Status Specializer::BindInputs(const Specialization& specialization) {
  SymbolBinder binder(graph_);
  for (const auto& [name, shape] : specialization.input_shapes) {
    WEFT_ASSIGN_OR_RETURN(const ValueId input, FindInput(name));
    WEFT_RETURN_IF_ERROR(binder.BindInput(input, shape));
  }
  for (const auto& [name, tensor] : specialization.input_values) {
    WEFT_ASSIGN_OR_RETURN(const ValueId input, FindInput(name));
    WEFT_RETURN_IF_ERROR(binder.BindInput(input, tensor.shape()));
    WEFT_RETURN_IF_ERROR(FixInput(input, tensor));
  }
  return binder.BindOthers(specialization.allow_unknown_shapes);
}

absl::Status Specializer::FixInput(ValueId input, const Tensor& tensor) {
  const ValueDef& def = graph_.value(input);
  if (def.type.dtype != DType::kInvalid && def.type.dtype != tensor.dtype()) {
    return absl::InvalidArgumentError(absl::StrCat("input '", def.name, "' is fixed to ",
                                                   tensor.ToString(), ", but the model declares ",
                                                   def.type.ToString()));
  }
  graph_.MakeConstant(input, tensor);
  return absl::OkStatus();
}

absl::Status Specializer::VisitNode(NodeId id) {
  Node& node = graph_.node(id);
  for (ValueId& input : node.inputs) {
    // Producers were visited before, so their replacements are final.
    if (input.valid() && replacement_[input.value].valid()) input = replacement_[input.value];
  }
  if (node.schema == nullptr) {
    const auto opset = graph_.opsets.find(node.domain);
    const bool is_standard = node.domain.empty() && opset != graph_.opsets.end();
    return absl::UnimplementedError(absl::StrCat(
        DescribeNode(node), ": no op of this name is known",
        is_standard ? absl::StrCat(" (operator set ", opset->second, ")") : "", DidYouMean(node)));
  }
  if (!allow_unknown_) WEFT_RETURN_IF_ERROR(CheckValueInputs(node));
  WEFT_RETURN_IF_ERROR(InferInto(graph_, node, scratch_).status());
  if (BypassNoOps(node)) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const bool folded, folder_.Fold(id));
  return folded ? absl::OkStatus() : CheckConcrete(node);
}

absl::Status Specializer::CheckValueInputs(const Node& node) const {
  for (const int i : node.schema->value_inputs()) {
    if (i >= static_cast<int>(node.inputs.size()) || !node.inputs[i].valid()) continue;
    const ValueId input = node.inputs[i];
    if (graph_.value(input).source == ValueSource::kConstant) continue;
    const FormalParameter* formal = node.schema->FormalInput(i);
    std::string text = absl::StrCat(
        DescribeNode(node), ": the value of input ", i,
        formal == nullptr ? "" : absl::StrCat(" ('", formal->name, "')"),
        " decides a shape but depends on data; it is '", graph_.value(input).name, "'");
    const absl::Status refusal = folder_.RefusalOf(input);
    if (!refusal.ok()) absl::StrAppend(&text, ", and ", std::string(refusal.message()));
    std::vector<bool> seen(graph_.value_capacity());
    std::set<ValueId> inputs;
    CollectInputsBehind(graph_, input, seen, inputs);
    if (!inputs.empty()) {
      absl::StrAppend(&text, "; fix the value of ",
                      QuotedNames(graph_, {inputs.begin(), inputs.end()}));
    }
    return absl::UnimplementedError(text);
  }
  return absl::OkStatus();
}

absl::Status Specializer::CheckConcrete(const Node& node) const {
  for (const ValueId id : node.outputs) {
    if (!id.valid()) continue;
    const ValueDef& output = graph_.value(id);
    if (output.type.kind != ValueKind::kTensor) continue;
    const std::optional<Shape> shape = output.type.shape.ToConcrete();
    if (!shape.has_value() && allow_unknown_) continue;
    if (!shape.has_value()) {
      const absl::Status refusal = folder_.RefusalOf(id);
      return absl::UnimplementedError(
          absl::StrCat(DescribeNode(node), " with inputs ", DescribeInputs(graph_, node),
                       ": the shape of its output '", output.name, "', ", output.type.ToString(),
                       ", depends on data",
                       refusal.ok() ? "" : absl::StrCat(", and ", std::string(refusal.message()))));
    }
    const absl::Status valid = Shape::Create(shape->dims()).status();
    if (!valid.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(DescribeNode(node), ": output '", output.name,
                                                     "': ", std::string(valid.message())));
    }
  }
  return absl::OkStatus();
}

bool Specializer::BypassNoOps(const Node& node) {
  if (node.schema->op_class() != OpClass::kCompute || node.schema->stateful()) return false;
  std::vector<std::pair<int, int>> equal = node.schema->aliases();
  if (node.schema->no_op_when_same_shape()) equal.emplace_back(0, 0);
  for (const auto& [input, output] : equal) {
    if (input >= static_cast<int>(node.inputs.size()) ||
        output >= static_cast<int>(node.outputs.size())) {
      continue;
    }
    Bypass(node, node.inputs[input], node.outputs[output]);
  }
  return !equal.empty() && std::ranges::all_of(node.outputs, [this](ValueId id) {
    return !id.valid() || replacement_[id.value].valid();
  });
}

void Specializer::Bypass(const Node& node, ValueId input, ValueId output) {
  if (!input.valid() || !output.valid() || replacement_[output.value].valid()) return;
  const ValueDef& from = graph_.value(input);
  const ValueDef& to = graph_.value(output);
  const std::optional<Shape> shape = from.type.shape.ToConcrete();
  if (from.type != to.type || !shape.has_value()) return;
  // A step node stands between a micro-batch value and the step (invariant 10).
  const bool is_node = from.source == ValueSource::kNode;
  if (is_node && graph_.node(from.producer).phase != node.phase && node.phase != Phase::kBackward) {
    return;
  }
  if (is_output_[output.value]) {
    // The output keeps its name: its new value takes it over, unless that has a name to keep.
    if (!is_node || is_output_[input.value]) return;
    const std::string name = to.name;
    graph_.RenameValue(output, absl::StrCat(name, "_bypassed"));
    graph_.RenameValue(input, name);
    is_output_[input.value] = true;
  }
  replacement_[output.value] = input;
}

// Unknown dimensions of inputs become symbols, so that inference carries them through Shape.
void NameUnknownDims(Graph& graph) {
  for (const ValueId input : graph.inputs()) {
    ValueDef& def = graph.value(input);
    if (!def.type.shape.has_rank()) continue;
    std::vector<Dim> dims = def.type.shape.dims();
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      if (dims[axis].is_known() || dims[axis].is_symbol()) continue;
      dims[axis] = Dim::Symbol(absl::StrCat("axis ", axis, " of ", def.name));
    }
    def.type.shape = SymbolicShape(std::move(dims));
  }
}

}  // namespace

absl::StatusOr<Graph> Specialize(const Graph& graph, const Specialization& specialization,
                                 NodeEvaluator& evaluator) {
  return Specializer(graph.Clone(), evaluator).Run(specialization);
}

std::vector<std::string> ValueInputsOf(const Graph& graph) {
  Graph inferred = graph.Clone();
  RemoveDeadCode(inferred);
  NameUnknownDims(inferred);
  const absl::StatusOr<std::vector<NodeId>> order = inferred.TopologicalOrder();
  if (!order.ok()) return {};
  std::vector<bool> seen(inferred.value_capacity());
  std::set<ValueId> found;
  for (const NodeId id : *order) {
    // Where a shape function refuses, the values behind count as data; Specialize will say why.
    InferNode(inferred, id).IgnoreError();
    const Node& node = inferred.node(id);
    if (node.schema == nullptr) continue;
    for (const int i : node.schema->value_inputs()) {
      if (i < static_cast<int>(node.inputs.size())) {
        CollectInputsBehind(inferred, node.inputs[i], seen, found);
      }
    }
  }
  std::vector<std::string> names;
  for (const ValueId input : graph.inputs()) {
    if (found.contains(input)) names.push_back(graph.value(input).name);
  }
  return names;
}

}  // namespace weft
