// ConvTranspose: oneDNN's deconvolution for float32, a direct one for what it does not take.
#include <string>
#include <vector>

#include "ops/defs/conv/transposed_window.h"
#include "ops/kernels/cpu/blocks/onednn_staged.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/conv/conv_direct.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

// W is [x channels, y channels / group, window...]; oneDNN sees [group, y, x, window...].
struct WeightDims {
  dnnl::memory::dims sizes;
  dnnl::memory::dims strides;
};

WeightDims WeightsOf(const Shape& w, int64_t group) {
  WeightDims dims;
  const auto strides = w.Strides();
  if (group > 1) {
    dims.sizes.push_back(group);
    dims.strides.push_back(w.dim(0) / group * strides[0]);
  }
  dims.sizes.push_back(w.dim(1));
  dims.strides.push_back(strides[1]);
  dims.sizes.push_back(w.dim(0) / group);
  dims.strides.push_back(strides[0]);
  for (int i = 2; i < w.rank(); ++i) {
    dims.sizes.push_back(w.dim(i));
    dims.strides.push_back(strides[i]);
  }
  return dims;
}

// May throw dnnl::error.
absl::StatusOr<std::unique_ptr<Kernel>> MakeOnednn(const PrepareContext& context,
                                                   const DirectConv& conv) {
  const auto f32 = dnnl::memory::data_type::f32;
  const int threads = OnednnThreads(context);
  const ThreadBudget budget(threads);
  dnnl::memory::dims strides, dilations, pads_begin, pads_end;
  for (const WindowAxis& axis : conv.axes) {
    strides.push_back(axis.stride);
    dilations.push_back(axis.dilation - 1);
    pads_begin.push_back(axis.pad_begin);
    const int64_t full = axis.stride * (axis.output - 1) + (axis.kernel - 1) * axis.dilation + 1;
    pads_end.push_back(full - axis.input - axis.pad_begin);
  }
  const Shape& x = context.InputShape(0);
  const Shape& y = context.OutputShape(0);
  const WeightDims weights = WeightsOf(context.InputShape(1), conv.group);
  const Desc b = PlainDesc(Shape{conv.y_channels});
  const Desc any_x(ToDims(x), f32, Tag::any);
  const Desc any_y(ToDims(y), f32, Tag::any);
  const Desc any_w(weights.sizes, f32, Tag::any);
  const auto forward = dnnl::prop_kind::forward_inference;
  const auto direct = dnnl::algorithm::deconvolution_direct;
  using Forward = dnnl::deconvolution_forward;
  const Forward::desc desc = conv.bias ? Forward::desc(forward, direct, any_x, any_w, b, any_y,
                                                       strides, dilations, pads_begin, pads_end)
                                       : Forward::desc(forward, direct, any_x, any_w, any_y,
                                                       strides, dilations, pads_begin, pads_end);
  const Forward::primitive_desc chosen(desc, UserScratchpad(), OnednnEngine());
  auto kernel = std::make_unique<StagedPrimitive>(BatchPieces{threads});
  WEFT_RETURN_IF_ERROR(kernel->AddInput(0, DNNL_ARG_SRC, PlainDesc(x), chosen.src_desc(),
                                        context.InputIsConstant(0)));
  WEFT_RETURN_IF_ERROR(kernel->AddInput(1, DNNL_ARG_WEIGHTS,
                                        Desc(weights.sizes, f32, weights.strides),
                                        chosen.weights_desc(), context.InputIsConstant(1)));
  if (conv.bias) {
    WEFT_RETURN_IF_ERROR(
        kernel->AddInput(2, DNNL_ARG_BIAS, b, chosen.bias_desc(), context.InputIsConstant(2)));
  }
  kernel->AddOutput(0, DNNL_ARG_DST, PlainDesc(y), chosen.dst_desc());
  kernel->SetPrimitive(Forward(chosen), chosen.scratchpad_desc());
  return kernel;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareConvTranspose(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  const Shape& w = context.InputShape(1);
  const Shape& y = context.OutputShape(0);
  const auto axes = TransposedWindows(context.attributes(),
                                      std::vector<int64_t>(w.dims().begin() + 2, w.dims().end()),
                                      std::vector<int64_t>(x.dims().begin() + 2, x.dims().end()));
  if (!axes.ok()) return context.InvalidArgument(std::string(axes.status().message()));
  DirectConv conv;
  conv.batch = x.dim(0);
  conv.group = context.attributes().Int("group", 1);
  conv.x_channels = x.dim(1);
  conv.y_channels = y.dim(1);
  conv.bias = context.HasInput(2);
  conv.axes = *axes;
  conv.threads = context.threads();
  const bool has_elements = x.num_elements() > 0 && w.num_elements() > 0 && y.num_elements() > 0;
  if (context.InputDType(0) == DType::kFloat32 && x.rank() <= 5 && has_elements) {
    auto kernel = CatchOnednn(context, [&] { return MakeOnednn(context, conv); });
    if (kernel.ok()) return kernel;
  }
  return MakeDirectConvTranspose(context, conv);
}

}  // namespace

WEFT_REGISTER_KERNEL("", "ConvTranspose", DeviceKind::kCpu, Widened(PrepareConvTranspose));

}  // namespace weft::cpu
