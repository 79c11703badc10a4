// Where the scales and zero points of products of bytes lie. For factories.
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_LINES_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_LINES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/quantized/byte_format.h"

namespace weft::cuda {

// An input with one element for all, one for each of `lines` rows or columns of a matrix, or one
// for each line of each of `matrices`. An absent input is one for all. InvalidArgument for another
// number of elements.
absl::StatusOr<LinePlace> LinePlaceOf(const PrepareContext& context, int input, int64_t lines,
                                      int64_t matrices);

// Zero points that `input` holds; At gives 0 where it is absent. The address is that of a run.
absl::StatusOr<ByteLines> ByteLinesOf(const PrepareContext& context, int input, int64_t lines,
                                      int64_t matrices);

// The address of input i in a run, null where the node has none.
inline const void* OptionalInput(const KernelContext& run, bool is_present, int i) {
  return is_present ? run.inputs[i] : nullptr;
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_BYTE_LINES_H_
