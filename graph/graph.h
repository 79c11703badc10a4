// Graph: the computation in static single assignment form. One type from import to partition.
//
// Invariants, checked by graph/verifier.h under these numbers:
//  1. Every node input is kNoValue or a value of this graph (a subgraph: or of an enclosing one).
//  2. Every value has exactly one definition: graph input, variable, constant or one node's output.
//  3. The graph is acyclic.
//  4. Names of nodes are unique and not empty; names of values are unique and not empty.
//  5. Inputs, outputs and attributes of a node with a schema fit it (count, presence, type).
//  6. Every graph output is a value of the graph.
//  7. Types agree: a value's dtype is what the producer's shape function says, when known.
//  8. A variable has at most one update; its value has the variable's dtype and shape.
//  9. A backward or update node names the forward node it comes from, unless it belongs to the step
//     itself (loss scale, accumulation, collectives).
// 10. A micro-batch value reaches the step region (Phase::kUpdate) only through Accumulate.
// 11. In a partitioned graph every shape is concrete.
#ifndef WEFT_GRAPH_GRAPH_H_
#define WEFT_GRAPH_GRAPH_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "graph/attribute.h"
#include "graph/ids.h"
#include "tensor/shape.h"
#include "tensor/value.h"

namespace weft {

class OpSchema;

// The domain of ONNX's own operators is "" (files may also write "ai.onnx"); ours is this.
inline constexpr std::string_view kWeftDomain = "ai.weft";

// The static type of an edge: kind, element type and shape, as far as inference knows them.
struct ValueType {
  ValueKind kind = ValueKind::kTensor;
  DType dtype = DType::kInvalid;  // of the tensor, or of the elements of a sequence or optional
  SymbolicShape shape;            // likewise
  // What a sequence or optional holds; of what lies deeper, only dtype and shape are known.
  ValueKind element = ValueKind::kTensor;
  std::string ToString() const;  // "float32[N,10]"
  friend bool operator==(const ValueType&, const ValueType&) = default;
};

// What part of a training step a node belongs to. Forward and backward nodes run once per
// micro-batch, update nodes once per step. `kBegin` runs once per step, before the first
// micro-batch (sending variables to other stages).
enum class Phase : uint8_t { kForward, kBackward, kUpdate, kBegin };
std::string_view PhaseName(Phase phase);  // "forward", ...

// Where a node or value comes from; kept through all passes.
struct Origin {
  std::string forward_node;  // name of the imported node this one exists for
  // The imported value this one computes, or computes the gradient of (`is_gradient`).
  std::string logical_value;
  bool is_gradient = false;
  friend bool operator==(const Origin&, const Origin&) = default;
};

// One operation: an op, its attributes and its operands. Owned by its Graph; ids are stable until
// Graph::Compact.
struct Node {
  NodeId id;
  std::string name;
  std::string domain;  // "" for ONNX's own
  std::string op;
  // Null for an op that no schema is registered for: it can be inspected and exported, not run.
  const OpSchema* schema = nullptr;
  Attributes attributes;
  std::vector<ValueId> inputs;   // kNoValue = omitted
  std::vector<ValueId> outputs;  // kNoValue = not wanted
  Phase phase = Phase::kForward;
  StageId stage;  // none before staging
  Origin origin;
};

// What is true of a node's operands, whoever looks at it.
class NodeOperands {
 public:
  virtual ~NodeOperands() = default;
  virtual const Node& node() const = 0;
  const Attributes& attributes() const { return node().attributes; }
  int num_inputs() const { return static_cast<int>(node().inputs.size()); }
  int num_outputs() const { return static_cast<int>(node().outputs.size()); }
  bool HasInput(int i) const { return i < num_inputs() && node().inputs[i].valid(); }
  bool HasOutput(int i) const { return i < num_outputs() && node().outputs[i].valid(); }
};

// What defines a value (invariant 2).
enum class ValueSource : uint8_t { kInput, kVariable, kConstant, kNode };

// In a partition: where a shard lies in its global tensor. Kernels whose results depend on it
// (means, random numbers) get it as OperandSlice.
struct ShardSlice {
  Shape global_shape;
  std::vector<int64_t> offset;  // of the shard's first element, per axis
  friend bool operator==(const ShardSlice&, const ShardSlice&) = default;
};

// One edge. (The run-time object is `Value` in tensor/value.h.)
struct ValueDef {
  ValueId id;
  std::string name;
  ValueType type;
  ValueSource source = ValueSource::kInput;
  NodeId producer;  // kNode only
  int output_index = 0;
  Tensor constant;  // kConstant only
  // What inference knows of the elements of a 0- or 1-D integer node output, as dimensions (an
  // unknown `Dim()` where it does not know one); empty = nothing. Constants speak for themselves.
  std::optional<std::vector<Dim>> elements;
  // Unset: the value is not sharded.
  std::optional<ShardSlice> placement;
  Origin origin;
};

// How a graph input is fed.
enum class InputRole : uint8_t {
  kData,  // per sample: axis 0 is the sample; differs per micro-batch
  kStep,  // one value per step (learning rate, step number, loss scale)
};

// State that lives across steps: a parameter, an optimizer moment, a running statistic.
struct Variable {
  std::string name;
  ValueId value;  // its value at the start of the step
  // Zeros when not valid. Never sent with a partition.
  Tensor initial;
  bool trainable = false;
  // Optimizer state names the parameter it belongs to (and follows its sharding); else empty.
  std::string slot_of;
  // What the variable becomes at the end of the step; kNoValue = it never changes.
  ValueId update;
  // What people may call it besides: by its reader, by its module (patterns of flags fit any).
  // Stays in this process: it is never sent with a partition.
  std::vector<std::string> other_names = {};
  // The one of these that messages use; empty: its own name says enough.
  std::string shown_name = "";
};

// Owns nodes and values. Ids are dense and stable: removal leaves a hole until Compact. Movable;
// Clone is deep but shares tensors. Thread-compatible.
class Graph {
 public:
  Graph() = default;
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;
  Graph Clone() const;

  std::string name;
  // Operator set versions the model was written for, by domain; kept for the exporter.
  std::map<std::string, int64_t> opsets;

  // -- Building. Names that are empty or taken get a unique suffix; the resulting name counts.
  ValueId AddInput(const std::string& name, ValueType type, InputRole role = InputRole::kData);
  ValueId AddConstant(const std::string& name, Tensor tensor);
  // `initial` may be invalid (zeros of `type`, which must then be concrete).
  ValueId AddVariable(const std::string& name, ValueType type, Tensor initial, bool trainable);
  struct NodeSpec {
    std::string name;
    std::string domain;
    std::string op;
    Attributes attributes;
    std::vector<ValueId> inputs;
    // One name per output; "" as ONNX's "not wanted" gives kNoValue when `keep_empty_outputs`, else
    // a made-up name.
    std::vector<std::string> outputs;
    bool keep_empty_outputs = false;
    Phase phase = Phase::kForward;
    StageId stage;
    Origin origin;
  };
  // Looks the schema up in the global registry. The outputs' types are set by inference, later.
  NodeId AddNode(NodeSpec spec);
  // Asks for output `index` of a node that did not want it; returns its value (the existing one if
  // it was wanted already). The type is set by inference, later.
  ValueId AddNodeOutput(NodeId node, int index, const std::string& name);
  void AddOutput(ValueId value) { outputs_.push_back(value); }
  void SetOutputs(std::vector<ValueId> outputs) { outputs_ = std::move(outputs); }
  void SetVariableUpdate(const std::string& variable, ValueId value);

  // -- Editing.
  void RemoveNode(NodeId id);  // its outputs become undefined: replace their uses first
  // Every use (node inputs, graph outputs, updates) of `from` becomes `to`.
  void ReplaceUses(ValueId from, ValueId to);
  // Many at once, in one walk over the graph: every use of value v becomes `replacement[v.value]`;
  // kNoValue or beyond the end = stays. Chains (a by b, b by c) are followed; they must not be
  // circular.
  void ReplaceUses(const std::vector<ValueId>& replacement);
  void RemoveInput(ValueId input);
  void RemoveVariable(const std::string& name);
  void RemoveConstant(ValueId constant);  // which nothing uses
  // The node's output `index`, which nothing uses, becomes "not wanted".
  void DropOutput(NodeId node, int index);
  // Turns an input, variable or node output into a constant (its producer loses the output).
  void MakeConstant(ValueId value, Tensor tensor);
  void RenameValue(ValueId value, const std::string& name);

  // -- Reading. Ids handed out by this graph are always valid arguments.
  Node& node(NodeId id) { return *nodes_[id.value]; }
  const Node& node(NodeId id) const { return *nodes_[id.value]; }
  ValueDef& value(ValueId id) { return *values_[id.value]; }
  const ValueDef& value(ValueId id) const { return *values_[id.value]; }
  // Ids of live nodes / values in id order.
  std::vector<NodeId> node_ids() const;
  std::vector<ValueId> value_ids() const;
  int num_nodes() const { return live_nodes_; }
  int node_capacity() const { return static_cast<int>(nodes_.size()); }
  int value_capacity() const { return static_cast<int>(values_.size()); }
  bool is_live(NodeId id) const { return nodes_[id.value] != nullptr; }
  bool is_live(ValueId id) const { return values_[id.value] != nullptr; }

  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<ValueId>& outputs() const { return outputs_; }
  InputRole input_role(ValueId input) const;
  const std::vector<Variable>& variables() const { return variables_; }
  std::vector<Variable>& mutable_variables() { return variables_; }
  const Variable* FindVariable(const std::string& name) const;
  // The variable that `value` is the value of, or null.
  const Variable* VariableOf(ValueId value) const;

  std::optional<ValueId> FindValue(const std::string& name) const;
  std::optional<NodeId> FindNode(const std::string& name) const;
  std::string UniqueValueName(const std::string& hint) const;

  struct Use {
    NodeId node;
    int input_index = 0;
  };
  // Uses by nodes, in (node, index) order, of every value; index by ValueId. O(graph).
  std::vector<std::vector<Use>> BuildUses() const;
  // Nodes such that producers come first; among ready nodes the smallest id first. InvalidArgument
  // naming a node on a cycle.
  absl::StatusOr<std::vector<NodeId>> TopologicalOrder() const;

  // Renumbers: node ids become 0..n-1 in topological order, value ids become dense in their old
  // order, unused constants vanish. Ids and references from before are void.
  absl::Status Compact();

  // One line per input, variable, constant, node, update and output, stable; for tests, dumps and
  // bug reports. Nodes come in topological order (in id order when there is a cycle):
  //   input %x: float32[N,784]
  //   variable %w: float32[10,784] trainable
  //   constant %b = float32[10]{0, 0, 0, 0, 0, 0, 0, 0, ...}
  //   %y: float32[N,10] = Gemm(%x, %w, %b) {transB=1}  # fc1
  //   update %w <- %w_new
  //   output %y
  // "_" stands for an omitted input or output; a phase other than forward and a stage follow the
  // node's name: "# sgd [update, stage 1]".
  std::string DebugString() const;

 private:
  std::string UniqueNodeName(const std::string& hint) const;
  ValueId NewValue(const std::string& name, ValueSource source);
  void RemoveValue(ValueId id);
  void Renumber(const std::vector<NodeId>& new_node, const std::vector<ValueId>& new_value);
  // Index into variables_, or -1.
  int VariableIndex(ValueId value) const;

  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<ValueDef>> values_;
  int live_nodes_ = 0;
  std::vector<ValueId> inputs_;
  std::map<ValueId, InputRole> input_roles_;
  std::vector<ValueId> outputs_;
  std::vector<Variable> variables_;
  // Where in variables_ to look first; a hint, since variables_ may be edited by its users.
  absl::flat_hash_map<ValueId, int> variable_hints_;
  absl::flat_hash_map<std::string, ValueId> value_by_name_;
  absl::flat_hash_map<std::string, NodeId> node_by_name_;
};

}  // namespace weft

#endif  // WEFT_GRAPH_GRAPH_H_
