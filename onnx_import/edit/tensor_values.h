// TensorValues: compares the payloads of a file's tensors, and reads no more than that takes.
#ifndef WEFT_ONNX_IMPORT_EDIT_TENSOR_VALUES_H_
#define WEFT_ONNX_IMPORT_EDIT_TENSOR_VALUES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "onnx_import/edit/tensor_uses.h"
#include "onnx_import/model_file.h"
#include "tensor/tensor.h"

namespace weft {

enum class TensorMatch : uint8_t { kNone, kEqual, kTransposed };

// Borrows the file. A tensor that cannot be read (the importer says why) has no two equal elements
// and equals nothing. Pages of mapped files are given back after each call. Not thread-safe.
class TensorValues {
 public:
  explicit TensorValues(const ModelFile& file) : file_(file) {}

  // Whether all elements have the same bits, as those of fresh scales and biases; reads up to the
  // first that differs, once. False without elements.
  bool AllEqual(const FileTensor& tensor);
  // The bytes of eight elements, the same for a matrix and its transposed; nullopt where the tensor
  // cannot be read.
  std::optional<std::string> Sample(const FileTensor& tensor) const;
  // Whether more than half of its first 256 elements have bits of their own, as random weights do.
  bool MostlyDiffer(const FileTensor& tensor) const;
  // Whether b has the elements of a, or, of matrices, those of a transposed. Reads both up to the
  // first difference.
  TensorMatch Compare(const FileTensor& a, const FileTensor& b) const;

 private:
  std::optional<Tensor> Read(const FileTensor& tensor) const;

  const ModelFile& file_;
  std::map<std::string, bool> all_equal_;  // by name
};

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_TENSOR_VALUES_H_
