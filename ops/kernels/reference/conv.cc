// Convolution as its definition: each output element is a sum over input channels and window.
#include <string>
#include <vector>

#include "ops/kernels/reference/reference.h"
#include "ops/kernels/reference/window_walk.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// Calls fn(x, w, y) with the positions of every product x * w that y sums.
template <typename Fn>
absl::Status ForEachProduct(const Attributes& attributes, const Shape& x, const Shape& w,
                            const Shape& y, Fn fn) {
  const int64_t group = attributes.Int("group", 1);
  const std::vector<int64_t> kernel(w.dims().begin() + 2, w.dims().end());
  WEFT_ASSIGN_OR_RETURN(const WindowSpec spec, WindowSpec::Create(attributes, kernel));
  WEFT_ASSIGN_OR_RETURN(const std::vector<WindowAxis> axes, spec.ResolveAll(x));
  const int64_t x_plane = x.ProductOf(2, x.rank());
  const int64_t w_plane = w.ProductOf(2, w.rank());
  const int64_t y_plane = y.ProductOf(2, y.rank());
  const int64_t channels = w.dim(1);
  const int64_t outputs_of_group = w.dim(0) / group;
  for (int64_t n = 0; n < y.dim(0); ++n) {
    for (int64_t m = 0; m < y.dim(1); ++m) {
      const int64_t first = m / outputs_of_group * channels;
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t x_base = (n * x.dim(1) + first + c) * x_plane;
        const int64_t w_base = (m * channels + c) * w_plane;
        const int64_t y_base = (n * y.dim(1) + m) * y_plane;
        WalkWindows(axes, [&](int64_t out, int64_t in, int64_t tap) {
          if (in >= 0) fn(x_base + in, w_base + tap, y_base + out);
        });
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Conv(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  const ReferenceOperand& w = call.input(1);
  ReferenceOperand& y = call.output(0);
  if (call.has_input(2)) {
    const int64_t plane = y.shape.ProductOf(2, y.shape.rank());
    for (int64_t i = 0; i < y.size(); ++i) y[i] = call.input(2)[i / plane % y.shape.dim(1)];
  }
  return ForEachProduct(call.attributes(), x.shape, w.shape, y.shape,
                        [&](int64_t i, int64_t j, int64_t o) { y[o] += x[i] * w[j]; });
}

absl::Status ConvGradInput(ReferenceCall& call) {
  const ReferenceOperand& dy = call.input(0);
  const ReferenceOperand& w = call.input(1);
  ReferenceOperand& dx = call.output(0);
  return ForEachProduct(call.attributes(), dx.shape, w.shape, dy.shape,
                        [&](int64_t i, int64_t j, int64_t o) { dx[i] += dy[o] * w[j]; });
}

absl::Status ConvGradWeights(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  const ReferenceOperand& dy = call.input(1);
  ReferenceOperand& dw = call.output(0);
  if (call.has_output(1)) {
    const int64_t plane = dy.shape.ProductOf(2, dy.shape.rank());
    for (int64_t i = 0; i < dy.size(); ++i) {
      call.output(1)[i / plane % dy.shape.dim(1)] += dy[i];
    }
  }
  return ForEachProduct(call.attributes(), x.shape, dw.shape, dy.shape,
                        [&](int64_t i, int64_t j, int64_t o) { dw[j] += x[i] * dy[o]; });
}

}  // namespace

WEFT_REGISTER_REFERENCE_KERNEL("", "Conv", ReferenceKernel(Conv));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "ConvGradInput", ReferenceKernel(ConvGradInput));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "ConvGradWeights", ReferenceKernel(ConvGradWeights));

}  // namespace weft::cpu
