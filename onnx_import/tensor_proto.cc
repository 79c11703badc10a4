#include "onnx_import/tensor_proto.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/tensor_codec.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/codec/wire_scan.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status WrongElement(const char* holder, int elem_type) {
  if (elem_type == onnx::SequenceProto::MAP) {
    return absl::UnimplementedError(absl::StrCat(
        holder, " of maps: such files are not read; give maps as JSON (graph_runner run --input ",
        "NAME=FILE.json)"));
  }
  return absl::InvalidArgumentError(absl::StrCat(holder, " has elem_type ", elem_type,
                                                 ", expected 1 (tensor), 2 (sparse tensor), ",
                                                 "3 (sequence) or 5 (optional)"));
}

absl::StatusOr<Value> DecodeSequence(const onnx::SequenceProto& proto);

absl::StatusOr<Value> DecodeOptional(const onnx::OptionalProto& proto) {
  absl::StatusOr<Value> element;
  const int type = proto.elem_type();
  if (type == onnx::SequenceProto::UNDEFINED ||
      (type == onnx::SequenceProto::TENSOR && !proto.has_tensor_value()) ||
      (type == onnx::SequenceProto::SEQUENCE && !proto.has_sequence_value()) ||
      (type == onnx::SequenceProto::OPTIONAL && !proto.has_optional_value())) {
    return Value::Optional(nullptr);
  }
  if (type == onnx::SequenceProto::TENSOR) {
    element = DecodeTensor(proto.tensor_value(), {});
  } else if (type == onnx::SequenceProto::SPARSE_TENSOR) {
    element = DecodeSparseTensor(proto.sparse_tensor_value(), {});
  } else if (type == onnx::SequenceProto::SEQUENCE) {
    element = DecodeSequence(proto.sequence_value());
  } else if (type == onnx::SequenceProto::OPTIONAL) {
    element = DecodeOptional(proto.optional_value());
  } else {
    return WrongElement("an optional", type);
  }
  WEFT_RETURN_IF_ERROR(element.status());
  return Value::Optional(std::make_shared<const Value>(*std::move(element)));
}

// Decodes each of `protos` with `decode` and appends it.
template <typename Protos, typename Decode>
absl::Status AppendAll(const Protos& protos, Decode decode, std::vector<Value>& elements) {
  for (const auto& proto : protos) {
    auto element = decode(proto);
    if (!element.ok()) {
      return Annotate(element.status(), absl::StrCat("element ", elements.size()));
    }
    elements.push_back(*std::move(element));
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> DecodeSequence(const onnx::SequenceProto& proto) {
  const auto tensor = [](const onnx::TensorProto& p) { return DecodeTensor(p, {}); };
  const auto sparse = [](const onnx::SparseTensorProto& p) { return DecodeSparseTensor(p, {}); };
  std::vector<Value> elements;
  switch (proto.elem_type()) {
    case onnx::SequenceProto::UNDEFINED:
      break;
    case onnx::SequenceProto::TENSOR:
      WEFT_RETURN_IF_ERROR(AppendAll(proto.tensor_values(), tensor, elements));
      break;
    case onnx::SequenceProto::SPARSE_TENSOR:
      WEFT_RETURN_IF_ERROR(AppendAll(proto.sparse_tensor_values(), sparse, elements));
      break;
    case onnx::SequenceProto::SEQUENCE:
      WEFT_RETURN_IF_ERROR(AppendAll(proto.sequence_values(), DecodeSequence, elements));
      break;
    case onnx::SequenceProto::OPTIONAL:
      WEFT_RETURN_IF_ERROR(AppendAll(proto.optional_values(), DecodeOptional, elements));
      break;
    default:
      return WrongElement("a sequence", proto.elem_type());
  }
  return Value::Sequence(std::move(elements));
}

template <typename Proto, typename Decode>
absl::StatusOr<NamedValue> ParseAs(std::string_view bytes, Decode decode) {
  Proto proto;
  WEFT_RETURN_IF_ERROR(ParseWire(bytes, WireLimits{}, proto));
  auto value = decode(proto);
  if (!value.ok()) {
    if (proto.name().empty()) return value.status();
    return Annotate(value.status(), absl::StrCat("value ", Quoted(proto.name())));
  }
  return NamedValue{proto.name(), *std::move(value)};
}

onnx::SequenceProto EncodeSequence(const Value& value);

onnx::OptionalProto EncodeOptional(const Value& value) {
  onnx::OptionalProto proto;
  if (!value.has_value()) return proto;
  const Value& element = value.value();
  switch (element.kind()) {
    case ValueKind::kTensor:
      proto.set_elem_type(onnx::SequenceProto::TENSOR);
      *proto.mutable_tensor_value() = EncodeTensor("", element.tensor());
      break;
    case ValueKind::kSequence:
      proto.set_elem_type(onnx::SequenceProto::SEQUENCE);
      *proto.mutable_sequence_value() = EncodeSequence(element);
      break;
    case ValueKind::kOptional:
      proto.set_elem_type(onnx::SequenceProto::OPTIONAL);
      *proto.mutable_optional_value() = EncodeOptional(element);
      break;
  }
  return proto;
}

onnx::SequenceProto EncodeSequence(const Value& value) {
  onnx::SequenceProto proto;
  for (const Value& element : value.elements()) {
    switch (element.kind()) {
      case ValueKind::kTensor:
        proto.set_elem_type(onnx::SequenceProto::TENSOR);
        *proto.add_tensor_values() = EncodeTensor("", element.tensor());
        break;
      case ValueKind::kSequence:
        proto.set_elem_type(onnx::SequenceProto::SEQUENCE);
        *proto.add_sequence_values() = EncodeSequence(element);
        break;
      case ValueKind::kOptional:
        proto.set_elem_type(onnx::SequenceProto::OPTIONAL);
        *proto.add_optional_values() = EncodeOptional(element);
        break;
    }
  }
  return proto;
}

// Whether a float of `dtype` may lie in a file as an unsigned integer of dtype `stored`.
bool IsStoredAs(DType dtype, DType stored) {
  const int bits = DTypeBits(dtype);
  return IsFloatingPoint(dtype) && bits == DTypeBits(stored) &&
         ((bits == 16 && stored == DType::kUint16) || (bits == 8 && stored == DType::kUint8));
}

template <typename Proto>
std::string Serialize(const std::string& name, Proto proto) {
  if (!name.empty()) proto.set_name(name);
  return proto.SerializeAsString();
}

}  // namespace

absl::StatusOr<NamedValue> ParseValue(std::string_view bytes, ValueKind kind) {
  switch (kind) {
    case ValueKind::kSequence:
      return ParseAs<onnx::SequenceProto>(bytes, DecodeSequence);
    case ValueKind::kOptional:
      return ParseAs<onnx::OptionalProto>(bytes, DecodeOptional);
    default:
      return ParseAs<onnx::TensorProto>(
          bytes, [](const onnx::TensorProto& proto) { return DecodeTensor(proto, {}); });
  }
}

absl::StatusOr<NamedValue> ReadValueFile(FileSystem& file_system, const std::string& path,
                                         ValueKind kind) {
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, file_system.ReadFile(path));
  absl::StatusOr<NamedValue> value = ParseValue(bytes, kind);
  if (!value.ok()) return Annotate(value.status(), absl::StrCat("value file ", QuotedPath(path)));
  return value;
}

absl::StatusOr<NamedValue> ReadValueFile(FileSystem& file_system, const std::string& path,
                                         const ValueType& type) {
  WEFT_ASSIGN_OR_RETURN(NamedValue value, ReadValueFile(file_system, path, type.kind));
  if (type.kind != ValueKind::kTensor) return value;
  const Tensor& tensor = value.value.tensor();
  if (IsStoredAs(type.dtype, tensor.dtype())) {
    value.value = Tensor(type.dtype, tensor.shape(), tensor.buffer(), tensor.offset());
  }
  return value;
}

std::string SerializeValue(const std::string& name, const Value& value) {
  switch (value.kind()) {
    case ValueKind::kSequence:
      return Serialize(name, EncodeSequence(value));
    case ValueKind::kOptional:
      return Serialize(name, EncodeOptional(value));
    default:
      return Serialize(name, EncodeTensor("", value.tensor()));
  }
}

}  // namespace weft
