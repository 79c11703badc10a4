// ElementCodes: integers in place of elements that no kernel computes with.
#ifndef WEFT_OPS_ELEMENT_CODES_H_
#define WEFT_OPS_ELEMENT_CODES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensor/tensor.h"

namespace weft {

// A one-to-one map between the elements of some tensors of one dtype and integers, so that an op
// which only moves elements runs on the integers instead. Bytes and 16-bit elements are their own
// codes, packed ones are unpacked, strings and complex numbers are numbered in order. The
// zero of the dtype (the empty string) has the code 0, and strings' codes are ordered as the
// strings are.
class ElementCodes {
 public:
  // REQUIRES: `tensors` are of `dtype` and on the host.
  ElementCodes(DType dtype, const std::vector<Tensor>& tensors);
  // kInvalid for dtypes that have no codes (a kernel's own numbers).
  static DType CodeType(DType dtype);

  // A tensor of CodeType(dtype). REQUIRES: one of the tensors of the constructor.
  absl::StatusOr<Tensor> Encode(const Tensor& tensor) const;
  // Internal when a code stands for no element.
  absl::StatusOr<Tensor> Decode(const Tensor& codes) const;

 private:
  const DType dtype_;
  std::vector<std::string> elements_;  // by code; of strings and complex numbers
};

}  // namespace weft

#endif  // WEFT_OPS_ELEMENT_CODES_H_
