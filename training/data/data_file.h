// Array files, idx (plain or .gz) and .npy: read whole into host tensors, or their layout alone.
#ifndef WEFT_TRAINING_DATA_DATA_FILE_H_
#define WEFT_TRAINING_DATA_DATA_FILE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "platform/file_system.h"
#include "tensor/tensor.h"

namespace weft {

// The file's tensor, in the file's element type; axis 0 counts the samples. The format is told from
// the contents: gzip (unpacked first), NPY (https://numpy.org/neps/nep-0001-npy-format.html), IDX
// (the MNIST format). Errors name the file, what was found at which offset and what was expected.
// DataLoss for a truncated or damaged file, InvalidArgument for a format or type we do not read.
absl::StatusOr<Tensor> ReadDataFile(FileSystem& files, const std::string& path);

// Where the elements of an IDX or NPY file lie.
struct ArrayLayout {
  DType dtype = DType::kInvalid;
  Shape shape;
  size_t offset = 0;  // of the first element
  bool big_endian = false;
};

// Reads the header, and checks that the elements that it promises are there and nothing after them.
absl::StatusOr<ArrayLayout> ReadArrayLayout(std::string_view bytes, const std::string& name);

// One format each; `name` is for messages.
absl::StatusOr<Tensor> ParseIdx(std::string_view bytes, const std::string& name);
absl::StatusOr<Tensor> ParseNpy(std::string_view bytes, const std::string& name);
// The members of a gzip file, one after the other. InvalidArgument when they unpack to more than
// `max_bytes`: a small file can claim any size.
absl::StatusOr<std::string> GunzipToMemory(std::string_view bytes, const std::string& name,
                                           size_t max_bytes = size_t{16} << 30);

// How many bytes an IDX or NPY file has that begins so: those of its header, which must be whole,
// and of the elements that it promises.
absl::StatusOr<size_t> ArrayFileBytes(std::string_view beginning, const std::string& name);
// In how many of its first bytes the header of an array lies.
inline constexpr size_t kArrayHeaderBytes = size_t{1} << 20;

// NPY version 1.0. Real byte-sized types only.
absl::StatusOr<std::string> ToNpy(const Tensor& tensor);

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_DATA_FILE_H_
