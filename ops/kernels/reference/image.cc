// Ops on images, from their definitions: padding, blocks, resizing, transposed convolution, pools.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/defs/conv/transposed_window.h"
#include "ops/defs/image/resize_axis.h"
#include "ops/kernels/reference/reference.h"
#include "ops/kernels/reference/window_walk.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

std::vector<int64_t> Position(const Shape& shape, int64_t flat) {
  std::vector<int64_t> position(shape.rank());
  for (int i = shape.rank() - 1; i >= 0; --i) {
    position[i] = flat % shape.dim(i);
    flat /= shape.dim(i);
  }
  return position;
}

int64_t Flat(const Shape& shape, const std::vector<int64_t>& position) {
  int64_t flat = 0;
  for (int i = 0; i < shape.rank(); ++i) flat = flat * shape.dim(i) + position[i];
  return flat;
}

// ---- Movement.

// One step at a time from outside into what stays, [first, last).
int64_t Bounce(int64_t i, int64_t first, int64_t last, const std::string& mode) {
  while (i < first || i >= last) {
    const bool before = i < first;
    if (mode == "edge") {
      i = before ? first : last - 1;
    } else if (mode == "wrap") {
      i += before ? last - first : first - last;
    } else {
      i = last - first == 1 ? first : before ? 2 * first - i : 2 * (last - 1) - i;
    }
  }
  return i;
}

absl::Status Pad(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  ReferenceOperand& y = call.output(0);
  const std::string mode = call.attributes().String("mode", "constant");
  const int rank = x.shape.rank();
  std::vector<int64_t> begin(rank, 0);
  std::vector<int64_t> end(rank, 0);
  const int64_t axes = call.input(1).size() / 2;
  for (int64_t i = 0; i < axes; ++i) {
    int64_t axis = call.has_input(3) ? static_cast<int64_t>(call.input(3)[i]) : i;
    if (axis < 0) axis += rank;
    begin[axis] = static_cast<int64_t>(call.input(1)[i]);
    end[axis] = static_cast<int64_t>(call.input(1)[axes + i]);
  }
  for (int64_t i = 0; i < y.size(); ++i) {
    std::vector<int64_t> at = Position(y.shape, i);
    bool constant = false;
    for (int axis = 0; axis < rank; ++axis) {
      const int64_t first = std::max<int64_t>(-begin[axis], 0);
      const int64_t last = x.shape.dim(axis) - std::max<int64_t>(-end[axis], 0);
      at[axis] -= begin[axis];
      constant |= mode == "constant" && (at[axis] < first || at[axis] >= last);
      if (mode != "constant") at[axis] = Bounce(at[axis], first, last, mode);
    }
    y[i] = constant ? (call.has_input(2) ? call.input(2)[0] : 0.0) : x[Flat(x.shape, at)];
  }
  return absl::OkStatus();
}

// Calls fn(element of the image, element of the deep tensor).
template <typename Fn>
void WalkBlocks(const Attributes& attributes, const Shape& image, const Shape& deep, Fn fn) {
  const int64_t block = attributes.Int("blocksize", 1);
  const bool depth_first = attributes.String("mode", "DCR") == "DCR";
  for (int64_t i = 0; i < image.num_elements(); ++i) {
    const std::vector<int64_t> at = Position(image, i);
    const int64_t place = at[2] % block * block + at[3] % block;
    const int64_t channel =
        depth_first ? place * image.dim(1) + at[1] : at[1] * block * block + place;
    fn(i, Flat(deep, {at[0], channel, at[2] / block, at[3] / block}));
  }
}

absl::Status DepthToSpace(ReferenceCall& call) {
  WalkBlocks(call.attributes(), call.output(0).shape, call.input(0).shape,
             [&](int64_t image, int64_t deep) { call.output(0)[image] = call.input(0)[deep]; });
  return absl::OkStatus();
}

absl::Status SpaceToDepth(ReferenceCall& call) {
  WalkBlocks(call.attributes(), call.input(0).shape, call.output(0).shape,
             [&](int64_t image, int64_t deep) { call.output(0)[deep] = call.input(0)[image]; });
  return absl::OkStatus();
}

absl::Status ReverseSequence(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  const int64_t batch = call.attributes().Int("batch_axis", 1);
  const int64_t time = call.attributes().Int("time_axis", 0);
  for (int64_t i = 0; i < x.size(); ++i) {
    std::vector<int64_t> at = Position(x.shape, i);
    const int64_t length = static_cast<int64_t>(call.input(1)[at[batch]]);
    if (at[time] < length) at[time] = length - 1 - at[time];
    call.output(0)[i] = x[Flat(x.shape, at)];
  }
  return absl::OkStatus();
}

// ---- Resize: every output as one sum over the products of all axes' taps.

class ResizeSum {
 public:
  ResizeSum(const ReferenceOperand& x, const std::vector<ResizeTaps>& taps) : x_(x), taps_(taps) {}

  double Of(const std::vector<int64_t>& output, size_t axis = 0, int64_t offset = 0) const {
    if (axis == taps_.size()) return x_[offset];
    double sum = 0;
    const ResizeTaps& taps = taps_[axis];
    for (int64_t k = output[axis] * taps.taps; k < (output[axis] + 1) * taps.taps; ++k) {
      const int64_t next = offset * x_.shape.dim(static_cast<int>(axis)) + taps.indices[k];
      sum += taps.weights[k] * Of(output, axis + 1, next);
    }
    return sum;
  }

 private:
  const ReferenceOperand& x_;
  const std::vector<ResizeTaps>& taps_;
};

absl::Status Resize(ReferenceCall& call) {
  const auto values = [&](int i) {
    return call.has_input(i) ? call.input(i).values : std::vector<double>();
  };
  const std::vector<double> sizes = values(3);
  WEFT_ASSIGN_OR_RETURN(const ResizeSpec spec, ResizeSpec::Create(call.attributes()));
  WEFT_ASSIGN_OR_RETURN(const std::vector<ResizeAxis> axes,
                        ReadResizeAxes(call.attributes(), call.input(0).shape, values(1), values(2),
                                       std::vector<int64_t>(sizes.begin(), sizes.end())));
  ReferenceOperand& y = call.output(0);
  if (y.size() == 0) return absl::OkStatus();
  std::vector<ResizeTaps> taps;
  for (const ResizeAxis& axis : axes) {
    ResizeTaps& own = taps.emplace_back();
    if (!axis.IsIdentity()) {
      own = MakeResizeTaps(spec, axis);
      continue;
    }
    for (int64_t i = 0; i < axis.input; ++i) own.indices.push_back(i);
    own.weights.assign(axis.input, 1.0);
  }
  const ResizeSum sum(call.input(0), taps);
  for (int64_t i = 0; i < y.size(); ++i) {
    const std::vector<int64_t> at = Position(y.shape, i);
    bool outside = false;
    for (size_t axis = 0; axis < taps.size(); ++axis) {
      outside |= !taps[axis].outside.empty() && taps[axis].outside[at[axis]];
    }
    y[i] = outside ? spec.extrapolation_value : sum.Of(at);
  }
  return absl::OkStatus();
}

// ---- Windows.

absl::Status ConvTranspose(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  const ReferenceOperand& w = call.input(1);
  ReferenceOperand& y = call.output(0);
  const int64_t group = call.attributes().Int("group", 1);
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<WindowAxis> axes,
      TransposedWindows(call.attributes(),
                        std::vector<int64_t>(w.shape.dims().begin() + 2, w.shape.dims().end()),
                        std::vector<int64_t>(x.shape.dims().begin() + 2, x.shape.dims().end())));
  const int64_t taps = w.shape.ProductOf(2, w.shape.rank());
  const int64_t x_plane = x.shape.ProductOf(2, x.shape.rank());
  const int64_t y_plane = y.shape.ProductOf(2, y.shape.rank());
  const int64_t x_channels = x.shape.dim(1);
  const int64_t y_channels = y.shape.dim(1);
  for (int64_t i = 0; call.has_input(2) && i < y.size(); ++i) {
    y[i] = call.input(2)[i / y_plane % y_channels];
  }
  for (int64_t n = 0; n < x.shape.dim(0); ++n) {
    for (int64_t c = 0; c < x_channels; ++c) {
      const int64_t first = c / (x_channels / group) * (y_channels / group);
      for (int64_t m = 0; m < w.shape.dim(1); ++m) {
        const int64_t from = (n * x_channels + c) * x_plane;
        const int64_t to = (n * y_channels + first + m) * y_plane;
        WalkWindows(axes, [&](int64_t small, int64_t large, int64_t tap) {
          if (large < 0) return;
          y[to + large] += x[from + small] * w[(c * w.shape.dim(1) + m) * taps + tap];
        });
      }
    }
  }
  return absl::OkStatus();
}

absl::Status LpPool(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  ReferenceOperand& y = call.output(0);
  const double p = static_cast<double>(call.attributes().Int("p", 2));
  WEFT_ASSIGN_OR_RETURN(
      const WindowSpec spec,
      WindowSpec::Create(call.attributes(), call.attributes().Ints("kernel_shape")));
  WEFT_ASSIGN_OR_RETURN(const std::vector<WindowAxis> axes, spec.ResolveAll(x.shape));
  const int64_t x_plane = x.shape.ProductOf(2, x.shape.rank());
  const int64_t y_plane = y.shape.ProductOf(2, y.shape.rank());
  for (int64_t plane = 0; plane < x.shape.ProductOf(0, 2); ++plane) {
    WalkWindows(axes, [&](int64_t out, int64_t in, int64_t) {
      if (in >= 0) y[plane * y_plane + out] += std::pow(std::abs(x[plane * x_plane + in]), p);
    });
  }
  for (double& value : y.values) value = std::pow(value, 1 / p);
  return absl::OkStatus();
}

absl::Status GlobalLpPool(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  ReferenceOperand& y = call.output(0);
  const double p = static_cast<double>(call.attributes().Int("p", 2));
  const int64_t plane = x.shape.ProductOf(2, x.shape.rank());
  for (int64_t i = 0; i < x.size(); ++i) y[i / plane] += std::pow(std::abs(x[i]), p);
  for (double& value : y.values) value = std::pow(value, 1 / p);
  return absl::OkStatus();
}

absl::Status GlobalMaxPool(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  ReferenceOperand& y = call.output(0);
  const int64_t plane = x.shape.ProductOf(2, x.shape.rank());
  for (int64_t i = 0; i < x.size(); ++i) {
    y[i / plane] = i % plane == 0 ? x[i] : std::max(y[i / plane], x[i]);
  }
  return absl::OkStatus();
}

}  // namespace

WEFT_REGISTER_REFERENCE_KERNEL("", "Pad", ReferenceKernel(Pad));
WEFT_REGISTER_REFERENCE_KERNEL("", "DepthToSpace", ReferenceKernel(DepthToSpace));
WEFT_REGISTER_REFERENCE_KERNEL("", "SpaceToDepth", ReferenceKernel(SpaceToDepth));
WEFT_REGISTER_REFERENCE_KERNEL("", "ReverseSequence", ReferenceKernel(ReverseSequence));
WEFT_REGISTER_REFERENCE_KERNEL("", "Resize", ReferenceKernel(Resize));
WEFT_REGISTER_REFERENCE_KERNEL("", "ConvTranspose", ReferenceKernel(ConvTranspose));
WEFT_REGISTER_REFERENCE_KERNEL("", "LpPool", ReferenceKernel(LpPool));
WEFT_REGISTER_REFERENCE_KERNEL("", "GlobalLpPool", ReferenceKernel(GlobalLpPool));
WEFT_REGISTER_REFERENCE_KERNEL("", "GlobalMaxPool", ReferenceKernel(GlobalMaxPool));

}  // namespace weft::cpu
