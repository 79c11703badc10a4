#include "onnx_import/codec/attribute_codec.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/quote.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using onnx::AttributeProto;

absl::StatusOr<Attribute> DecodeTensors(const AttributeProto& proto, const TensorSource& source) {
  std::vector<Tensor> tensors;
  for (const onnx::TensorProto& element : proto.tensors()) {
    WEFT_ASSIGN_OR_RETURN(Tensor tensor, DecodeTensor(element, source));
    tensors.push_back(std::move(tensor));
  }
  return Attribute(std::move(tensors));
}

absl::StatusOr<Attribute> Decode(const AttributeProto& proto, const TensorSource& source,
                                 const DecodeSubgraphFn& decode_subgraph) {
  WEFT_ASSIGN_OR_RETURN(const AttributeProto::AttributeType type, AttributeTypeOf(proto));
  switch (type) {
    case AttributeProto::FLOAT:
      return Attribute(proto.f());
    case AttributeProto::INT:
      return Attribute(int64_t{proto.i()});
    case AttributeProto::STRING:
      return Attribute(proto.s());
    case AttributeProto::TENSOR: {
      WEFT_ASSIGN_OR_RETURN(Tensor tensor, DecodeTensor(proto.t(), source));
      return Attribute(std::move(tensor));
    }
    case AttributeProto::GRAPH: {
      WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Graph> graph, decode_subgraph(proto.g()));
      return Attribute(std::move(graph));
    }
    case AttributeProto::FLOATS:
      return Attribute(std::vector<float>(proto.floats().begin(), proto.floats().end()));
    case AttributeProto::INTS:
      return Attribute(std::vector<int64_t>(proto.ints().begin(), proto.ints().end()));
    case AttributeProto::STRINGS:
      return Attribute(std::vector<std::string>(proto.strings().begin(), proto.strings().end()));
    case AttributeProto::TENSORS:
      return DecodeTensors(proto, source);
    default:
      return Attribute(proto.SerializeAsString());
  }
}

bool IsKeptEncoded(AttributeProto::AttributeType type) {
  return type == AttributeProto::GRAPHS || type == AttributeProto::SPARSE_TENSOR ||
         type == AttributeProto::SPARSE_TENSORS || type == AttributeProto::TYPE_PROTO ||
         type == AttributeProto::TYPE_PROTOS;
}

// Fills `proto` from each alternative of Attribute.
struct Encoder {
  onnx::AttributeProto& proto;
  const EncodeSubgraphFn& encode_subgraph;

  void operator()(int64_t value) const {
    proto.set_type(AttributeProto::INT);
    proto.set_i(value);
  }
  void operator()(float value) const {
    proto.set_type(AttributeProto::FLOAT);
    proto.set_f(value);
  }
  void operator()(const std::string& value) const {
    proto.set_type(AttributeProto::STRING);
    proto.set_s(value);
  }
  void operator()(const Tensor& value) const {
    proto.set_type(AttributeProto::TENSOR);
    *proto.mutable_t() = EncodeTensor("", value);
  }
  void operator()(const std::shared_ptr<Graph>& value) const {
    proto.set_type(AttributeProto::GRAPH);
    *proto.mutable_g() = encode_subgraph(*value);
  }
  void operator()(const std::vector<int64_t>& values) const {
    proto.set_type(AttributeProto::INTS);
    for (const int64_t value : values) proto.add_ints(value);
  }
  void operator()(const std::vector<float>& values) const {
    proto.set_type(AttributeProto::FLOATS);
    for (const float value : values) proto.add_floats(value);
  }
  void operator()(const std::vector<std::string>& values) const {
    proto.set_type(AttributeProto::STRINGS);
    for (const std::string& value : values) proto.add_strings(value);
  }
  void operator()(const std::vector<Tensor>& values) const {
    proto.set_type(AttributeProto::TENSORS);
    for (const Tensor& value : values) *proto.add_tensors() = EncodeTensor("", value);
  }
};

}  // namespace

absl::Status DecodeAttribute(const std::string& name, const AttributeProto& proto,
                             const TensorSource& source, const DecodeSubgraphFn& decode_subgraph,
                             Attributes& attributes) {
  absl::StatusOr<Attribute> value = Decode(proto, source, decode_subgraph);
  if (!value.ok()) return Annotate(value.status(), absl::StrCat("attribute ", Quoted(name)));
  const bool encoded = IsKeptEncoded(*AttributeTypeOf(proto));
  attributes.Set(encoded ? absl::StrCat(kEncodedAttributePrefix, name) : name, *std::move(value));
  return absl::OkStatus();
}

AttributeProto EncodeAttribute(const std::string& name, const Attribute& attribute,
                               const EncodeSubgraphFn& encode_subgraph) {
  AttributeProto proto;
  const std::string* encoded = std::get_if<std::string>(&attribute);
  if (encoded != nullptr && absl::StartsWith(name, kEncodedAttributePrefix) &&
      proto.ParseFromString(*encoded)) {
    return proto;
  }
  proto.Clear();
  proto.set_name(name);
  std::visit(Encoder{proto, encode_subgraph}, attribute);
  return proto;
}

}  // namespace weft
