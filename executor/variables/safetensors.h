// safetensors: tensors in a file that many tools read (https://huggingface.co/docs/safetensors).
// Eight bytes, little-endian: the length of the header. The header: JSON, for each tensor its
// dtype, shape and place in the data; spaces at its end. The data.
#ifndef WEFT_EXECUTOR_VARIABLES_SAFETENSORS_H_
#define WEFT_EXECUTOR_VARIABLES_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace weft {

// One tensor of a safetensors file: name, type, shape and position.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kInvalid;
  Shape shape;
  int64_t offset = 0;  // of its first byte, in the file
  int64_t bytes() const { return DTypeBytes(dtype, shape.num_elements()); }
};

// What a file holds. The tensors lie one after the other, without gaps, from the end of the header
// to that of the file.
struct SafetensorsLayout {
  std::string header;  // with its length before it: the begin of the file
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> tensors;  // in the order of their bytes
  int64_t file_bytes = 0;
};

// A longer header is refused: some hundred thousand tensors fit.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = int64_t{16} << 20;

// Where tensors of these names, dtypes and shapes lie (offsets are ignored): the widest elements
// first, by name among equals, so that each is aligned to its elements. Unimplemented for a dtype
// that the format does not have, InvalidArgument for a name twice.
absl::StatusOr<SafetensorsLayout> LayOutSafetensors(std::vector<SafetensorsEntry> tensors,
                                                    std::map<std::string, std::string> metadata);

// Reads and checks the header of `file`, which nobody needs to trust: lengths, dtypes, shapes,
// tensors that overlap or leave gaps. DataLoss naming `name`, the tensor and what is wrong.
absl::StatusOr<SafetensorsLayout> ParseSafetensors(std::span<const std::byte> file,
                                                   const std::string& name);

}  // namespace weft

#endif  // WEFT_EXECUTOR_VARIABLES_SAFETENSORS_H_
