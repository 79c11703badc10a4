#include "absl/strings/str_cat.h"
#include "ops/kernels/reference/reference.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// ddata[o, index[i], k] += dy[o, i, k]
absl::Status GatherGrad(ReferenceCall& call) {
  ReferenceOperand& output = call.output(0);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(call.attributes().Int("axis", 0), output.shape.rank()));
  const int64_t outer = output.shape.ProductOf(0, axis);
  const int64_t rows = output.shape.dim(axis);
  const int64_t inner = output.shape.ProductOf(axis + 1, output.shape.rank());
  const int64_t count = call.input(1).size();
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < count; ++i) {
      int64_t row = static_cast<int64_t>(call.input(1)[i]);
      if (row < 0) row += rows;
      if (row < 0 || row >= rows) {
        return absl::InvalidArgumentError(absl::StrCat("index ", i, " is outside"));
      }
      for (int64_t k = 0; k < inner; ++k) {
        output[(o * rows + row) * inner + k] += call.input(0)[(o * count + i) * inner + k];
      }
    }
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "GatherGrad", ReferenceKernel(GatherGrad));

}  // namespace
}  // namespace weft::cpu
