// What the factories of this folder share: index operands and the reports of wrong ones.
#ifndef WEFT_OPS_KERNELS_CUDA_INDEXING_INDEX_OPERAND_H_
#define WEFT_OPS_KERNELS_CUDA_INDEXING_INDEX_OPERAND_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/blocks/real_operand.h"

namespace weft::cuda {

// "Gather 'embed': index": DeviceFault::source of a node. A kernel keeps it.
inline std::string IndexSource(const PrepareContext& context, const char* what = "index") {
  return absl::StrCat(context.node().op, " '", context.node().name, "': ", what);
}

// Of indices along an axis of `size`; negative ones count from the end.
inline FaultReport ReportOf(const KernelContext& run, const std::string& source, int64_t size) {
  return {run.stream->fault(), source.c_str(), -size, size};
}

inline IndexInput IndicesOf(const KernelContext& run, int i, DType dtype) {
  return {run.inputs[i], dtype == DType::kInt64};
}

// OK for int32 and int64.
inline absl::Status CheckIndexType(const PrepareContext& context, DType dtype) {
  if (dtype == DType::kInt32 || dtype == DType::kInt64) return absl::OkStatus();
  return context.Unimplemented(
      absl::StrCat("indices of ", std::string(DTypeName(dtype)), " on CUDA devices"));
}

// The largest unit, in bytes, that rows of so many bytes at these addresses consist of: 1 to 16.
inline int LargestUnit(int64_t row_bytes, const void* a, const void* b) {
  const uint64_t places = reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) |
                          static_cast<uint64_t>(row_bytes);
  int unit = 16;
  while (places % static_cast<uint64_t>(unit) != 0) unit /= 2;
  return unit;
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_INDEXING_INDEX_OPERAND_H_
