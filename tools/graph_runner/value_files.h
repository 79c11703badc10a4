// Values written as files named after them.
#ifndef WEFT_TOOLS_GRAPH_RUNNER_VALUE_FILES_H_
#define WEFT_TOOLS_GRAPH_RUNNER_VALUE_FILES_H_

#include <string>

#include "absl/status/statusor.h"
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

}  // namespace weft

#endif  // WEFT_TOOLS_GRAPH_RUNNER_VALUE_FILES_H_
