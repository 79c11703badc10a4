// The part of LoweringState for what is known only at run time: values whose kind or size no buffer
// of the arena can be planned for, and the nodes that make or read them.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "executor/lowering/lowering_state.h"
#include "executor/lowering/node_context.h"
#include "graph/op_schema.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Whether a value of this type has no place in the arena.
bool IsUnplanned(const ValueType& type) {
  return type.kind != ValueKind::kTensor || type.dtype == DType::kInvalid ||
         type.dtype == DType::kString || !type.shape.ToConcrete().has_value();
}

bool HasBodies(const Node& node) {
  const auto& items = node.attributes.items();
  return std::any_of(items.begin(), items.end(), [](const auto& item) {
    return std::holds_alternative<std::shared_ptr<Graph>>(item.second);
  });
}

}  // namespace

bool LoweringState::NeedsValues(const Graph& graph, const Node& node) const {
  if (node.schema->op_class() != OpClass::kCompute) return false;
  const auto is_unplanned = [&graph](ValueId id) {
    return id.valid() && IsUnplanned(graph.value(id).type);
  };
  if (std::any_of(node.inputs.begin(), node.inputs.end(), is_unplanned) ||
      std::any_of(node.outputs.begin(), node.outputs.end(), is_unplanned)) {
    return true;
  }
  for (const int i : node.schema->value_inputs()) {
    if (i >= static_cast<int>(node.inputs.size()) || !node.inputs[i].valid()) continue;
    if (graph.value(node.inputs[i]).source != ValueSource::kConstant) return true;
  }
  if (!node.schema->aliases().empty()) return false;
  const KernelRegistry& kernels =
      environment_.kernels != nullptr ? *environment_.kernels : KernelRegistry::Global();
  const DeviceKind device = environment_.device->info().kind;
  if (HasBodies(node)) return true;
  return kernels.Find(node.domain, node.op, device) == nullptr && RunsOnValues(node);
}

SlotIndex LoweringState::SlotOf(const Scope& scope, ValueId value) const {
  return scope.slots.empty() ? kNoSlot : scope.slots[value.value];
}

SlotIndex LoweringState::NewSlot(Scope& scope, ValueId value, Value initial) {
  if (scope.slots.empty()) scope.slots.assign(scope.graph->value_capacity(), kNoSlot);
  const auto slot = static_cast<SlotIndex>(step_.slots.size());
  step_.slots.push_back(std::move(initial));
  scope.slots[value.value] = slot;
  return slot;
}

absl::StatusOr<SlotIndex> LoweringState::TakeInput(Scope& scope, const ValueDef& value) {
  const auto feed = feeds_.find(value.name);
  if (feed == feeds_.end() || environment_.input == nullptr) {
    return absl::UnimplementedError(absl::StrCat("graph input '", value.name, "' is ",
                                                 value.type.ToString(),
                                                 ", which nothing feeds to this graph"));
  }
  const SlotIndex slot = NewSlot(scope, value.id);
  LoweredInstruction& take = Emit(OpCode::kTakeValue, nullptr, scope);
  take.feed = feed->second;
  take.results = {slot};
  return slot;
}

absl::StatusOr<ValueOperand> LoweringState::OperandOf(Scope& scope, ValueId id,
                                                      std::vector<BufferIndex>& inputs) {
  ValueOperand operand;
  if (!id.valid()) return operand;
  const ValueDef& value = scope.graph->value(id);
  operand.slot = SlotOf(scope, id);
  if (operand.slot != kNoSlot) return operand;
  if (value.source == ValueSource::kConstant) {
    operand.slot = NewSlot(scope, id, value.constant);
    return operand;
  }
  if (value.source == ValueSource::kInput && IsUnplanned(value.type)) {
    WEFT_ASSIGN_OR_RETURN(operand.slot, TakeInput(scope, value));
    return operand;
  }
  WEFT_ASSIGN_OR_RETURN(const BufferIndex buffer, BufferOf(scope, id));
  operand.input = static_cast<int>(inputs.size());
  operand.dtype = value.type.dtype;
  operand.shape = *value.type.shape.ToConcrete();
  inputs.push_back(buffer);
  return operand;
}

absl::Status LoweringState::LowerValues(Scope& scope, const Node& node) {
  std::vector<BufferIndex> inputs;
  std::vector<ValueOperand> operands;
  for (const ValueId input : node.inputs) {
    WEFT_ASSIGN_OR_RETURN(operands.emplace_back(), OperandOf(scope, input, inputs));
  }
  WEFT_RETURN_IF_ERROR(EmitWaits(inputs));
  step_.nodes.push_back(std::make_unique<Node>(node));
  ValueNode::Settings settings;
  settings.threads = partition_.threads;
  settings.strict = partition_.strict;
  settings.bodies = environment_.bodies;
  step_.value_nodes.push_back(std::make_unique<ValueNode>(*step_.nodes.back(), settings));
  std::vector<SlotIndex> results;
  for (const ValueId output : node.outputs) {
    results.push_back(output.valid() ? NewSlot(scope, output) : kNoSlot);
  }
  LoweredInstruction& instruction = Emit(OpCode::kValues, &node, scope);
  instruction.value_node = step_.value_nodes.back().get();
  instruction.inputs = std::move(inputs);
  instruction.operands = std::move(operands);
  instruction.results = std::move(results);
  return absl::OkStatus();
}

// For a reader that works on buffers.
absl::StatusOr<BufferIndex> LoweringState::LoadFromSlot(Scope& scope, ValueId id) {
  const ValueDef& value = scope.graph->value(id);
  if (IsUnplanned(value.type)) {
    return absl::InternalError(absl::StrCat("value '", value.name, "' of type ",
                                            value.type.ToString(), " is wanted in a buffer"));
  }
  WEFT_ASSIGN_OR_RETURN(const BufferIndex buffer, NewOutput(scope, id));
  LoweredInstruction& load = Emit(OpCode::kLoad, &scope.graph->node(value.producer), scope);
  load.operands = {{SlotOf(scope, id), -1, value.type.dtype, *value.type.shape.ToConcrete()}};
  load.outputs = {buffer};
  return buffer;
}

absl::StatusOr<bool> LoweringState::BindValueReport(Scope& scope, const std::string& name,
                                                    ValueId id) {
  const ValueDef& value = scope.graph->value(id);
  const bool unplanned = IsUnplanned(value.type);
  // A training step's reports are tensors, whatever made them.
  const bool in_slot = SlotOf(scope, id) != kNoSlot && value.source == ValueSource::kNode;
  if (!unplanned && (partition_.training || !in_slot)) return false;
  std::vector<BufferIndex> inputs;
  WEFT_ASSIGN_OR_RETURN(const ValueOperand operand, OperandOf(scope, id, inputs));
  step_.reports.push_back({name, kNoBuffer, DType::kInvalid, Shape{}, operand.slot});
  return true;
}

// A slot is emptied after the last instruction that uses it, unless it is a constant or a report.
void LoweringState::ReleaseSlots() {
  std::vector<bool> kept(step_.slots.size());
  for (size_t slot = 0; slot < kept.size(); ++slot) {
    kept[slot] =
        step_.slots[slot].kind() != ValueKind::kTensor || step_.slots[slot].tensor().valid();
  }
  for (const LoweredReport& report : step_.reports) {
    if (report.slot != kNoSlot) kept[report.slot] = true;
  }
  for (auto instruction = step_.compute.rbegin(); instruction != step_.compute.rend();
       ++instruction) {
    const auto release = [&](SlotIndex slot) {
      if (slot == kNoSlot || kept[slot]) return;
      kept[slot] = true;
      instruction->releases.push_back(slot);
    };
    for (const ValueOperand& operand : instruction->operands) release(operand.slot);
    for (const SlotIndex slot : instruction->results) release(slot);
  }
}

}  // namespace weft
