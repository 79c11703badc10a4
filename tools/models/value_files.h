// Values written as files named after them.
#ifndef WEFT_TOOLS_MODELS_VALUE_FILES_H_
#define WEFT_TOOLS_MODELS_VALUE_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "onnx_import/importer.h"
#include "platform/file_system.h"
#include "tensor/tensor.h"
#include "tensor/value.h"

namespace weft {

// Writes FOLDER/NAME.npy and returns its path. What no file name can hold becomes "_" (names of
// values may hold any character). Types that .npy does not know are written as float32 (bfloat16)
// or are Unimplemented.
absl::StatusOr<std::string> WriteTensorFile(FileSystem& files, const std::string& folder,
                                            const std::string& name, const Tensor& tensor);

// The same for a value of any kind. What .npy cannot hold (a sequence, an optional, strings, 8- and
// 4-bit numbers) becomes FOLDER/NAME.pb: a SequenceProto, OptionalProto or TensorProto.
absl::StatusOr<std::string> WriteValueFile(FileSystem& files, const std::string& folder,
                                           const std::string& name, const Value& value);

// A value that the model declares as a map, or as a sequence of maps, as FOLDER/NAME.json
// (map_json.h).
absl::StatusOr<std::string> WriteMapFile(FileSystem& files, const std::string& folder,
                                         const std::string& name, const Value& value,
                                         const MapType& type);
// The value of a file of an input that the model declares so. Errors name file and input.
absl::StatusOr<Value> ReadMapFile(FileSystem& files, const std::string& path,
                                  const std::string& input, const MapType& type);

}  // namespace weft

#endif  // WEFT_TOOLS_MODELS_VALUE_FILES_H_
