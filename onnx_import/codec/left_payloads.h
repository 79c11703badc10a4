// A model's bytes without its weights, which stay in the file.
#ifndef WEFT_ONNX_IMPORT_CODEC_LEFT_PAYLOADS_H_
#define WEFT_ONNX_IMPORT_CODEC_LEFT_PAYLOADS_H_

#include <cstddef>
#include <string_view>

#include "onnx_import/codec/byte_rope.h"

namespace weft {

// Raw data of so many bytes is left in the file, shorter data becomes part of the parsed model.
inline constexpr size_t kLeftPayloadBytes = size_t{64} << 10;

// `bytes`, an encoded ModelProto that ScanWire has checked, without the large raw_data of the main
// graph's initializers and of its nodes' tensors. There, TensorProto.file_offset and file_bytes say
// where in `bytes` it is. Reads none of it. The rope refers to `bytes`.
ByteRope LeavePayloads(std::string_view bytes);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_CODEC_LEFT_PAYLOADS_H_
