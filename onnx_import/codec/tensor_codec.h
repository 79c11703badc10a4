// TensorProto and Tensor, for the inside of onnx_import.
#ifndef WEFT_ONNX_IMPORT_CODEC_TENSOR_CODEC_H_
#define WEFT_ONNX_IMPORT_CODEC_TENSOR_CODEC_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx_import/codec/external_data.h"
#include "onnx_import/codec/wire.pb.h"
#include "tensor/tensor.h"

namespace weft {

// Where the bytes of a tensor may come from and how long they live.
struct TensorSource {
  // Keeps the TensorProto alive: larger raw payloads are then shared with it, not copied (and may
  // be unaligned). Null: always copied.
  std::shared_ptr<const void> owner;
  // Null: external data is refused, and data that was left in the model's file.
  ExternalData* external = nullptr;
};

// Decodes all of ONNX's dtypes from raw, typed or external data. InvalidArgument when dtype, dims
// and payload do not fit together, the error of Map for external data. The text does not name the
// tensor.
absl::StatusOr<Tensor> DecodeTensor(const onnx::TensorProto& proto, const TensorSource& source);

// The dense form; ResourceExhausted above 64 MiB.
absl::StatusOr<Tensor> DecodeSparseTensor(const onnx::SparseTensorProto& proto,
                                          const TensorSource& source);

// Whether its elements are at multiples of their size. REQUIRES: on the host, no strings.
bool IsAligned(const Tensor& tensor);

// A copy in memory of its own. Where the elements lie in a mapped file, their pages are released
// (platform/mapped_pages.h). The errors of Tensor::Clone. REQUIRES: on the host, no strings.
absl::StatusOr<Tensor> CopyFromFile(const Tensor& tensor);

// dtype and shape alone, checked. `proto` may lack its payload.
struct TensorHeader {
  DType dtype = DType::kInvalid;
  Shape shape;
  size_t bytes = 0;  // packed; 0 for strings
};
absl::StatusOr<TensorHeader> DecodeTensorHeader(const onnx::TensorProto& proto);

// raw_data, or string_data for strings. REQUIRES: a valid tensor on the host.
onnx::TensorProto EncodeTensor(const std::string& name, const Tensor& tensor);

// Puts the elements of `tensor` into the fields that `proto` uses now: raw_data when it has that,
// the typed field otherwise. REQUIRES: same dtype and shape, not strings, not external.
void ReplacePayload(const Tensor& tensor, onnx::TensorProto& proto);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_CODEC_TENSOR_CODEC_H_
