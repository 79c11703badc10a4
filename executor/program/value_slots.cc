#include "executor/program/value_slots.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "executor/program/device_timeout.h"
#include "ops/value_node.h"
#include "platform/status_macros.h"
#include "tensor/host_memory.h"

namespace weft {
namespace {

// The value, with copies of what lies in memory that was only borrowed to its node.
absl::StatusOr<Value> Owned(Value value, const std::vector<const Buffer*>& borrowed) {
  if (borrowed.empty()) return value;
  switch (value.kind()) {
    case ValueKind::kTensor: {
      const Tensor& tensor = value.tensor();
      if (std::find(borrowed.begin(), borrowed.end(), tensor.buffer().get()) == borrowed.end()) {
        return value;
      }
      WEFT_ASSIGN_OR_RETURN(Tensor copy, tensor.Clone());
      return Value(std::move(copy));
    }
    case ValueKind::kSequence: {
      std::vector<Value> elements;
      for (const Value& element : value.elements()) {
        WEFT_ASSIGN_OR_RETURN(elements.emplace_back(), Owned(element, borrowed));
      }
      return Value::Sequence(std::move(elements));
    }
    case ValueKind::kOptional: {
      if (!value.has_value()) return value;
      WEFT_ASSIGN_OR_RETURN(Value element, Owned(value.value(), borrowed));
      return Value::Optional(std::make_shared<const Value>(std::move(element)));
    }
  }
  return value;
}

}  // namespace

void ValueSlots::Reset(const std::vector<Value>& initial) {
  if (!initial.empty() || !slots_.empty()) slots_ = initial;
  loaded_.clear();
}

void ValueSlots::Release(const std::vector<SlotIndex>& slots) {
  for (const SlotIndex slot : slots) slots_[slot] = Value();
}

absl::Status ValueSlots::Take(const bound::TakeValue& take, const FeedInput& feed) {
  WEFT_ASSIGN_OR_RETURN(slots_[take.what->slot], input_->TakeValue(feed));
  Release(take.what->releases);
  return absl::OkStatus();
}

absl::Status ValueSlots::Load(const bound::Load& load, Stream& stream) {
  const lowered::Load& what = *load.what;
  const Value& value = slots_[what.slot];
  const bool fits = value.kind() == ValueKind::kTensor && value.tensor().valid() &&
                    value.tensor().dtype() == what.dtype && value.tensor().shape() == what.shape;
  if (!fits) {
    return absl::InternalError(
        absl::StrCat("its kernel made ", value.ToString(), ", which its shape function says is ",
                     std::string(DTypeName(what.dtype)), what.shape.ToString()));
  }
  const Tensor& tensor = value.tensor();
  if (tensor.bytes() > 0) {
    WEFT_RETURN_IF_ERROR(
        device_.CopyFromHost(stream, tensor.raw_data(), load.into, tensor.bytes()));
    if (!device_.info().host_accessible) loaded_.push_back(tensor);
  }
  Release(what.releases);
  return absl::OkStatus();
}

absl::StatusOr<Tensor> ValueSlots::TensorOf(const ValueOperand& operand, const void* data,
                                            Stream& stream) {
  const auto bytes = static_cast<size_t>(DTypeBytes(operand.dtype, operand.shape.num_elements()));
  if (device_.info().host_accessible && bytes > 0) {
    return Tensor(operand.dtype, operand.shape, AdoptHostMemory(data, bytes, nullptr));
  }
  WEFT_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(operand.dtype, operand.shape));
  if (bytes == 0) return tensor;
  absl::Status status = device_.CopyToHost(stream, data, tensor.raw_data(), bytes);
  if (status.ok()) status = stream.Synchronize(kDeviceTimeout);
  if (status.ok()) return tensor;
  loaded_.push_back(tensor);  // the copy may be under way
  return status;
}

absl::Status ValueSlots::Run(const bound::ValueRun& run, Stream& stream) {
  const lowered::ValueRun& what = *run.what;
  std::vector<Value> inputs;
  std::vector<const Buffer*> borrowed;
  inputs.reserve(what.operands.size());
  for (const ValueOperand& operand : what.operands) {
    if (operand.slot != kNoSlot) {
      inputs.push_back(slots_[operand.slot]);
    } else if (operand.input >= 0) {
      WEFT_ASSIGN_OR_RETURN(Tensor tensor, TensorOf(operand, run.inputs[operand.input], stream));
      if (device_.info().host_accessible) borrowed.push_back(tensor.buffer().get());
      inputs.emplace_back(std::move(tensor));
    } else {
      inputs.emplace_back();
    }
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<Value> outputs, what.node->Run(std::move(inputs)));
  for (size_t i = 0; i < what.results.size(); ++i) {
    if (what.results[i] == kNoSlot) continue;
    WEFT_ASSIGN_OR_RETURN(slots_[what.results[i]], Owned(std::move(outputs[i]), borrowed));
  }
  Release(what.releases);
  return absl::OkStatus();
}

}  // namespace weft
