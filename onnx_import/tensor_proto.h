// Files that hold one value: the input_K.pb and output_K.pb of ONNX's test folders.
#ifndef WEFT_ONNX_IMPORT_TENSOR_PROTO_H_
#define WEFT_ONNX_IMPORT_TENSOR_PROTO_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "platform/file_system.h"
#include "tensor/value.h"

namespace weft {

// A value and the name that its file gives it.
struct NamedValue {
  std::string name;  // may be empty
  Value value;
};

// Decodes a TensorProto, SequenceProto or OptionalProto. The bytes do not say which of them they
// are: `kind` does (the kind of the graph's input or output). All dtypes. InvalidArgument when the
// bytes are no such message or do not fit together, Unimplemented for maps.
absl::StatusOr<NamedValue> ParseValue(std::string_view bytes, ValueKind kind);

// The same for a file; errors name it. NotFound when there is none.
absl::StatusOr<NamedValue> ReadValueFile(FileSystem& file_system, const std::string& path,
                                         ValueKind kind);

// The same for the value of a graph input or output of `type`. ONNX's older test folders hold
// bfloat16 and 8-bit floats as unsigned integers of the same width (NumPy had no such types): those
// become what `type` says. Other differences of dtype are left for the caller to find.
absl::StatusOr<NamedValue> ReadValueFile(FileSystem& file_system, const std::string& path,
                                         const ValueType& type);

// The bytes of a TensorProto, SequenceProto or OptionalProto. Equal values give equal bytes.
// REQUIRES: tensors are valid and on the host.
std::string SerializeValue(const std::string& name, const Value& value);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_TENSOR_PROTO_H_
