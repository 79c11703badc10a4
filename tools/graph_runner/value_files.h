// Tensors written as .npy files named after values.
#ifndef WEFT_TOOLS_GRAPH_RUNNER_VALUE_FILES_H_
#define WEFT_TOOLS_GRAPH_RUNNER_VALUE_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "platform/file_system.h"
#include "tensor/tensor.h"

namespace weft {

// Writes FOLDER/NAME.npy and returns its path. What no file name can hold becomes "_" (names of
// values may hold any character). Types that .npy does not know are written as float32 (bfloat16)
// or are Unimplemented.
absl::StatusOr<std::string> WriteTensorFile(FileSystem& files, const std::string& folder,
                                            const std::string& name, const Tensor& tensor);

}  // namespace weft

#endif  // WEFT_TOOLS_GRAPH_RUNNER_VALUE_FILES_H_
