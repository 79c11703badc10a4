// Which files beside it a model's tensors lie in.
#ifndef WEFT_ONNX_IMPORT_CODEC_EXTERNAL_LOCATIONS_H_
#define WEFT_ONNX_IMPORT_CODEC_EXTERNAL_LOCATIONS_H_

#include <set>
#include <string>

#include "onnx_import/codec/wire.pb.h"

namespace weft {

// The locations of all tensors with external data, relative to the model's folder, wherever they
// are: initializers, sparse ones, attributes, subgraphs, functions, training_info. As the file has
// them: nobody has checked that such files are there. Linear time, without recursion.
std::set<std::string> ExternalLocations(const onnx::ModelProto& model);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_CODEC_EXTERNAL_LOCATIONS_H_
