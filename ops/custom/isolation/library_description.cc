#include "ops/custom/isolation/library_description.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/custom/isolation/message_bytes.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Which functions an op has, as bits.
constexpr uint32_t kHasInfer = 1;
constexpr uint32_t kHasCpu = 2;
constexpr uint32_t kHasCuda = 4;
constexpr uint32_t kHasGradient = 8;
constexpr uint32_t kHasFlops = 16;

// A text that may be null.
void WriteText(const char* text, MessageWriter& message) {
  message.Number(uint8_t{text != nullptr});
  message.Text(text == nullptr ? "" : text);
}

size_t CountOf(int32_t count) { return static_cast<size_t>(std::max(count, 0)); }

void WriteOperands(const WeftOperand* operands, int32_t count, MessageWriter& message) {
  message.Number(uint64_t{CountOf(count)});
  for (int32_t k = 0; k < count; ++k) {
    WriteText(operands[k].name, message);
    message.Numbers(operands[k].dtypes, CountOf(operands[k].num_dtypes));
    message.Number(operands[k].flags);
  }
}

uint32_t FunctionsOf(const WeftOpDescriptor& op) {
  return (op.infer != nullptr ? kHasInfer : 0) | (op.run_cpu != nullptr ? kHasCpu : 0) |
         (op.run_cuda != nullptr ? kHasCuda : 0) | (op.gradient != nullptr ? kHasGradient : 0) |
         (op.flops != nullptr ? kHasFlops : 0);
}

}  // namespace

std::string DescribeLibrary(const WeftOpLibrary& library) {
  MessageWriter message;
  message.Number(uint64_t{library.num_ops});
  for (uint32_t k = 0; k < library.num_ops; ++k) {
    const WeftOpDescriptor& op = library.ops[k];
    WriteText(op.domain, message);
    WriteText(op.name, message);
    WriteOperands(op.inputs, op.num_inputs, message);
    WriteOperands(op.outputs, op.num_outputs, message);
    message.Number(uint64_t{CountOf(op.num_attributes)});
    for (int32_t a = 0; a < op.num_attributes; ++a) {
      WriteText(op.attributes[a].name, message);
      message.Number(op.attributes[a].type);
      message.Number(op.attributes[a].required);
    }
    message.Numbers(op.value_inputs, CountOf(op.num_value_inputs));
    message.Number(FunctionsOf(op));
    message.Number(op.not_differentiable);
    WriteText(op.sharding, message);
  }
  return message.bytes();
}

absl::StatusOr<std::unique_ptr<LibraryDescription>> LibraryDescription::Parse(
    std::string_view bytes, const StandInFunctions& functions) {
  std::unique_ptr<LibraryDescription> description(new LibraryDescription());
  MessageReader message(bytes);
  for (size_t left = message.Length(60); left > 0; --left) {
    WEFT_RETURN_IF_ERROR(description->ReadOp(message, functions));
  }
  if (!message.WasAll()) {
    return absl::InvalidArgumentError("its helper process described no library of ops");
  }
  description->library_ = {description->ops_.data(),
                           static_cast<uint32_t>(description->ops_.size())};
  return description;
}

const char* LibraryDescription::ReadText(MessageReader& message) {
  const bool is_present = message.Number<uint8_t>() != 0;
  std::string text(message.Text());
  return is_present ? texts_.emplace_back(std::move(text)).c_str() : nullptr;
}

const std::vector<WeftOperand>& LibraryDescription::ReadOperands(MessageReader& message) {
  std::vector<WeftOperand>& operands = operands_.emplace_back(message.Length(21));
  for (WeftOperand& operand : operands) {
    operand.name = ReadText(message);
    const std::vector<int32_t>& dtypes = numbers_.emplace_back(message.Numbers<int32_t>());
    operand.dtypes = dtypes.data();
    operand.num_dtypes = static_cast<int32_t>(dtypes.size());
    operand.flags = message.Number<int32_t>();
  }
  return operands;
}

absl::Status LibraryDescription::ReadOp(MessageReader& message, const StandInFunctions& functions) {
  WeftOpDescriptor op{};
  op.domain = ReadText(message);
  op.name = ReadText(message);
  const std::vector<WeftOperand>& inputs = ReadOperands(message);
  op.inputs = inputs.data();
  op.num_inputs = static_cast<int32_t>(inputs.size());
  const std::vector<WeftOperand>& outputs = ReadOperands(message);
  op.outputs = outputs.data();
  op.num_outputs = static_cast<int32_t>(outputs.size());
  auto& attributes = attributes_.emplace_back(message.Length(17));
  for (WeftAttributeDeclaration& attribute : attributes) {
    attribute.name = ReadText(message);
    attribute.type = message.Number<int32_t>();
    attribute.required = message.Number<int32_t>();
  }
  op.attributes = attributes.data();
  op.num_attributes = static_cast<int32_t>(attributes.size());
  const std::vector<int32_t>& values = numbers_.emplace_back(message.Numbers<int32_t>());
  op.value_inputs = values.data();
  op.num_value_inputs = static_cast<int32_t>(values.size());
  const auto has = message.Number<uint32_t>();
  op.not_differentiable = message.Number<int32_t>();
  op.sharding = ReadText(message);
  if ((has & kHasInfer) != 0) op.infer = functions.infer;
  if ((has & kHasCpu) != 0) op.run_cpu = functions.run_cpu;
  if ((has & kHasGradient) != 0) op.gradient = functions.gradient;
  if ((has & kHasFlops) != 0) op.flops = functions.flops;
  if ((has & (kHasCpu | kHasCuda)) == kHasCuda) {
    return absl::InvalidArgumentError(absl::StrCat(
        "op '", op.domain == nullptr ? "" : op.domain, "::", op.name == nullptr ? "?" : op.name,
        "' has a kernel for GPUs alone, which cannot run apart: add one for CPUs, or do without "
        "--isolate-ops"));
  }
  ops_.push_back(op);
  return absl::OkStatus();
}

}  // namespace weft
