// AttributeProto and Attribute, for the inside of onnx_import.
#ifndef WEFT_ONNX_IMPORT_CODEC_ATTRIBUTE_CODEC_H_
#define WEFT_ONNX_IMPORT_CODEC_ATTRIBUTE_CODEC_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "graph/attribute.h"
#include "onnx_import/codec/tensor_codec.h"
#include "onnx_import/codec/wire.pb.h"

namespace weft {

// Attributes of kinds that Graph cannot hold (types, sparse tensors, lists of graphs) are kept as
// the encoded AttributeProto in a string attribute of this prefix and the attribute's name.
inline constexpr char kEncodedAttributePrefix[] = "weft.encoded.";

using DecodeSubgraphFn =
    std::function<absl::StatusOr<std::shared_ptr<Graph>>(const onnx::GraphProto&)>;
using EncodeSubgraphFn = std::function<onnx::GraphProto(const Graph&)>;

// Sets `attributes[name]` (or its encoded form). InvalidArgument when type and contents disagree or
// a tensor is broken; the text names the attribute.
absl::Status DecodeAttribute(const std::string& name, const onnx::AttributeProto& proto,
                             const TensorSource& source, const DecodeSubgraphFn& decode_subgraph,
                             Attributes& attributes);

onnx::AttributeProto EncodeAttribute(const std::string& name, const Attribute& attribute,
                                     const EncodeSubgraphFn& encode_subgraph);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_CODEC_ATTRIBUTE_CODEC_H_
