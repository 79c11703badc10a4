#include "onnx_import/codec/tensor_codec.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/mapped_pages.h"
#include "platform/status_macros.h"
#include "tensor/host_memory.h"
#include "tensor/packed.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little,
              "ONNX's raw data is little-endian and is used as it is");

// Payloads up to this are copied, so that small tensors do not keep a whole model in memory.
constexpr size_t kCopiedBytes = 1024;
constexpr int64_t kMaxDenseBytes = int64_t{64} << 20;

absl::Status InvalidTensor(const std::string& text) { return absl::InvalidArgumentError(text); }

std::string Describe(const TensorHeader& header) {
  return absl::StrCat(std::string(DTypeName(header.dtype)), header.shape.ToString());
}

// The typed field that ONNX prescribes for a dtype.
enum class TypedField { kFloat, kInt32, kInt64, kDouble, kUint64, kString };

TypedField TypedFieldOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kComplex64:
      return TypedField::kFloat;
    case DType::kFloat64:
    case DType::kComplex128:
      return TypedField::kDouble;
    case DType::kInt64:
      return TypedField::kInt64;
    case DType::kUint32:
    case DType::kUint64:
      return TypedField::kUint64;
    case DType::kString:
      return TypedField::kString;
    default:
      return TypedField::kInt32;
  }
}

const char* TypedFieldName(TypedField field) {
  constexpr const char* kNames[] = {"float_data",  "int32_data",  "int64_data",
                                    "double_data", "uint64_data", "string_data"};
  return kNames[static_cast<int>(field)];
}

int64_t TypedFieldSize(const onnx::TensorProto& proto, TypedField field) {
  switch (field) {
    case TypedField::kFloat:
      return proto.float_data_size();
    case TypedField::kInt32:
      return proto.int32_data_size();
    case TypedField::kInt64:
      return proto.int64_data_size();
    case TypedField::kDouble:
      return proto.double_data_size();
    case TypedField::kUint64:
      return proto.uint64_data_size();
    case TypedField::kString:
      return proto.string_data_size();
  }
  return 0;
}

// Whether there is raw data, in the message or left in the model's file.
bool HasRawData(const onnx::TensorProto& proto) {
  return !proto.raw_data().empty() || proto.has_file_bytes();
}

// At most one kind of payload, and the right one.
absl::Status CheckPayloadKind(const onnx::TensorProto& proto, const TensorHeader& header) {
  const TypedField expected = TypedFieldOf(header.dtype);
  const bool external = proto.data_location() == onnx::TensorProto::EXTERNAL;
  for (int i = 0; i <= static_cast<int>(TypedField::kString); ++i) {
    const TypedField field = static_cast<TypedField>(i);
    if (TypedFieldSize(proto, field) == 0) continue;
    if (field != expected) {
      return InvalidTensor(absl::StrCat(
          Describe(header), " has its elements in ", TypedFieldName(field), ", expected ",
          TypedFieldName(expected), " or raw_data; export the model again"));
    }
    if (HasRawData(proto) || external) {
      return InvalidTensor(absl::StrCat(
          Describe(header), " has both ", external ? "external data" : "raw_data", " and ",
          TypedFieldName(field), ", expected one of them; export the model again"));
    }
  }
  if (!proto.raw_data().empty() && proto.has_file_bytes()) {
    return InvalidTensor(absl::StrCat(
        Describe(header), " has raw_data twice, expected it once; export the model again"));
  }
  if (external && HasRawData(proto)) {
    return InvalidTensor(absl::StrCat(Describe(header),
                                      " has both external data and raw_data, expected "
                                      "one of them; export the model again"));
  }
  if (header.dtype == DType::kString && (external || HasRawData(proto))) {
    return InvalidTensor("a tensor of strings has its elements in raw bytes, expected string_data");
  }
  return absl::OkStatus();
}

// 6-bit elements are packed in raw data alone: of int32_data each entry is one.
bool IsSixBits(DType dtype) { return DTypeBits(dtype) == 6; }

// Entries that the typed field of a dtype has: packed elements are bytes, complex ones pairs.
int64_t ExpectedCount(const TensorHeader& header) {
  const int64_t elements = header.shape.num_elements();
  if (header.dtype == DType::kComplex64 || header.dtype == DType::kComplex128) return 2 * elements;
  const bool is_packed = DTypeBits(header.dtype) < 8 && !IsSixBits(header.dtype);
  return is_packed ? static_cast<int64_t>(header.bytes) : elements;
}

absl::Status CheckTypedCount(const onnx::TensorProto& proto, const TensorHeader& header) {
  const TypedField field = TypedFieldOf(header.dtype);
  const int64_t seen = TypedFieldSize(proto, field);
  const int64_t expected =
      header.dtype == DType::kString ? header.shape.num_elements() : ExpectedCount(header);
  if (seen == expected) return absl::OkStatus();
  if (seen == 0) {
    return InvalidTensor(absl::StrCat(Describe(header), " has no data, expected ", expected,
                                      " elements; was the model exported without its weights?"));
  }
  return InvalidTensor(absl::StrCat(TypedFieldName(field), " has ", seen, " elements, expected ",
                                    expected, " for ", Describe(header),
                                    "; the file is damaged or was exported wrongly"));
}

absl::Status CheckRawBytes(size_t seen, const TensorHeader& header) {
  if (seen == header.bytes) return absl::OkStatus();
  return InvalidTensor(absl::StrCat("raw_data has ", seen, " bytes, expected ", header.bytes,
                                    " for ", Describe(header),
                                    "; the file is damaged or was exported wrongly"));
}

// Bytes of raw data as a tensor: shared with `source.owner` when there is one and it pays.
absl::StatusOr<Tensor> FromRaw(const onnx::TensorProto& proto, const TensorHeader& header,
                               const TensorSource& source) {
  const std::string& raw = proto.raw_data();
  WEFT_RETURN_IF_ERROR(CheckRawBytes(raw.size(), header));
  const bool share = source.owner != nullptr && raw.size() > kCopiedBytes;
  if (share && header.dtype != DType::kBool) {
    return Tensor(header.dtype, header.shape,
                  AdoptHostMemory(raw.data(), raw.size(), source.owner));
  }
  WEFT_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(header.dtype, header.shape));
  if (!raw.empty()) std::memcpy(tensor.raw_data(), raw.data(), raw.size());
  return tensor;
}

absl::StatusOr<Tensor> FromExternal(const onnx::TensorProto& proto, const TensorHeader& header,
                                    const TensorSource& source) {
  if (source.external == nullptr) {
    return InvalidTensor("its data is external, but this model has no folder to look in");
  }
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer, source.external->Map(proto, header.bytes));
  Tensor tensor(header.dtype, header.shape, std::move(buffer));
  if (header.dtype == DType::kBool) return CopyFromFile(tensor);
  return tensor;
}

// Bytes that were left in the model's file. Floating types are read where they are, aligned or not,
// as external data is; others are copied where they are not aligned.
absl::StatusOr<Tensor> FromOwnFile(const onnx::TensorProto& proto, const TensorHeader& header,
                                   const TensorSource& source) {
  WEFT_RETURN_IF_ERROR(CheckRawBytes(proto.file_bytes(), header));
  if (source.external == nullptr) {
    return InvalidTensor("its data was left in a file, but this model has none; export it again");
  }
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer,
                        source.external->MapOwn(proto.file_offset(), header.bytes));
  Tensor tensor(header.dtype, header.shape, std::move(buffer));
  const bool stays =
      header.dtype != DType::kBool && (IsFloatingPoint(header.dtype) || IsAligned(tensor));
  if (stays) return tensor;
  return CopyFromFile(tensor);
}

// Copies a typed field whose C++ type is the element type, or its half for complex numbers.
template <typename T>
void CopyTyped(const google::protobuf::RepeatedField<T>& field, Tensor& tensor) {
  if (!field.empty()) std::memcpy(tensor.raw_data(), field.data(), field.size() * sizeof(T));
}

struct Range {
  int64_t low;
  int64_t high;
};

// What an entry of int32_data may be for a dtype; packed and 8-bit floats are bytes.
Range RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kInt32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case DType::kInt16:
      return {-32768, 32767};
    case DType::kInt8:
      return {-128, 127};
    case DType::kUint8:
      return {0, 255};
    case DType::kUint16:
    case DType::kFloat16:
    case DType::kBfloat16:
      return {0, 65535};
    case DType::kBool:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case DType::kFloat6E2M3:
    case DType::kFloat6E3M2:
      return {0, 63};
    default:
      return {-128, 255};  // some writers keep the sign of a packed byte
  }
}

absl::Status CopyInt32(const onnx::TensorProto& proto, const TensorHeader& header, Tensor& tensor) {
  const int size = DTypeBits(header.dtype) <= 8 ? 1 : DTypeBits(header.dtype) / 8;
  const Range range = RangeOf(header.dtype);
  char* to = static_cast<char*>(tensor.raw_data());
  if (IsSixBits(header.dtype) && header.bytes > 0) std::memset(to, 0, header.bytes);
  for (int i = 0; i < proto.int32_data_size(); ++i, to += size) {
    int32_t value = proto.int32_data(i);
    if (value < range.low || value > range.high) {
      return InvalidTensor(absl::StrCat("int32_data[", i, "] is ", value, ", expected ", range.low,
                                        " to ", range.high, " for ", Describe(header)));
    }
    if (header.dtype == DType::kBool) value = value != 0;
    if (IsSixBits(header.dtype)) {
      SetPackedElement(tensor.raw_data(), 6, i, static_cast<uint32_t>(value));
    } else {
      std::memcpy(to, &value, size);
    }
  }
  return absl::OkStatus();
}

absl::Status CopyUint32(const onnx::TensorProto& proto, const TensorHeader& header,
                        Tensor& tensor) {
  const std::span<uint32_t> to = tensor.mutable_data<uint32_t>();
  for (int i = 0; i < proto.uint64_data_size(); ++i) {
    const uint64_t value = proto.uint64_data(i);
    if (value > std::numeric_limits<uint32_t>::max()) {
      return InvalidTensor(
          absl::StrCat("uint64_data[", i, "] is ", value, ", too large for ", Describe(header)));
    }
    to[i] = static_cast<uint32_t>(value);
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> FromTyped(const onnx::TensorProto& proto, const TensorHeader& header) {
  WEFT_RETURN_IF_ERROR(CheckTypedCount(proto, header));
  if (header.dtype == DType::kString) {
    return Tensor::OfStrings(header.shape,
                             {proto.string_data().begin(), proto.string_data().end()});
  }
  WEFT_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(header.dtype, header.shape));
  switch (TypedFieldOf(header.dtype)) {
    case TypedField::kFloat:
      CopyTyped(proto.float_data(), tensor);
      break;
    case TypedField::kDouble:
      CopyTyped(proto.double_data(), tensor);
      break;
    case TypedField::kInt64:
      CopyTyped(proto.int64_data(), tensor);
      break;
    case TypedField::kUint64:
      if (header.dtype == DType::kUint32) {
        WEFT_RETURN_IF_ERROR(CopyUint32(proto, header, tensor));
      } else {
        CopyTyped(proto.uint64_data(), tensor);
      }
      break;
    default:
      WEFT_RETURN_IF_ERROR(CopyInt32(proto, header, tensor));
  }
  return tensor;
}

// A byte that is neither 0 nor 1 is no bool in C++.
void NormalizeBools(Tensor& tensor) {
  uint8_t* bytes = static_cast<uint8_t*>(tensor.raw_data());
  for (size_t i = 0; i < tensor.bytes(); ++i) bytes[i] = bytes[i] != 0;
}

// Positions of the non-zero elements in the dense tensor, checked.
absl::StatusOr<std::vector<int64_t>> FlatIndices(const Tensor& indices, const Shape& shape,
                                                 int64_t count) {
  const bool flat = indices.shape().rank() == 1;
  const Shape expected = flat ? Shape{count} : Shape{count, shape.rank()};
  if (indices.dtype() != DType::kInt64 || !(indices.shape() == expected)) {
    return InvalidTensor(absl::StrCat("indices of a sparse tensor are ", indices.ToString(0),
                                      ", expected int64", expected.ToString()));
  }
  std::vector<int64_t> positions(count);
  const std::span<const int64_t> data = indices.data<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    int64_t position = flat ? data[i] : 0;
    for (int axis = 0; !flat && axis < shape.rank(); ++axis) {
      const int64_t index = data[i * shape.rank() + axis];
      if (index < 0 || index >= shape.dim(axis)) position = -1;
      if (position >= 0) position = position * shape.dim(axis) + index;
    }
    if (position < 0 || position >= shape.num_elements()) {
      return InvalidTensor(absl::StrCat("index ", i, " of a sparse tensor lies outside its shape ",
                                        shape.ToString()));
    }
    positions[i] = position;
  }
  return positions;
}

}  // namespace

absl::StatusOr<Tensor> CopyFromFile(const Tensor& tensor) {
  absl::StatusOr<Tensor> copy = tensor.Clone();
  ReleaseMappedPages({static_cast<const std::byte*>(tensor.raw_data()), tensor.bytes()});
  return copy;
}

bool IsAligned(const Tensor& tensor) {
  const auto element = static_cast<uintptr_t>(DTypeBytes(tensor.dtype(), 1));
  return reinterpret_cast<uintptr_t>(tensor.raw_data()) % std::max<uintptr_t>(element, 1) == 0;
}

absl::StatusOr<TensorHeader> DecodeTensorHeader(const onnx::TensorProto& proto) {
  TensorHeader header;
  if (!IsValidDType(proto.data_type())) {
    return InvalidTensor(absl::StrCat("data_type is ", proto.data_type(), ", expected 1 to ",
                                      kDTypeCount - 1, " (float32 to float6e3m2)"));
  }
  header.dtype = static_cast<DType>(proto.data_type());
  const std::span<const int64_t> dims(proto.dims().data(), proto.dims_size());
  WEFT_ASSIGN_OR_RETURN(header.shape, Shape::Create(dims));
  const int64_t bytes = DTypeBytes(header.dtype, header.shape.num_elements());
  if (bytes == std::numeric_limits<int64_t>::max()) {
    return InvalidTensor(absl::StrCat(Describe(header), " takes more than 2^63-1 bytes"));
  }
  header.bytes = static_cast<size_t>(bytes);
  if (proto.has_segment()) {
    return absl::UnimplementedError(
        "it is stored in segments, which no ONNX runtime reads; export the model again");
  }
  return header;
}

absl::StatusOr<Tensor> DecodeTensor(const onnx::TensorProto& proto, const TensorSource& source) {
  WEFT_ASSIGN_OR_RETURN(const TensorHeader header, DecodeTensorHeader(proto));
  WEFT_RETURN_IF_ERROR(CheckPayloadKind(proto, header));
  absl::StatusOr<Tensor> tensor;
  if (proto.data_location() == onnx::TensorProto::EXTERNAL) {
    tensor = FromExternal(proto, header, source);
  } else if (proto.has_file_bytes()) {
    tensor = FromOwnFile(proto, header, source);
  } else if (!proto.raw_data().empty()) {
    tensor = FromRaw(proto, header, source);
  } else {
    tensor = FromTyped(proto, header);
  }
  if (tensor.ok() && header.dtype == DType::kBool) NormalizeBools(*tensor);
  return tensor;
}

absl::StatusOr<Tensor> DecodeSparseTensor(const onnx::SparseTensorProto& proto,
                                          const TensorSource& source) {
  WEFT_ASSIGN_OR_RETURN(const Tensor values, DecodeTensor(proto.values(), source));
  WEFT_ASSIGN_OR_RETURN(const Tensor indices, DecodeTensor(proto.indices(), source));
  const std::span<const int64_t> dims(proto.dims().data(), proto.dims_size());
  WEFT_ASSIGN_OR_RETURN(const Shape shape, Shape::Create(dims));
  const int bits = DTypeBits(values.dtype());
  if (bits < 8) {
    return absl::UnimplementedError(absl::StrCat("a sparse tensor of ",
                                                 std::string(DTypeName(values.dtype())),
                                                 ", expected elements of whole bytes"));
  }
  if (DTypeBytes(values.dtype(), shape.num_elements()) > kMaxDenseBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a sparse tensor of shape ", shape.ToString(), " takes more than ", kMaxDenseBytes,
        " bytes in the dense form that is used here; export it dense"));
  }
  if (values.shape().rank() != 1) {
    return InvalidTensor(absl::StrCat("values of a sparse tensor are ", values.ToString(0),
                                      ", expected one dimension"));
  }
  const int64_t count = values.num_elements();
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> positions, FlatIndices(indices, shape, count));
  WEFT_ASSIGN_OR_RETURN(Tensor dense, Tensor::Zeros(values.dtype(), shape));
  const size_t size = static_cast<size_t>(bits) / 8;
  const char* from = static_cast<const char*>(values.raw_data());
  char* to = static_cast<char*>(dense.raw_data());
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + positions[i] * size, from + i * size, size);
  }
  return dense;
}

onnx::TensorProto EncodeTensor(const std::string& name, const Tensor& tensor) {
  onnx::TensorProto proto;
  if (!name.empty()) proto.set_name(name);
  proto.set_data_type(static_cast<int>(tensor.dtype()));
  for (const int64_t dim : tensor.shape().dims()) proto.add_dims(dim);
  if (tensor.dtype() == DType::kString) {
    for (const std::string& element : tensor.strings()) proto.add_string_data(element);
  } else {
    proto.set_raw_data(tensor.raw_data(), tensor.bytes());
  }
  return proto;
}

void ReplacePayload(const Tensor& tensor, onnx::TensorProto& proto) {
  if (tensor.bytes() == 0) return;  // nothing to replace, and nowhere to take it from
  const char* from = static_cast<const char*>(tensor.raw_data());
  if (proto.has_raw_data()) {
    proto.set_raw_data(from, tensor.bytes());
    return;
  }
  switch (TypedFieldOf(tensor.dtype())) {
    case TypedField::kFloat:
      std::memcpy(proto.mutable_float_data()->mutable_data(), from, tensor.bytes());
      break;
    case TypedField::kDouble:
      std::memcpy(proto.mutable_double_data()->mutable_data(), from, tensor.bytes());
      break;
    case TypedField::kInt64:
      std::memcpy(proto.mutable_int64_data()->mutable_data(), from, tensor.bytes());
      break;
    default: {
      if (!IsFloatingPoint(tensor.dtype())) {  // state of a model's own training
        proto.clear_int32_data();
        proto.clear_uint64_data();
        proto.set_raw_data(from, tensor.bytes());
        break;
      }
      // Trained tensors are floating: the 16-bit ones lie in int32_data.
      const size_t size = static_cast<size_t>(DTypeBits(tensor.dtype())) / 8;
      for (int i = 0; i < proto.int32_data_size(); ++i) {
        int32_t value = 0;
        std::memcpy(&value, from + i * size, size);
        proto.set_int32_data(i, value);
      }
    }
  }
}

}  // namespace weft
