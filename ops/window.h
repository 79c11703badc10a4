// Windows over image axes: what the attributes of convolutions and pools mean.
#ifndef WEFT_OPS_WINDOW_H_
#define WEFT_OPS_WINDOW_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/attribute.h"
#include "tensor/shape.h"

namespace weft {

// The windows along one image axis of known size. Element t of output o's window is input element
// o * stride - pad_begin + t * dilation.
struct WindowAxis {
  int64_t input = 0;
  int64_t output = 0;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t pad_begin = 0;
  int64_t pad_end = 0;

  int64_t Start(int64_t output_index) const { return output_index * stride - pad_begin; }
  // The elements t of a window starting at `start` that lie in the image: [first, last).
  int64_t FirstInside(int64_t start) const {
    return start >= 0 ? 0 : (-start + dilation - 1) / dilation;
  }
  int64_t LastInside(int64_t start) const {
    const int64_t last = start >= input ? 0 : (input - start + dilation - 1) / dilation;
    return last < kernel ? last : kernel;
  }
};

// The attributes auto_pad, ceil_mode, dilations, pads and strides, checked. Value type.
class WindowSpec {
 public:
  // InvalidArgument naming the attribute: wrong length, or values out of range. `kernel` holds the
  // size of the window per image axis.
  static absl::StatusOr<WindowSpec> Create(const Attributes& attributes,
                                           std::vector<int64_t> kernel);

  int rank() const { return static_cast<int>(axes_.size()); }
  // The size of the output; known if `input` is, or if each input element has a window of its own.
  // InvalidArgument when no window fits.
  absl::StatusOr<Dim> OutputDim(int axis, const Dim& input) const;
  // With the padding that auto_pad asks for. InvalidArgument when no window fits.
  absl::StatusOr<WindowAxis> Resolve(int axis, int64_t input) const;
  // All axes of an image tensor [batch, channels, image...].
  absl::StatusOr<std::vector<WindowAxis>> ResolveAll(const Shape& image) const;

 private:
  enum class AutoPad : uint8_t { kNotSet, kSameUpper, kSameLower, kValid };

  std::vector<WindowAxis> axes_;  // without input and output
  AutoPad auto_pad_ = AutoPad::kNotSet;
  bool ceil_mode_ = false;
};

}  // namespace weft

#endif  // WEFT_OPS_WINDOW_H_
