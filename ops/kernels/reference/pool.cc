// Pools, from their definitions.
#include <limits>
#include <vector>

#include "ops/kernels/reference/reference.h"
#include "ops/kernels/reference/window_walk.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

absl::StatusOr<std::vector<WindowAxis>> AxesOf(const ReferenceCall& call, const Shape& x) {
  WEFT_ASSIGN_OR_RETURN(
      const WindowSpec spec,
      WindowSpec::Create(call.attributes(), call.attributes().Ints("kernel_shape")));
  return spec.ResolveAll(x);
}

// Position in the global tensor of position `in` of plane `plane` of this shard.
double GlobalIndex(const ReferenceCall& call, const ReferenceOperand& x, int64_t plane,
                   int64_t in) {
  const int64_t channels = x.shape.dim(1);
  const int64_t sample = x.slice.offset[0] + plane / channels;
  const int64_t channel = x.slice.offset[1] + plane % channels;
  const int64_t base =
      (sample * x.slice.global_shape.dim(1) + channel) * x.shape.ProductOf(2, x.shape.rank());
  if (call.attributes().Int("storage_order", 0) == 0) return static_cast<double>(base + in);
  int64_t index = 0;
  for (int d = x.shape.rank() - 1; d >= 2; --d) {
    index = index * x.shape.dim(d) + in % x.shape.dim(d);
    in /= x.shape.dim(d);
  }
  return static_cast<double>(base + index);
}

absl::Status MaxPool(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  ReferenceOperand& y = call.output(0);
  WEFT_ASSIGN_OR_RETURN(const std::vector<WindowAxis> axes, AxesOf(call, x.shape));
  const int64_t x_plane = x.shape.ProductOf(2, x.shape.rank());
  const int64_t y_plane = y.shape.ProductOf(2, y.shape.rank());
  for (int64_t plane = 0; plane < x.shape.ProductOf(0, 2); ++plane) {
    std::vector<int64_t> best(y_plane, -1);
    WalkWindows(axes, [&](int64_t out, int64_t in, int64_t) {
      if (in < 0) return;
      const double* const image = x.values.data() + plane * x_plane;
      if (best[out] < 0 || image[in] > image[best[out]]) best[out] = in;
    });
    for (int64_t out = 0; out < y_plane; ++out) {
      y[plane * y_plane + out] = x[plane * x_plane + best[out]];
      if (call.has_output(1)) {
        call.output(1)[plane * y_plane + out] = GlobalIndex(call, x, plane, best[out]);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status MaxPoolGrad(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  const ReferenceOperand& y = call.input(1);
  ReferenceOperand& dx = call.output(0);
  WEFT_ASSIGN_OR_RETURN(const std::vector<WindowAxis> axes, AxesOf(call, x.shape));
  const int64_t x_plane = x.shape.ProductOf(2, x.shape.rank());
  const int64_t y_plane = y.shape.ProductOf(2, y.shape.rank());
  for (int64_t plane = 0; plane < x.shape.ProductOf(0, 2); ++plane) {
    std::vector<bool> given(y_plane, false);
    WalkWindows(axes, [&](int64_t out, int64_t in, int64_t) {
      const int64_t o = plane * y_plane + out;
      if (in < 0 || given[out] || x[plane * x_plane + in] != y[o]) return;
      dx[plane * x_plane + in] += call.input(2)[o];
      given[out] = true;
    });
  }
  return absl::OkStatus();
}

// How many elements each output averages.
std::vector<double> Counts(const ReferenceCall& call, const std::vector<WindowAxis>& axes,
                           int64_t outputs) {
  const bool padding = call.attributes().Int("count_include_pad", 0) != 0;
  std::vector<double> counts(outputs, 0);
  WalkWindows(axes, [&](int64_t out, int64_t in, int64_t) {
    if (in >= 0 || (in == -1 && padding)) counts[out] += 1;
  });
  return counts;
}

absl::Status AveragePool(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  ReferenceOperand& y = call.output(0);
  WEFT_ASSIGN_OR_RETURN(const std::vector<WindowAxis> axes, AxesOf(call, x.shape));
  const int64_t x_plane = x.shape.ProductOf(2, x.shape.rank());
  const int64_t y_plane = y.shape.ProductOf(2, y.shape.rank());
  const std::vector<double> counts = Counts(call, axes, y_plane);
  for (int64_t plane = 0; plane < x.shape.ProductOf(0, 2); ++plane) {
    WalkWindows(axes, [&](int64_t out, int64_t in, int64_t) {
      if (in >= 0) y[plane * y_plane + out] += x[plane * x_plane + in] / counts[out];
    });
  }
  return absl::OkStatus();
}

absl::Status AveragePoolGrad(ReferenceCall& call) {
  const ReferenceOperand& dy = call.input(0);
  ReferenceOperand& dx = call.output(0);
  WEFT_ASSIGN_OR_RETURN(const std::vector<WindowAxis> axes, AxesOf(call, dx.shape));
  const int64_t x_plane = dx.shape.ProductOf(2, dx.shape.rank());
  const int64_t y_plane = dy.shape.ProductOf(2, dy.shape.rank());
  const std::vector<double> counts = Counts(call, axes, y_plane);
  for (int64_t plane = 0; plane < dx.shape.ProductOf(0, 2); ++plane) {
    WalkWindows(axes, [&](int64_t out, int64_t in, int64_t) {
      if (in >= 0) dx[plane * x_plane + in] += dy[plane * y_plane + out] / counts[out];
    });
  }
  return absl::OkStatus();
}

absl::Status GlobalAveragePool(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  const int64_t plane = x.shape.ProductOf(2, x.shape.rank());
  for (int64_t i = 0; i < x.size(); ++i) {
    call.output(0)[i / plane] += x[i] / static_cast<double>(plane);
  }
  return absl::OkStatus();
}

absl::Status GlobalAveragePoolGrad(ReferenceCall& call) {
  ReferenceOperand& dx = call.output(0);
  const int64_t plane = dx.shape.ProductOf(2, dx.shape.rank());
  for (int64_t i = 0; i < dx.size(); ++i) {
    dx[i] = call.input(0)[i / plane] / static_cast<double>(plane);
  }
  return absl::OkStatus();
}

}  // namespace

WEFT_REGISTER_REFERENCE_KERNEL("", "MaxPool", ReferenceKernel(MaxPool));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "MaxPoolGrad", ReferenceKernel(MaxPoolGrad));
WEFT_REGISTER_REFERENCE_KERNEL("", "AveragePool", ReferenceKernel(AveragePool));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "AveragePoolGrad", ReferenceKernel(AveragePoolGrad));
WEFT_REGISTER_REFERENCE_KERNEL("", "GlobalAveragePool", ReferenceKernel(GlobalAveragePool));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "GlobalAveragePoolGrad",
                               ReferenceKernel(GlobalAveragePoolGrad));

}  // namespace weft::cpu
