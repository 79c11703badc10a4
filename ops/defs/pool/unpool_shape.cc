#include "ops/defs/pool/unpool_shape.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft {

absl::StatusOr<Shape> UnpooledShape(const Attributes& attributes, const Shape& pooled) {
  const size_t rank = static_cast<size_t>(pooled.rank()) - 2;
  const std::vector<int64_t> kernel = attributes.Ints("kernel_shape");
  const std::vector<int64_t> strides = attributes.Ints("strides", std::vector<int64_t>(rank, 1));
  const std::vector<int64_t> pads = attributes.Ints("pads", std::vector<int64_t>(2 * rank, 0));
  if (kernel.size() != rank || strides.size() != rank || pads.size() != 2 * rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("attributes kernel_shape, strides and pads have ", kernel.size(), ", ",
                     strides.size(), " and ", pads.size(), " values for ", rank, " image axes"));
  }
  std::vector<int64_t> sizes = {pooled.dim(0), pooled.dim(1)};
  for (size_t i = 0; i < rank; ++i) {
    const int64_t size = pooled.dim(static_cast<int>(i) + 2);
    const bool sane = kernel[i] >= 1 && kernel[i] <= kMaxDim && strides[i] >= 1 &&
                      strides[i] <= kMaxDim / std::max<int64_t>(size, 1) && pads[i] >= 0 &&
                      pads[i] <= kMaxDim && pads[rank + i] >= 0 && pads[rank + i] <= kMaxDim;
    const int64_t image =
        sane ? (size - 1) * strides[i] - pads[i] - pads[rank + i] + kernel[i] : -1;
    if (image < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "windows of ", kernel[i], " with stride ", strides[i], " and padding ", pads[i], " and ",
          pads[rank + i], " do not pool image axis ", i, " to ", size));
    }
    sizes.push_back(image);
  }
  return Shape::Create(sizes);
}

}  // namespace weft
