#include "onnx_import/codec/type_codec.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::StatusOr<Dim> DecodeDim(const onnx::TensorShapeProto::Dimension& proto, int axis) {
  if (proto.has_dim_param() && !proto.dim_param().empty()) return Dim::Symbol(proto.dim_param());
  if (!proto.has_dim_value() || proto.dim_value() == -1) return Dim();
  if (proto.dim_value() < 0 || proto.dim_value() > kMaxDim) {
    return absl::InvalidArgumentError(
        absl::StrCat("dimension ", axis, " has size ", proto.dim_value(), ", expected 0 to 2^40"));
  }
  return Dim(proto.dim_value());
}

absl::StatusOr<ValueType> DecodeTensorType(const onnx::TypeProto::Tensor& proto) {
  ValueType type;
  if (proto.elem_type() != 0 && !IsValidDType(proto.elem_type())) {
    return absl::InvalidArgumentError(absl::StrCat("elem_type is ", proto.elem_type(),
                                                   ", expected 1 to ", kDTypeCount - 1,
                                                   " (float32 to float6e3m2)"));
  }
  type.dtype = static_cast<DType>(proto.elem_type());
  if (!proto.has_shape()) return type;
  if (proto.shape().dim_size() > kMaxRank) {
    return absl::InvalidArgumentError(absl::StrCat("its shape has ", proto.shape().dim_size(),
                                                   " dimensions, expected at most ", kMaxRank));
  }
  std::vector<Dim> dims;
  for (int axis = 0; axis < proto.shape().dim_size(); ++axis) {
    WEFT_ASSIGN_OR_RETURN(Dim dim, DecodeDim(proto.shape().dim(axis), axis));
    dims.push_back(std::move(dim));
  }
  type.shape = SymbolicShape(std::move(dims));
  return type;
}

absl::Status Unsupported(const std::string& what) {
  return absl::UnimplementedError(
      absl::StrCat("its type is ", what,
                   ", expected a tensor, or a sequence or optional of these (two in one another at "
                   "most); convert it to tensors"));
}

// The dtype of a map's values.
absl::StatusOr<DType> DecodeMap(const onnx::TypeProto::Map& proto) {
  const int key = proto.key_type();
  if (key != static_cast<int>(DType::kInt64) && key != static_cast<int>(DType::kString)) {
    return Unsupported(
        absl::StrCat("a map whose keys are of type ", key, ", neither 7 (int64) nor 8 (string)"));
  }
  if (!proto.value_type().has_tensor_type()) return Unsupported("a map of other than tensors");
  WEFT_ASSIGN_OR_RETURN(const ValueType values, DecodeTensorType(proto.value_type().tensor_type()));
  return values.dtype;
}

}  // namespace

absl::StatusOr<ValueType> DecodeType(const onnx::TypeProto& proto) {
  ValueKind kind = ValueKind::kTensor;
  ValueKind element = ValueKind::kTensor;
  int depth = 0;
  const onnx::TypeProto* at = &proto;
  while (at->has_sequence_type() || at->has_optional_type()) {
    const bool sequence = at->has_sequence_type();
    if (++depth <= 2) {
      (depth == 1 ? kind : element) = sequence ? ValueKind::kSequence : ValueKind::kOptional;
    }
    at = sequence ? &at->sequence_type().elem_type() : &at->optional_type().elem_type();
  }
  if (depth > 2) {
    return Unsupported(absl::StrCat(depth, " sequences or optionals in one another"));
  }
  if (at->has_map_type()) {
    if (depth > 1) return Unsupported("a map in two sequences or optionals");
    ValueType type;
    WEFT_ASSIGN_OR_RETURN(type.dtype, DecodeMap(at->map_type()));
    type.kind = depth == 0 ? ValueKind::kSequence : kind;
    type.element = depth == 0 ? ValueKind::kTensor : ValueKind::kSequence;
    return type;
  }
  if (at->has_sparse_tensor_type()) return Unsupported("a sparse tensor");
  if (at->has_opaque_type()) return Unsupported("opaque");
  WEFT_ASSIGN_OR_RETURN(ValueType type, DecodeTensorType(at->tensor_type()));
  type.kind = kind;
  type.element = element;
  return type;
}

onnx::TypeProto EncodeType(const ValueType& type) {
  onnx::TypeProto proto;
  onnx::TypeProto* at = &proto;
  const auto enter = [&at](ValueKind kind) {
    if (kind == ValueKind::kSequence) at = at->mutable_sequence_type()->mutable_elem_type();
    if (kind == ValueKind::kOptional) at = at->mutable_optional_type()->mutable_elem_type();
  };
  enter(type.kind);
  if (type.kind != ValueKind::kTensor) enter(type.element);
  onnx::TypeProto::Tensor& tensor = *at->mutable_tensor_type();
  tensor.set_elem_type(static_cast<int>(type.dtype));
  if (!type.shape.has_rank()) return proto;
  onnx::TensorShapeProto& shape = *tensor.mutable_shape();
  for (const Dim& dim : type.shape.dims()) {
    onnx::TensorShapeProto::Dimension& to = *shape.add_dim();
    if (dim.is_known()) {
      to.set_dim_value(dim.size());
    } else if (dim.is_symbol()) {
      to.set_dim_param(dim.symbol());
    }
  }
  return proto;
}

}  // namespace weft
