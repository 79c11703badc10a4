#include "ops/custom/isolation/host_answers.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ops/custom/custom_op.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr size_t kLongestReason = 4000;      // characters of an error that a library words
constexpr int32_t kMaxOutputsOfNode = 4096;  // of a node that a gradient adds

void AnswerType(const WeftType& type, MessageWriter& answer) {
  answer.Number(type.dtype);
  answer.Number(type.rank);
  answer.Numbers(type.dims, static_cast<size_t>(std::max(type.rank, 0)));
}

absl::Status AnswerValue(const WeftHost& host, WeftCall& call, int32_t i, ElementSharer share,
                         MessageWriter& answer) {
  WeftTensor value{};
  const int32_t is_known = host.input_value(&call, i, &value);
  answer.Number(is_known);
  if (is_known == 0) return absl::OkStatus();
  SharedTensor tensor = DescribeTensor(value);
  if (value.data != nullptr) {
    WEFT_ASSIGN_OR_RETURN(tensor.place, share(value.data, tensor.bytes()));
  }
  WriteTensor(tensor, answer);
  return absl::OkStatus();
}

void SetOutputType(const WeftHost& host, WeftCall& call, MessageReader& question) {
  const auto i = question.Number<int32_t>();
  WeftType type{};
  type.dtype = question.Number<int32_t>();
  type.rank = question.Number<int32_t>();
  const std::vector<int64_t> dims = question.Numbers<int64_t>();
  if (type.rank >= 0) type.rank = static_cast<int32_t>(dims.size());
  type.dims = dims.data();
  if (question.WasAll()) host.set_output_type(&call, i, &type);
}

void AddNodeOfGradient(const WeftHost& host, WeftCall& call, MessageReader& question,
                       MessageWriter& answer) {
  const std::string domain(question.Text());
  const std::string op(question.Text());
  const auto inputs = question.Numbers<WeftValue>();
  const Attributes attributes = ReadAttributes(question);
  const auto num_outputs = question.Number<int32_t>();
  if (!question.WasAll()) return;
  if (num_outputs < 0 || num_outputs > kMaxOutputsOfNode) {
    return host.fail(&call, "the gradient rule asked for a node with too many outputs");
  }
  std::vector<WeftAttribute> raw;
  for (const auto& [name, value] : attributes.items()) {
    AttributeToAbi(attributes, name.c_str(), &raw.emplace_back());
  }
  std::vector<WeftValue> outputs(static_cast<size_t>(num_outputs));
  host.add_node(&call, domain.c_str(), op.c_str(), inputs.data(),
                static_cast<int32_t>(inputs.size()), raw.data(), static_cast<int32_t>(raw.size()),
                outputs.data(), num_outputs);
  answer.Numbers(outputs.data(), outputs.size());
}

// Questions with one operand's number as their only argument, but for that of a value.
void AnswerOfOperand(HostFunction function, const WeftHost& host, WeftCall& call, int32_t i,
                     MessageWriter& answer) {
  WeftType type{};
  WeftTensor tensor{};
  switch (function) {
    case HostFunction::kInputType:
      host.input_type(&call, i, &type);
      return AnswerType(type, answer);
    case HostFunction::kOutputType:
      host.output_type(&call, i, &type);
      return AnswerType(type, answer);
    case HostFunction::kInput:  // the helper has those that there are: this is an error
      return host.input(&call, i, &tensor);
    case HostFunction::kOutput:
      return host.output(&call, i, &tensor);
    case HostFunction::kStep:
      return answer.Number(host.step(&call));
    case HostFunction::kInputId:
      return answer.Number(host.input_value_id(&call, i));
    case HostFunction::kOutputId:
      return answer.Number(host.output_value_id(&call, i));
    case HostFunction::kOutputGradient:
      return answer.Number(host.output_gradient(&call, i));
    default:
      return answer.Number(host.needs_input_gradient(&call, i));
  }
}

// Those with other arguments.
void AnswerOther(HostFunction function, const WeftHost& host, WeftCall& call,
                 MessageReader& question, MessageWriter& answer) {
  switch (function) {
    case HostFunction::kFail: {
      const std::string reason(question.Text().substr(0, kLongestReason));
      return host.fail(&call, reason.c_str());
    }
    case HostFunction::kSetOutputType:
      return SetOutputType(host, call, question);
    case HostFunction::kSetInputGradient: {
      const auto i = question.Number<int32_t>();
      return host.set_input_gradient(&call, i, question.Number<WeftValue>());
    }
    case HostFunction::kAddNode:
      return AddNodeOfGradient(host, call, question, answer);
    default: {
      const auto dtype = question.Number<int32_t>();
      return answer.Number(host.constant(&call, dtype, question.Number<double>()));
    }
  }
}

}  // namespace

SharedTensor DescribeTensor(const WeftTensor& tensor) {
  return {tensor.dtype, std::vector<int64_t>(tensor.dims, tensor.dims + tensor.rank),
          std::vector<int64_t>(tensor.global_dims, tensor.global_dims + tensor.rank),
          std::vector<int64_t>(tensor.offset, tensor.offset + tensor.rank), -1};
}

absl::StatusOr<std::string> AnswerQuestion(const WeftHost& host, WeftCall& call,
                                           std::string_view question, ElementSharer share) {
  MessageReader reader(question);
  MessageWriter answer;
  const auto number = reader.Number<uint8_t>();
  const auto function = static_cast<HostFunction>(number);
  if (number >= kHostFunctions) return absl::InvalidArgumentError("it asked for no function");
  switch (function) {
    case HostFunction::kFail:
    case HostFunction::kSetOutputType:
    case HostFunction::kSetInputGradient:
    case HostFunction::kAddNode:
    case HostFunction::kConstant:
      AnswerOther(function, host, call, reader, answer);
      break;
    case HostFunction::kInputValue:
      WEFT_RETURN_IF_ERROR(AnswerValue(host, call, reader.Number<int32_t>(), share, answer));
      break;
    default:
      AnswerOfOperand(function, host, call, reader.Number<int32_t>(), answer);
  }
  if (!reader.WasAll()) return absl::InvalidArgumentError("its question is not whole");
  return answer.bytes();
}

}  // namespace weft
