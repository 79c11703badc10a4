#include "executor/lowering/value_binding.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "executor/lowering/node_context.h"
#include "platform/status_macros.h"

namespace weft {

bool IsUnplanned(const ValueType& type) {
  return type.kind != ValueKind::kTensor || type.dtype == DType::kInvalid ||
         type.dtype == DType::kString || !type.shape.ToConcrete().has_value();
}

ValueBinding::ValueBinding(const StepSchedule& schedule, const Partition& partition,
                           const ExecutorEnvironment& environment, LoweringProgram& program)
    : schedule_(schedule),
      partition_(partition),
      environment_(environment),
      program_(program),
      resident_(environment, program.step),
      slots_(schedule.scopes.size()) {
  for (const StepScope& scope : schedule.scopes) {
    buffers_.emplace_back(scope.graph->value_capacity(), kNoBuffer);
  }
}

absl::Status ValueBinding::Begin() {
  for (const FeedInput& feed : partition_.inputs) {
    feeds_[feed.name] = static_cast<int>(program_.step.feeds.size());
    program_.step.feeds.push_back(feed);
    if (feed.role == InputRole::kStep) WEFT_RETURN_IF_ERROR(resident_.AddScalar(feed));
  }
  return AddSums();
}

absl::Status ValueBinding::AddSums() {
  const Graph& end = partition_.end;
  for (const Accumulation& accumulation : partition_.accumulations) {
    for (const Accumulation::Block& block : accumulation.blocks) {
      const std::optional<ValueId> input = end.FindValue(block.end_input);
      if (!input) {
        return absl::InternalError(absl::StrCat("accumulation block '", block.end_input,
                                                "' is not an input of the end graph"));
      }
      WEFT_ASSIGN_OR_RETURN(const int64_t bytes, ValueBytes(end, *input));
      const ValueType& type = end.value(*input).type;
      sums_[block.end_input] = static_cast<int>(program_.sums.size());
      program_.sums.push_back({block.end_input, program_.step.buffers.AddReserved(bytes),
                               type.dtype, type.shape.ToConcrete()->num_elements(), block.first,
                               block.last, accumulation.ordered_tree});
    }
  }
  return absl::OkStatus();
}

absl::Status ValueBinding::BindBeginOutputs() {
  for (const ValueId output : partition_.begin.outputs()) {
    WEFT_ASSIGN_OR_RETURN(const BufferIndex buffer, BufferOf(StepSchedule::kBegin, output));
    begin_outputs_[partition_.begin.value(output).name] = buffer;
  }
  return absl::OkStatus();
}

void ValueBinding::Emit(int scope, decltype(LoweredInstruction::work) work) {
  program_.step.compute.push_back({std::move(work), -1, schedule_.scopes[scope].micro_batch});
}

absl::StatusOr<BufferIndex> ValueBinding::BufferOf(int scope, ValueId id) {
  BufferIndex& buffer = buffers_[scope][id.value];
  if (buffer != kNoBuffer) return buffer;
  const Graph& graph = *schedule_.scopes[scope].graph;
  const ValueDef& value = graph.value(id);
  switch (value.source) {
    case ValueSource::kConstant: {
      WEFT_ASSIGN_OR_RETURN(buffer, resident_.OfConstant(value.constant));
      return buffer;
    }
    case ValueSource::kVariable: {
      WEFT_ASSIGN_OR_RETURN(buffer, resident_.OfVariable(graph, value));
      return buffer;
    }
    case ValueSource::kInput: {
      WEFT_ASSIGN_OR_RETURN(buffer, BufferOfInput(scope, value));
      return buffer;
    }
    case ValueSource::kNode:
      if (SlotOf(scope, id) != kNoSlot) return BufferForSlot(scope, value);
      break;
  }
  return absl::InternalError(absl::StrCat("value '", value.name,
                                          "' is used before the node that makes it has run; the "
                                          "action list does not fit the graphs"));
}

absl::StatusOr<BufferIndex> ValueBinding::BufferOfInput(int scope, const ValueDef& value) {
  if (const auto begin = begin_outputs_.find(value.name); begin != begin_outputs_.end()) {
    return begin->second;
  }
  if (scope == StepSchedule::kEnd) {
    if (const auto sum = sums_.find(value.name); sum != sums_.end()) {
      return program_.sums[sum->second].buffer;
    }
  }
  const auto feed = feeds_.find(value.name);
  if (feed == feeds_.end()) {
    return absl::InternalError(absl::StrCat(
        "graph input '", value.name,
        "' is neither fed, nor an output of the begin graph, nor an accumulation block"));
  }
  if (program_.step.feeds[feed->second].role == InputRole::kStep) {
    return resident_.OfScalar(value.name);
  }
  return FillFrom(scope, value, feed->second);
}

absl::StatusOr<BufferIndex> ValueBinding::FillFrom(int scope, const ValueDef& value, int feed) {
  if (environment_.input == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("data input '", value.name, "' has no input source"));
  }
  const StepScope& at = schedule_.scopes[scope];
  WEFT_ASSIGN_OR_RETURN(const int64_t bytes, ValueBytes(*at.graph, value.id));
  const BufferIndex buffer = program_.step.buffers.AddArena(bytes);
  Emit(scope, lowered::Fill{feed, buffer, at.rows != nullptr ? at.rows->first : 0,
                            at.rows != nullptr ? at.rows->samples : 1});
  return buffer;
}

absl::StatusOr<BufferIndex> ValueBinding::NewOutput(int scope, ValueId id) {
  WEFT_ASSIGN_OR_RETURN(const int64_t bytes, ValueBytes(*schedule_.scopes[scope].graph, id));
  return buffers_[scope][id.value] = program_.step.buffers.AddArena(bytes);
}

SlotIndex ValueBinding::SlotOf(int scope, ValueId id) const {
  return slots_[scope].empty() ? kNoSlot : slots_[scope][id.value];
}

SlotIndex ValueBinding::NewSlot(int scope, ValueId id, int info, Value initial) {
  std::vector<SlotIndex>& slots = slots_[scope];
  if (slots.empty()) slots.assign(schedule_.scopes[scope].graph->value_capacity(), kNoSlot);
  const auto slot = static_cast<SlotIndex>(program_.step.slots.size());
  program_.step.slots.push_back(std::move(initial));
  makers_.push_back(info);
  return slots[id.value] = slot;
}

// For a reader that works on buffers.
absl::StatusOr<BufferIndex> ValueBinding::BufferForSlot(int scope, const ValueDef& value) {
  if (IsUnplanned(value.type)) {
    return absl::InternalError(absl::StrCat("value '", value.name, "' of type ",
                                            value.type.ToString(), " is wanted in a buffer"));
  }
  WEFT_ASSIGN_OR_RETURN(const BufferIndex buffer, NewOutput(scope, value.id));
  const SlotIndex slot = SlotOf(scope, value.id);
  program_.loads[buffer] = {
      lowered::Load{slot, value.type.dtype, *value.type.shape.ToConcrete(), buffer, {}},
      makers_[slot], schedule_.scopes[scope].micro_batch};
  return buffer;
}

absl::StatusOr<SlotIndex> ValueBinding::TakeInput(int scope, const ValueDef& value) {
  const auto feed = feeds_.find(value.name);
  if (feed == feeds_.end() || environment_.input == nullptr) {
    return absl::UnimplementedError(absl::StrCat("graph input '", value.name, "' is ",
                                                 value.type.ToString(),
                                                 ", which nothing feeds to this graph"));
  }
  const SlotIndex slot = NewSlot(scope, value.id, -1);
  Emit(scope, lowered::TakeValue{feed->second, slot, {}});
  return slot;
}

absl::StatusOr<ValueOperand> ValueBinding::OperandOf(int scope, ValueId id,
                                                     std::vector<BufferIndex>& inputs) {
  ValueOperand operand;
  if (!id.valid()) return operand;
  const ValueDef& value = schedule_.scopes[scope].graph->value(id);
  operand.slot = SlotOf(scope, id);
  if (operand.slot != kNoSlot) return operand;
  if (value.source == ValueSource::kConstant) {
    operand.slot = NewSlot(scope, id, -1, value.constant);
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

}  // namespace weft
