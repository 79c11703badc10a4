#include "ops/kernels/cuda/quantized/byte_lines.h"

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft::cuda {

absl::StatusOr<LinePlace> LinePlaceOf(const PrepareContext& context, int input, int64_t lines,
                                      int64_t matrices) {
  const int64_t count = context.HasInput(input) ? context.InputShape(input).num_elements() : 1;
  LinePlace place;
  if (count == 1) return place;
  if (count != lines && count != lines * matrices) {
    return context.InvalidArgument(
        absl::StrCat("input ", input, " has ", count, " elements, expected 1 or ", lines));
  }
  place.line_step = 1;
  if (count == lines) return place;
  place.matrix_step = lines;
  place.period = matrices > 0 ? matrices : 1;
  return place;
}

absl::StatusOr<ByteLines> ByteLinesOf(const PrepareContext& context, int input, int64_t lines,
                                      int64_t matrices) {
  ByteLines zeros;
  WEFT_ASSIGN_OR_RETURN(zeros.place, LinePlaceOf(context, input, lines, matrices));
  if (context.HasInput(input)) zeros.format = MakeByteFormat(context.InputDType(input));
  return zeros;
}

}  // namespace weft::cuda
