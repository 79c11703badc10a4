// ConvInteger and QLinearConv: windows are laid out as rows and multiplied with the filters.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "ops/kernels/cpu/linear/integer_product.h"
#include "ops/window.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// Output positions whose windows are laid out at a time.
constexpr int64_t kPositions = 64;

// Which operands a convolution has.
struct ConvInputs {
  int x;
  int x_zero;
  int w;
  int w_zero;
};

struct ConvGeometry {
  int64_t batch = 0;
  int64_t group = 1;
  int64_t channels = 0;  // of X, per group
  int64_t filters = 0;   // per group
  std::vector<WindowAxis> axes;
  int64_t image = 1;      // elements of one channel of X
  int64_t positions = 1;  // elements of one channel of Y
  int64_t taps = 1;       // of one channel of a window

  int64_t window() const { return channels * taps; }
};

absl::StatusOr<ConvGeometry> GeometryOf(const PrepareContext& context, const ConvInputs& inputs) {
  const Shape& x = context.InputShape(inputs.x);
  const Shape& w = context.InputShape(inputs.w);
  std::vector<int64_t> kernel(w.dims().begin() + 2, w.dims().end());
  WEFT_ASSIGN_OR_RETURN(const WindowSpec spec,
                        WindowSpec::Create(context.attributes(), std::move(kernel)));
  ConvGeometry geometry;
  WEFT_ASSIGN_OR_RETURN(geometry.axes, spec.ResolveAll(x));
  geometry.batch = x.dim(0);
  geometry.group = context.attributes().Int("group", 1);
  geometry.channels = w.dim(1);
  geometry.filters = w.dim(0) / geometry.group;
  for (const WindowAxis& axis : geometry.axes) {
    geometry.image *= axis.input;
    geometry.positions *= axis.output;
    geometry.taps *= axis.kernel;
  }
  return geometry;
}

// The window of output position `position` in one channel, less the zero point; padding gives 0.
template <typename X>
void LayOutChannel(const ConvGeometry& g, const X* image, int32_t zero, int64_t position,
                   int16_t* out) {
  std::array<int64_t, kMaxRank> starts;
  for (int d = static_cast<int>(g.axes.size()) - 1; d >= 0; --d) {
    starts[d] = g.axes[d].Start(position % g.axes[d].output);
    position /= g.axes[d].output;
  }
  for (int64_t tap = 0; tap < g.taps; ++tap) {
    int64_t rest = tap;
    int64_t offset = 0;
    int64_t stride = 1;
    bool inside = true;
    for (int d = static_cast<int>(g.axes.size()) - 1; d >= 0; --d) {
      const WindowAxis& axis = g.axes[d];
      const int64_t at = starts[d] + rest % axis.kernel * axis.dilation;
      rest /= axis.kernel;
      inside = inside && at >= 0 && at < axis.input;
      offset += at * stride;
      stride *= axis.input;
    }
    out[tap] = inside ? static_cast<int16_t>(image[offset] - zero) : int16_t{0};
  }
}

// The sums of products of a convolution of 8-bit operands, with or without zero points.
template <typename X, typename W>
class IntegerConv {
 public:
  static absl::StatusOr<IntegerConv> Make(const PrepareContext& context, const ConvInputs& inputs,
                                          WorkspaceLayout& layout) {
    WEFT_ASSIGN_OR_RETURN(ConvGeometry geometry, GeometryOf(context, inputs));
    if (context.HasInput(inputs.x_zero) && context.InputShape(inputs.x_zero).num_elements() != 1) {
      return context.InvalidArgument("the zero point of X must have one element");
    }
    const int64_t filters = geometry.filters * geometry.group;
    const int64_t zeros =
        context.HasInput(inputs.w_zero) ? context.InputShape(inputs.w_zero).num_elements() : 1;
    if (zeros != 1 && zeros != filters) {
      return context.InvalidArgument(
          absl::StrCat("the zero point of W has ", zeros, " elements, expected 1 or ", filters));
    }
    IntegerConv conv(std::move(geometry), inputs, context.threads());
    conv.has_x_zero_ = context.HasInput(inputs.x_zero);
    conv.has_w_zero_ = context.HasInput(inputs.w_zero);
    conv.w_zero_step_ = zeros == 1 ? 0 : 1;
    conv.Arrange(layout);
    return conv;
  }

  const ConvGeometry& geometry() const { return geometry_; }

  // Calls finish(image, filter, first position, count, sums) for pieces of the output.
  template <typename Fn>
  void ForEachPiece(const KernelContext& run, Fn finish) const {
    const ConvGeometry& g = geometry_;
    const int64_t length = PaddedLength(g.window());
    int16_t* filters = static_cast<int16_t*>(At(run.workspace, filters_));
    PackFilters(run, length, filters);
    const int64_t tiles = (g.positions + kPositions - 1) / kPositions;
    const int64_t items = g.batch * g.group * tiles;
    const int64_t share = (items + workers_ - 1) / workers_;
    ParallelFor(workers_, workers_, 1e9, 1, [&](int64_t begin, int64_t end) {
      for (int64_t w = begin; w < end; ++w) {
        int16_t* windows =
            static_cast<int16_t*>(At(run.workspace, windows_)) + w * kPositions * length;
        int32_t* sums =
            static_cast<int32_t*>(At(run.workspace, sums_)) + w * kPositions * g.filters;
        for (int64_t i = w * share; i < std::min(items, (w + 1) * share); ++i) {
          const int64_t first = i % tiles * kPositions;
          const int64_t count = std::min(kPositions, g.positions - first);
          const int64_t group = i / tiles % g.group;
          const int64_t image = i / tiles / g.group;
          LayOut(run, image, group, first, count, length, windows);
          IntegerProduct(filters + group * g.filters * length, windows, g.filters, count, length,
                         sums, kPositions);
          for (int64_t f = 0; f < g.filters; ++f) {
            finish(image, group * g.filters + f, first, count, sums + f * kPositions);
          }
        }
      }
    });
  }

 private:
  IntegerConv(ConvGeometry geometry, const ConvInputs& inputs, int threads)
      : geometry_(std::move(geometry)), inputs_(inputs) {
    const double products = static_cast<double>(geometry_.window() * geometry_.filters);
    const int64_t outputs = geometry_.batch * geometry_.group * geometry_.positions;
    workers_ = UsefulThreads(threads, outputs, 0.1 * products);
  }

  void Arrange(WorkspaceLayout& layout) {
    const int64_t length = PaddedLength(geometry_.window());
    filters_ = layout.Add(geometry_.group * geometry_.filters * length * sizeof(int16_t));
    windows_ = layout.Add(workers_ * kPositions * length * sizeof(int16_t));
    sums_ = layout.Add(workers_ * kPositions * geometry_.filters * sizeof(int32_t));
  }

  void PackFilters(const KernelContext& run, int64_t length, int16_t* out) const {
    const W* w = Input<W>(run, inputs_.w);
    const W* zeros = has_w_zero_ ? Input<W>(run, inputs_.w_zero) : nullptr;
    const int64_t window = geometry_.window();
    for (int64_t f = 0; f < geometry_.group * geometry_.filters; ++f) {
      const int32_t zero = zeros == nullptr ? 0 : zeros[f * w_zero_step_];
      WidenRow(w + f * window, 1, zero, window, out + f * length);
    }
  }

  void LayOut(const KernelContext& run, int64_t image, int64_t group, int64_t first, int64_t count,
              int64_t length, int16_t* windows) const {
    const ConvGeometry& g = geometry_;
    const int32_t zero = has_x_zero_ ? *Input<X>(run, inputs_.x_zero) : 0;
    const X* x = Input<X>(run, inputs_.x) + (image * g.group + group) * g.channels * g.image;
    for (int64_t p = 0; p < count; ++p) {
      int16_t* row = windows + p * length;
      for (int64_t c = 0; c < g.channels; ++c) {
        LayOutChannel(g, x + c * g.image, zero, first + p, row + c * g.taps);
      }
      std::fill(row + g.window(), row + length, int16_t{0});
    }
  }

  ConvGeometry geometry_;
  ConvInputs inputs_;
  int workers_ = 1;
  bool has_x_zero_ = false;
  bool has_w_zero_ = false;
  int64_t w_zero_step_ = 0;
  size_t filters_ = 0;
  size_t windows_ = 0;
  size_t sums_ = 0;
};

using ByteTypes = TypeList<uint8_t, int8_t>;

// Calls make(X{}, W{}) for the types of the two operands.
template <typename Fn>
absl::StatusOr<std::unique_ptr<Kernel>> ByTypes(const PrepareContext& context, int x, int w,
                                                Fn make) {
  return PrepareByDType(context, context.InputDType(x), ByteTypes(), [&](auto x_zero) {
    return PrepareByDType(context, context.InputDType(w), ByteTypes(),
                          [&](auto w_zero) { return make(x_zero, w_zero); });
  });
}

// ---- ConvInteger.

template <typename X, typename W>
absl::StatusOr<std::unique_ptr<Kernel>> MakeConvInteger(const PrepareContext& context) {
  WorkspaceLayout layout;
  using Conv = IntegerConv<X, W>;
  WEFT_ASSIGN_OR_RETURN(const Conv conv, Conv::Make(context, {0, 2, 1, 3}, layout));
  return MakeKernel(
      [conv](const KernelContext& run) {
        int32_t* out = Output<int32_t>(run, 0);
        const ConvGeometry& g = conv.geometry();
        conv.ForEachPiece(run, [&](int64_t image, int64_t filter, int64_t first, int64_t count,
                                   const int32_t* sums) {
          const int64_t channel = image * g.group * g.filters + filter;
          std::copy(sums, sums + count, out + channel * g.positions + first);
        });
        return absl::OkStatus();
      },
      layout.total());
}

WEFT_REGISTER_KERNEL("", "ConvInteger", DeviceKind::kCpu, [](const PrepareContext& context) {
  return ByTypes(context, 0, 1, [&](auto x, auto w) {
    return MakeConvInteger<decltype(x), decltype(w)>(context);
  });
});

// ---- QLinearConv.

template <typename X, typename W, typename Y>
absl::StatusOr<std::unique_ptr<Kernel>> MakeQLinearConv(const PrepareContext& context) {
  WorkspaceLayout layout;
  using Conv = IntegerConv<X, W>;
  WEFT_ASSIGN_OR_RETURN(const Conv conv, Conv::Make(context, {0, 2, 3, 5}, layout));
  const int64_t filters = conv.geometry().group * conv.geometry().filters;
  const int64_t scales = context.InputShape(4).num_elements();
  const bool has_bias = context.HasInput(8);
  const bool fits =
      context.InputShape(1).num_elements() == 1 && (scales == 1 || scales == filters) &&
      context.InputShape(6).num_elements() == 1 && context.InputShape(7).num_elements() == 1 &&
      (!has_bias || context.InputShape(8).num_elements() == filters);
  if (!fits) {
    return context.InvalidArgument(absl::StrCat(
        "scales and zero points must be scalars, those of W and the bias one or ", filters));
  }
  return MakeKernel(
      [conv, scales, has_bias](const KernelContext& run) {
        Y* out = Output<Y>(run, 0);
        const ConvGeometry& g = conv.geometry();
        const float* w_scale = Input<float>(run, 4);
        const double zero = *Input<Y>(run, 7);
        conv.ForEachPiece(run, [&](int64_t image, int64_t filter, int64_t first, int64_t count,
                                   const int32_t* sums) {
          const float scale =
              *Input<float>(run, 1) * w_scale[scales == 1 ? 0 : filter] / *Input<float>(run, 6);
          const int32_t bias = has_bias ? Input<int32_t>(run, 8)[filter] : 0;
          Y* to = out + (image * g.group * g.filters + filter) * g.positions + first;
          for (int64_t i = 0; i < count; ++i) {
            const double sum = static_cast<double>(sums[i]) + bias;
            const double value = std::nearbyint(sum * static_cast<double>(scale)) + zero;
            to[i] = static_cast<Y>(std::clamp(value,
                                              static_cast<double>(std::numeric_limits<Y>::lowest()),
                                              static_cast<double>(std::numeric_limits<Y>::max())));
          }
        });
        return absl::OkStatus();
      },
      layout.total());
}

WEFT_REGISTER_KERNEL("", "QLinearConv", DeviceKind::kCpu, [](const PrepareContext& context) {
  return ByTypes(context, 0, 3, [&](auto x, auto w) {
    return PrepareByDType(context, context.OutputDType(0), ByteTypes(), [&](auto y) {
      return MakeQLinearConv<decltype(x), decltype(w), decltype(y)>(context);
    });
  });
});

}  // namespace
}  // namespace weft::cpu
