// TypeProto and ValueType, for the inside of onnx_import.
#ifndef WEFT_ONNX_IMPORT_CODEC_TYPE_CODEC_H_
#define WEFT_ONNX_IMPORT_CODEC_TYPE_CODEC_H_

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "onnx_import/codec/wire.pb.h"

namespace weft {

// A named dimension becomes a symbol; one without size or name, or of size -1 (as some exporters
// write it), is unknown. Of nested sequences and optionals the outermost kind and the innermost
// tensor count. A map is a sequence, of values and keys; the dtype is that of the values.
// InvalidArgument for impossible dimensions and unknown element types, Unimplemented for maps with
// other keys than int64 and strings or other values than tensors, sparse tensors and opaque values.
// A TypeProto that says nothing gives a tensor of
// unknown dtype.
absl::StatusOr<ValueType> DecodeType(const onnx::TypeProto& proto);

onnx::TypeProto EncodeType(const ValueType& type);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_CODEC_TYPE_CODEC_H_
