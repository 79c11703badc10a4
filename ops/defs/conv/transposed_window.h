// The windows of a transposed convolution.
#ifndef WEFT_OPS_DEFS_CONV_TRANSPOSED_WINDOW_H_
#define WEFT_OPS_DEFS_CONV_TRANSPOSED_WINDOW_H_

#include <vector>

#include "absl/status/statusor.h"
#include "graph/attribute.h"
#include "ops/window.h"

namespace weft {

// One per image axis, as the convolution has them that goes back from Y to X: `input` is the size
// of Y, `output` that of X (`image`), with the padding that the attributes auto_pad,
// output_padding, output_shape and pads ask for. InvalidArgument naming the attribute that does not
// fit.
absl::StatusOr<std::vector<WindowAxis>> TransposedWindows(const Attributes& attributes,
                                                          const std::vector<int64_t>& kernel,
                                                          const std::vector<int64_t>& image);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_CONV_TRANSPOSED_WINDOW_H_
