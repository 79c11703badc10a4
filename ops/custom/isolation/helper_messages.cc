#include "ops/custom/isolation/helper_messages.h"

#include <array>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "tensor/dtype.h"

namespace weft {
namespace {

// The attribute at this place of the list, and whether libraries see its type.
void WriteAttribute(const WeftAttribute& attribute, MessageWriter& message) {
  message.Text(attribute.name);
  message.Number(attribute.type);
  switch (attribute.type) {
    case WEFT_INT:
      return message.Number(attribute.i);
    case WEFT_FLOAT:
      return message.Number(attribute.f);
    case WEFT_STRING:
      return message.Text({attribute.s, attribute.count});
    case WEFT_INTS:
      return message.Numbers(attribute.ints, attribute.count);
    default:
      return message.Numbers(attribute.floats, attribute.count);
  }
}

// What libraries see of them; points into `attributes`.
std::vector<WeftAttribute> VisibleAttributes(const Attributes& attributes) {
  std::vector<WeftAttribute> visible;
  for (const auto& [name, value] : attributes.items()) {
    WeftAttribute& attribute = visible.emplace_back();
    if (const auto* const i = std::get_if<int64_t>(&value)) {
      attribute = {name.c_str(), WEFT_INT, *i, 0, nullptr, nullptr, nullptr, 0};
    } else if (const auto* const f = std::get_if<float>(&value)) {
      attribute = {name.c_str(), WEFT_FLOAT, 0, *f, nullptr, nullptr, nullptr, 0};
    } else if (const auto* const s = std::get_if<std::string>(&value)) {
      attribute = {name.c_str(), WEFT_STRING, 0, 0, s->data(), nullptr, nullptr, s->size()};
    } else if (const auto* const ints = std::get_if<std::vector<int64_t>>(&value)) {
      attribute = {name.c_str(), WEFT_INTS, 0, 0, nullptr, ints->data(), nullptr, ints->size()};
    } else if (const auto* const floats = std::get_if<std::vector<float>>(&value)) {
      attribute = {name.c_str(),   WEFT_FLOATS,   0, 0, nullptr, nullptr,
                   floats->data(), floats->size()};
    } else {
      visible.pop_back();
    }
  }
  return visible;
}

void WriteTensors(const std::vector<SharedTensor>& tensors, MessageWriter& message) {
  message.Number(uint64_t{tensors.size()});
  for (const SharedTensor& tensor : tensors) WriteTensor(tensor, message);
}

std::vector<SharedTensor> ReadTensors(MessageReader& message) {
  std::vector<SharedTensor> tensors(message.Length(36));  // bytes of one without dimensions
  for (SharedTensor& tensor : tensors) tensor = ReadTensor(message);
  return tensors;
}

}  // namespace

std::string_view LibraryFunctionName(LibraryFunction function) {
  static constexpr std::array<std::string_view, kLibraryFunctions> kNames = {"Infer", "Compute",
                                                                             "Gradient", "Flops"};
  return kNames.at(static_cast<size_t>(function));
}

int64_t SharedTensor::bytes() const {
  int64_t elements = 1;
  for (const int64_t size : dims) elements *= size;
  return DTypeBytes(static_cast<DType>(dtype), elements);
}

WeftTensor SharedTensor::At(void* begin) const {
  return {place < 0 ? nullptr : static_cast<std::byte*>(begin) + place,
          dims.data(),
          global_dims.data(),
          offset.data(),
          static_cast<int32_t>(dims.size()),
          dtype};
}

void WriteTensor(const SharedTensor& tensor, MessageWriter& message) {
  message.Number(tensor.dtype);
  message.Numbers(tensor.dims.data(), tensor.dims.size());
  message.Numbers(tensor.global_dims.data(), tensor.global_dims.size());
  message.Numbers(tensor.offset.data(), tensor.offset.size());
  message.Number(tensor.place);
}

SharedTensor ReadTensor(MessageReader& message) {
  SharedTensor tensor;
  tensor.dtype = message.Number<int32_t>();
  tensor.dims = message.Numbers<int64_t>();
  tensor.global_dims = message.Numbers<int64_t>();
  tensor.offset = message.Numbers<int64_t>();
  tensor.place = message.Number<int64_t>();
  return tensor;
}

void WriteAttributes(const Attributes& attributes, MessageWriter& message) {
  const std::vector<WeftAttribute> visible = VisibleAttributes(attributes);
  message.Number(uint64_t{visible.size()});
  for (const WeftAttribute& attribute : visible) WriteAttribute(attribute, message);
}

Attributes ReadAttributes(MessageReader& message) {
  Attributes attributes;
  for (size_t left = message.Length(12); left > 0; --left) {
    const std::string name(message.Text());
    switch (message.Number<int32_t>()) {
      case WEFT_INT:
        attributes.Set(name, message.Number<int64_t>());
        break;
      case WEFT_FLOAT:
        attributes.Set(name, message.Number<float>());
        break;
      case WEFT_STRING:
        attributes.Set(name, std::string(message.Text()));
        break;
      case WEFT_INTS:
        attributes.Set(name, message.Numbers<int64_t>());
        break;
      default:
        attributes.Set(name, message.Numbers<float>());
    }
  }
  return attributes;
}

std::string EncodeCall(const CallMessage& call) {
  MessageWriter message;
  message.Number(call.function);
  message.Number(call.op);
  message.Number(call.threads);
  message.Numbers(call.inputs.data(), call.inputs.size());
  message.Numbers(call.outputs.data(), call.outputs.size());
  WriteAttributes(call.attributes, message);
  WriteTensors(call.input_tensors, message);
  WriteTensors(call.output_tensors, message);
  return message.bytes();
}

absl::StatusOr<CallMessage> DecodeCall(std::string_view bytes) {
  MessageReader message(bytes);
  CallMessage call;
  const auto function = message.Number<uint8_t>();
  call.function = static_cast<LibraryFunction>(function);
  call.op = message.Number<uint32_t>();
  call.threads = message.Number<int32_t>();
  call.inputs = message.Numbers<uint8_t>();
  call.outputs = message.Numbers<uint8_t>();
  call.attributes = ReadAttributes(message);
  call.input_tensors = ReadTensors(message);
  call.output_tensors = ReadTensors(message);
  if (!message.WasAll() || function >= kLibraryFunctions) {
    return absl::InvalidArgumentError("the message is no call of an op");
  }
  return call;
}

}  // namespace weft
