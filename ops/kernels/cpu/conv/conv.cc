// Conv and its gradients through oneDNN's direct algorithm, in float32, and in bfloat16 where the
// processor multiplies it. Conv of other types and ranks is computed directly.
//
// The graph's images are [batch, channels, image...]; oneDNN computes in layouts of its own,
// between which and ours the kernel reorders in its workspace. Which layouts are asked for follows
// from measurements on AVX-512: direct convolution in blocks of 16 channels reaches 90 % of the
// core's peak and more, oneDNN's product of unfolded images, which works on our layout, 15 to 70 %.
// oneDNN's Winograd is not used: AVX2 has none, and its weight gradient needs more than we promise
// about alignment. Windows of 3x3 go through our own where that pays (winograd.h).
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/onednn_staged.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/conv/conv_direct.h"
#include "ops/kernels/cpu/conv/conv_onednn.h"
#include "ops/kernels/cpu/conv/winograd.h"
#include "ops/window.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

// How an image lies in memory.
enum class Layout : uint8_t { kPlain, kChannelsLast, kBlocksOf8, kBlocksOf16, kAny };

struct Layouts {
  Layout input;   // X, dX
  Layout output;  // Y, dY
};

// Shapes and windows of a convolution, in oneDNN's terms.
struct Convolution {
  dnnl::memory::data_type type = dnnl::memory::data_type::f32;
  Shape x;
  Shape w;  // with groups: [g, m, c, kernel...]
  Shape y;
  int64_t group = 1;
  bool bias = false;
  dnnl::memory::dims strides;
  dnnl::memory::dims dilations;  // 0 = dense
  dnnl::memory::dims pads_begin;
  dnnl::memory::dims pads_end;

  Shape b() const { return Shape{y.dim(1)}; }
  int64_t input_channels() const { return x.dim(1); }
};

// Checks that the shapes belong together, since our own gradient ops can come from a file.
absl::StatusOr<Convolution> Describe(const PrepareContext& context, const Shape& x, const Shape& w,
                                     const Shape& y) {
  Convolution conv;
  conv.type = OnednnType(context.InputDType(0));
  conv.x = x;
  conv.y = y;
  conv.group = context.attributes().Int("group", 1);
  const absl::StatusOr<WindowSpec> window = WindowSpec::Create(
      context.attributes(), std::vector<int64_t>(w.dims().begin() + 2, w.dims().end()));
  if (!window.ok()) return context.InvalidArgument(std::string(window.status().message()));
  const auto axes = window->ResolveAll(x);
  if (!axes.ok()) return context.InvalidArgument(std::string(axes.status().message()));
  Shape expected{x.dim(0), w.dim(0)};
  for (const WindowAxis& axis : *axes) {
    expected.AddDim(axis.output);
    conv.strides.push_back(axis.stride);
    conv.dilations.push_back(axis.dilation - 1);
    conv.pads_begin.push_back(axis.pad_begin);
    conv.pads_end.push_back(axis.pad_end);
  }
  if (!(expected == y)) {
    return context.InvalidArgument(absl::StrCat("a convolution of X ", x.ToString(), " with W ",
                                                w.ToString(), " gives ", expected.ToString(),
                                                ", not ", y.ToString()));
  }
  if (conv.group > 1) {
    conv.w = Shape{conv.group, w.dim(0) / conv.group};
    for (int i = 1; i < w.rank(); ++i) conv.w.AddDim(w.dim(i));
  } else {
    conv.w = w;
  }
  return conv;
}

Desc ImageDesc(const Convolution& conv, const Shape& shape, Layout layout) {
  const int axes = shape.rank() - 3;
  constexpr Tag kChannelsLast[] = {Tag::nwc, Tag::nhwc, Tag::ndhwc};
  constexpr Tag kBlocksOf8[] = {Tag::nCw8c, Tag::nChw8c, Tag::nCdhw8c};
  constexpr Tag kBlocksOf16[] = {Tag::nCw16c, Tag::nChw16c, Tag::nCdhw16c};
  const auto desc = [&](Tag tag) { return Desc(ToDims(shape), conv.type, tag); };
  switch (layout) {
    case Layout::kPlain:
      return PlainDesc(shape, conv.type);
    case Layout::kChannelsLast:
      return desc(kChannelsLast[axes]);
    case Layout::kBlocksOf8:
      return desc(kBlocksOf8[axes]);
    case Layout::kBlocksOf16:
      return desc(kBlocksOf16[axes]);
    case Layout::kAny:
      break;
  }
  return desc(Tag::any);
}

Desc AnyWeights(const Convolution& conv) { return Desc(ToDims(conv.w), conv.type, Tag::any); }
Desc PlainX(const Convolution& conv) { return PlainDesc(conv.x, conv.type); }
Desc PlainY(const Convolution& conv) { return PlainDesc(conv.y, conv.type); }
Desc PlainW(const Convolution& conv) { return PlainDesc(conv.w, conv.type); }
Desc PlainB(const Convolution& conv) { return PlainDesc(conv.b(), conv.type); }

// Fast ways first. Blocks of 8 are what AVX2 computes in.
constexpr Layouts kLayoutsForward[] = {
    {Layout::kPlain, Layout::kBlocksOf16}, {Layout::kBlocksOf16, Layout::kBlocksOf16},
    {Layout::kPlain, Layout::kBlocksOf8},  {Layout::kBlocksOf8, Layout::kBlocksOf8},
    {Layout::kAny, Layout::kAny},          {Layout::kPlain, Layout::kPlain}};

std::vector<Layouts> LayoutsOfInputGradient(const Convolution& conv) {
  std::vector<Layouts> layouts;
  // Padding few channels to a block costs more than the slower algorithm.
  if (conv.input_channels() <= 4) layouts.push_back({Layout::kPlain, Layout::kPlain});
  if (conv.input_channels() > 8) layouts.push_back({Layout::kBlocksOf16, Layout::kBlocksOf16});
  layouts.push_back({Layout::kBlocksOf8, Layout::kBlocksOf8});
  layouts.push_back({Layout::kAny, Layout::kAny});
  layouts.push_back({Layout::kPlain, Layout::kPlain});
  return layouts;
}

std::vector<Layouts> LayoutsOfWeightGradient(const Convolution& conv) {
  std::vector<Layouts> layouts = {{Layout::kPlain, Layout::kBlocksOf16}};
  if (conv.input_channels() < 16) {
    layouts.push_back({Layout::kChannelsLast, Layout::kChannelsLast});
  }
  layouts.push_back({Layout::kBlocksOf16, Layout::kBlocksOf16});
  layouts.push_back({Layout::kPlain, Layout::kBlocksOf8});
  layouts.push_back({Layout::kBlocksOf8, Layout::kBlocksOf8});
  layouts.push_back({Layout::kAny, Layout::kAny});
  layouts.push_back({Layout::kPlain, Layout::kPlain});
  return layouts;
}

// ---- Primitive descriptors; empty when oneDNN cannot.

using ForwardDesc = dnnl::convolution_forward::primitive_desc;
using InputGradientDesc = dnnl::convolution_backward_data::primitive_desc;
using WeightGradientDesc = dnnl::convolution_backward_weights::primitive_desc;
constexpr auto kDirect = dnnl::algorithm::convolution_direct;

ForwardDesc DescribeForward(const Convolution& conv, Layouts layouts, dnnl::prop_kind kind) {
  const Desc x = ImageDesc(conv, conv.x, layouts.input);
  const Desc y = ImageDesc(conv, conv.y, layouts.output);
  const Desc w = AnyWeights(conv);
  const dnnl::convolution_forward::desc desc =
      conv.bias
          ? dnnl::convolution_forward::desc(kind, kDirect, x, w, PlainB(conv), y, conv.strides,
                                            conv.dilations, conv.pads_begin, conv.pads_end)
          : dnnl::convolution_forward::desc(kind, kDirect, x, w, y, conv.strides, conv.dilations,
                                            conv.pads_begin, conv.pads_end);
  return ForwardDesc(desc, UserScratchpad(), OnednnEngine(), true);
}

InputGradientDesc DescribeInputGradient(const Convolution& conv, Layouts layouts) {
  const ForwardDesc hint = DescribeForward(conv, layouts, dnnl::prop_kind::forward_training);
  if (!hint) return InputGradientDesc();
  const dnnl::convolution_backward_data::desc desc(
      kDirect, ImageDesc(conv, conv.x, layouts.input), AnyWeights(conv),
      ImageDesc(conv, conv.y, layouts.output), conv.strides, conv.dilations, conv.pads_begin,
      conv.pads_end);
  return InputGradientDesc(desc, UserScratchpad(), OnednnEngine(), hint, true);
}

WeightGradientDesc DescribeWeightGradient(const Convolution& conv, Layouts layouts) {
  const ForwardDesc hint = DescribeForward(conv, layouts, dnnl::prop_kind::forward_training);
  if (!hint) return WeightGradientDesc();
  using GradientDesc = dnnl::convolution_backward_weights::desc;
  const Desc x = ImageDesc(conv, conv.x, layouts.input);
  const Desc y = ImageDesc(conv, conv.y, layouts.output);
  const Desc w = AnyWeights(conv);
  const GradientDesc desc = conv.bias ? GradientDesc(kDirect, x, w, PlainB(conv), y, conv.strides,
                                                     conv.dilations, conv.pads_begin, conv.pads_end)
                                      : GradientDesc(kDirect, x, w, y, conv.strides, conv.dilations,
                                                     conv.pads_begin, conv.pads_end);
  return WeightGradientDesc(desc, UserScratchpad(), OnednnEngine(), hint, true);
}

// oneDNN 2.6's AVX2 kernel for 1x1 windows with strides copies the samples of each thread to one
// place, densely. With channels last and no multiple of 8 it writes past its part, into that of the
// next thread, and gradients are wrong now and then.
bool MixesThreads(const Convolution& conv, Layouts layouts, const WeightGradientDesc& described) {
  const bool has_strides = std::any_of(conv.strides.begin(), conv.strides.end(),
                                       [](dnnl::memory::dim stride) { return stride > 1; });
  return has_strides && layouts.input == Layout::kChannelsLast &&
         std::string_view(described.impl_info_str()).starts_with("jit_1x1:avx2");
}

// The first candidate that oneDNN has more than its reference loops for, else the last.
template <typename Candidates, typename DescribeFn>
auto ChooseLayouts(const Candidates& candidates, DescribeFn describe) {
  decltype(describe(Layouts{})) chosen;
  for (const Layouts& layouts : candidates) {
    auto described = describe(layouts);
    if (!described) continue;
    chosen = described;
    if (!std::string_view(described.impl_info_str()).starts_with("ref")) break;
  }
  return chosen;
}

// ---- Kernels.

// oneDNN has none, or loops in bfloat16 where float32 is faster by far.
template <typename Description>
bool IsRefused(const Convolution& conv, const Description& chosen) {
  return !chosen || (conv.type == dnnl::memory::data_type::bf16 &&
                     std::string_view(chosen.impl_info_str()).starts_with("ref"));
}

absl::StatusOr<std::unique_ptr<Kernel>> Refused(const PrepareContext& context) {
  return context.Unimplemented("oneDNN has no convolution for this");
}

// Cuts the batch into pieces for the threads, and leaves the first one in `conv`.
BatchPieces CutBatch(const PrepareContext& context, Convolution& conv) {
  constexpr double kFlopsPerNanosecond = 60;
  const double per_output = static_cast<double>(conv.w.num_elements()) / conv.y.dim(1);
  const double flops = 2 * per_output * static_cast<double>(conv.y.num_elements() / conv.y.dim(0));
  const BatchPieces pieces =
      BatchPieces::For(OnednnThreads(context), conv.x, conv.y, flops / kFlopsPerNanosecond,
                       static_cast<int64_t>(dnnl::memory::data_type_size(conv.type)));
  const int64_t samples = conv.x.dim(0) / pieces.count;
  conv.x.set_dim(0, samples);
  conv.y.set_dim(0, samples);
  return pieces;
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeForward(const PrepareContext& context,
                                                    Convolution conv) {
  const BatchPieces pieces = CutBatch(context, conv);
  const ThreadBudget budget(pieces.primitive_threads());
  const ForwardDesc chosen = ChooseLayouts(kLayoutsForward, [&](Layouts layouts) {
    return DescribeForward(conv, layouts, dnnl::prop_kind::forward_inference);
  });
  if (IsRefused(conv, chosen)) return Refused(context);
  auto kernel = std::make_unique<StagedPrimitive>(pieces);
  WEFT_RETURN_IF_ERROR(kernel->AddInput(0, DNNL_ARG_SRC, PlainX(conv), chosen.src_desc(),
                                        context.InputIsConstant(0)));
  WEFT_RETURN_IF_ERROR(kernel->AddWeights(1, DNNL_ARG_WEIGHTS, PlainW(conv), chosen.weights_desc(),
                                          context.InputIsConstant(1)));
  if (conv.bias) {
    WEFT_RETURN_IF_ERROR(
        kernel->AddWeights(2, DNNL_ARG_BIAS, PlainB(conv), chosen.bias_desc(), false));
  }
  kernel->AddOutput(0, DNNL_ARG_DST, PlainY(conv), chosen.dst_desc());
  kernel->SetPrimitive(dnnl::convolution_forward(chosen), chosen.scratchpad_desc());
  return kernel;
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeInputGradient(const PrepareContext& context,
                                                          Convolution conv) {
  const BatchPieces pieces = CutBatch(context, conv);
  const ThreadBudget budget(pieces.primitive_threads());
  const InputGradientDesc chosen =
      ChooseLayouts(LayoutsOfInputGradient(conv),
                    [&](Layouts layouts) { return DescribeInputGradient(conv, layouts); });
  if (IsRefused(conv, chosen)) return Refused(context);
  auto kernel = std::make_unique<StagedPrimitive>(pieces);
  WEFT_RETURN_IF_ERROR(kernel->AddInput(0, DNNL_ARG_DIFF_DST, PlainY(conv), chosen.diff_dst_desc(),
                                        context.InputIsConstant(0)));
  WEFT_RETURN_IF_ERROR(kernel->AddWeights(1, DNNL_ARG_WEIGHTS, PlainW(conv), chosen.weights_desc(),
                                          context.InputIsConstant(1)));
  kernel->AddOutput(0, DNNL_ARG_DIFF_SRC, PlainX(conv), chosen.diff_src_desc());
  kernel->SetPrimitive(dnnl::convolution_backward_data(chosen), chosen.scratchpad_desc());
  return kernel;
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeWeightGradient(const PrepareContext& context,
                                                           const Convolution& conv) {
  const int threads = OnednnThreads(context);
  const ThreadBudget budget(threads);
  const WeightGradientDesc chosen =
      ChooseLayouts(LayoutsOfWeightGradient(conv), [&](Layouts layouts) {
        const WeightGradientDesc described = DescribeWeightGradient(conv, layouts);
        const bool is_unsafe = described && MixesThreads(conv, layouts, described);
        return is_unsafe ? WeightGradientDesc() : described;
      });
  if (IsRefused(conv, chosen)) return Refused(context);
  auto kernel = std::make_unique<StagedPrimitive>(BatchPieces{threads});
  WEFT_RETURN_IF_ERROR(kernel->AddInput(0, DNNL_ARG_SRC, PlainX(conv), chosen.src_desc(),
                                        context.InputIsConstant(0)));
  WEFT_RETURN_IF_ERROR(kernel->AddInput(1, DNNL_ARG_DIFF_DST, PlainY(conv), chosen.diff_dst_desc(),
                                        context.InputIsConstant(1)));
  kernel->AddOutput(0, DNNL_ARG_DIFF_WEIGHTS, PlainW(conv), chosen.diff_weights_desc());
  if (conv.bias) {
    kernel->AddOutput(1, DNNL_ARG_DIFF_BIAS, PlainB(conv), chosen.diff_bias_desc());
  }
  kernel->SetPrimitive(dnnl::convolution_backward_weights(chosen), chosen.scratchpad_desc());
  return kernel;
}

// No sample, no channel or no output: sums of nothing.
std::unique_ptr<Kernel> MakeEmpty(std::vector<int64_t> output_elements, int bias_input,
                                  int64_t bias_elements, int64_t image_elements) {
  return MakeKernel([=](const KernelContext& context) {
    for (size_t i = 0; i < output_elements.size(); ++i) {
      std::fill_n(Output<float>(context, static_cast<int>(i)), output_elements[i], 0.0f);
    }
    if (bias_input < 0 || image_elements == 0) return absl::OkStatus();
    const float* bias = Input<float>(context, bias_input);
    float* y = Output<float>(context, 0);
    for (int64_t i = 0; i < output_elements[0]; ++i) {
      y[i] = bias[i / image_elements % bias_elements];
    }
    return absl::OkStatus();
  });
}

bool HasEmptyOperand(const PrepareContext& context) {
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (context.HasInput(i) && context.InputShape(i).num_elements() == 0) return true;
  }
  return context.OutputShape(0).num_elements() == 0;
}

bool IsEmpty(const Convolution& conv) {
  return conv.x.num_elements() == 0 || conv.w.num_elements() == 0 || conv.y.num_elements() == 0;
}

// A factory for 16-bit floats too: bfloat16 as it is where `factory` takes it, else by way of
// float32.
KernelFactory AlsoInHalf(KernelFactory factory) {
  return [factory = std::move(factory)](
             const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    if (context.InputDType(0) == DType::kBfloat16 && !HasEmptyOperand(context)) {
      absl::StatusOr<std::unique_ptr<Kernel>> kernel = factory(context);
      if (kernel.ok()) return kernel;
    }
    return Widened(factory)(context);
  };
}

// Types and ranks that oneDNN takes.
absl::Status CheckSupported(const PrepareContext& context) {
  const DType dtype = context.InputDType(0);
  const bool is_bfloat16 = dtype == DType::kBfloat16 && OnednnMultipliesBfloat16();
  if (dtype != DType::kFloat32 && !is_bfloat16) {
    return context.Unimplemented("convolution is computed in float32 only");
  }
  if (context.InputShape(0).rank() > 5) {
    return context.Unimplemented("convolution has at most three image axes");
  }
  return absl::OkStatus();
}

// What oneDNN does not take.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareDirectConv(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  const Shape& w = context.InputShape(1);
  DirectConv conv;
  conv.batch = x.dim(0);
  conv.group = context.attributes().Int("group", 1);
  conv.x_channels = x.dim(1);
  conv.y_channels = w.dim(0);
  conv.bias = context.HasInput(2);
  conv.threads = context.threads();
  const absl::StatusOr<WindowSpec> window = WindowSpec::Create(
      context.attributes(), std::vector<int64_t>(w.dims().begin() + 2, w.dims().end()));
  if (!window.ok()) return context.InvalidArgument(std::string(window.status().message()));
  WEFT_ASSIGN_OR_RETURN(conv.axes, window->ResolveAll(x));
  return MakeDirectConv(context, conv);
}

// ---- Winograd's algorithm.

// Windows of 3x3, dense, at stride 1, all channels with all, in float32.
bool IsThreeByThree(const Convolution& conv) {
  const auto all = [](const dnnl::memory::dims& values, dnnl::memory::dim wanted) {
    return std::all_of(values.begin(), values.end(),
                       [&](dnnl::memory::dim value) { return value == wanted; });
  };
  return conv.type == dnnl::memory::data_type::f32 && conv.group == 1 && conv.x.rank() == 4 &&
         conv.w.dim(2) == 3 && conv.w.dim(3) == 3 && all(conv.strides, 1) && all(conv.dilations, 0);
}

// Sizes and filters of the forward pass.
WinogradConv WinogradForward(const Convolution& conv) {
  WinogradConv winograd;
  winograd.bias = conv.bias;
  winograd.tiles = {.batch = conv.x.dim(0),
                    .input_channels = conv.x.dim(1),
                    .output_channels = conv.y.dim(1),
                    .input_height = conv.x.dim(2),
                    .input_width = conv.x.dim(3),
                    .output_height = conv.y.dim(2),
                    .output_width = conv.y.dim(3),
                    .pad_top = conv.pads_begin[0],
                    .pad_left = conv.pads_begin[1]};
  winograd.filters = {.output_channels = conv.y.dim(1),
                      .input_channels = conv.x.dim(1),
                      .output_step = conv.x.dim(1) * 9,
                      .input_step = 9};
  return winograd;
}

// The gradient of X is a convolution of dY, whose filters are reversed and have changed their
// channels.
WinogradConv WinogradInputGradient(const Convolution& conv) {
  WinogradConv winograd;
  winograd.tiles = {.batch = conv.x.dim(0),
                    .input_channels = conv.y.dim(1),
                    .output_channels = conv.x.dim(1),
                    .input_height = conv.y.dim(2),
                    .input_width = conv.y.dim(3),
                    .output_height = conv.x.dim(2),
                    .output_width = conv.x.dim(3),
                    .pad_top = 2 - conv.pads_begin[0],
                    .pad_left = 2 - conv.pads_begin[1]};
  winograd.filters = {.output_channels = conv.x.dim(1),
                      .input_channels = conv.y.dim(1),
                      .output_step = 9,
                      .input_step = conv.x.dim(1) * 9,
                      .reversed = true};
  return winograd;
}

// Null where the convolution is not one for Winograd. A strict run has the algorithm of the whole
// tensors on each shard.
absl::StatusOr<std::unique_ptr<Kernel>> TryWinograd(const PrepareContext& context,
                                                    WinogradConv conv) {
  WinogradTiles sizes = conv.tiles;
  if (context.strict()) {
    sizes.input_channels = context.InputSlice(0).global_shape.dim(1);
    sizes.output_channels = context.OutputSlice(0).global_shape.dim(1);
  }
  conv.tiles.m = ChooseWinogradTile(sizes, context.InputIsConstant(1), context.strict());
  if (conv.tiles.m == 0) return nullptr;
  return MakeWinogradConv(context, conv);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareForward(const PrepareContext& context,
                                                       bool winograd) {
  if (!CheckSupported(context).ok()) return PrepareDirectConv(context);
  const Shape& y = context.OutputShape(0);
  WEFT_ASSIGN_OR_RETURN(Convolution conv,
                        Describe(context, context.InputShape(0), context.InputShape(1), y));
  conv.bias = context.HasInput(2);
  if (IsEmpty(conv)) {
    return MakeEmpty({y.num_elements()}, conv.bias ? 2 : -1, y.dim(1), y.ProductOf(2, y.rank()));
  }
  if (winograd && IsThreeByThree(conv)) {
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel,
                          TryWinograd(context, WinogradForward(conv)));
    if (kernel != nullptr) return kernel;
  }
  return CatchOnednn(context, [&] { return MakeForward(context, conv); });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareConv(const PrepareContext& context) {
  return PrepareForward(context, true);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareInputGradient(const PrepareContext& context,
                                                             bool winograd) {
  WEFT_RETURN_IF_ERROR(CheckSupported(context));
  WEFT_ASSIGN_OR_RETURN(
      const Convolution conv,
      Describe(context, context.OutputShape(0), context.InputShape(1), context.InputShape(0)));
  if (IsEmpty(conv)) return MakeEmpty({conv.x.num_elements()}, -1, 0, 0);
  if (winograd && IsThreeByThree(conv)) {
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel,
                          TryWinograd(context, WinogradInputGradient(conv)));
    if (kernel != nullptr) return kernel;
  }
  return CatchOnednn(context, [&] { return MakeInputGradient(context, conv); });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareConvGradInput(const PrepareContext& context) {
  return PrepareInputGradient(context, true);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareConvGradWeights(const PrepareContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSupported(context));
  WEFT_ASSIGN_OR_RETURN(Convolution conv, Describe(context, context.InputShape(0),
                                                   context.OutputShape(0), context.InputShape(1)));
  conv.bias = context.HasOutput(1);
  if (IsEmpty(conv)) {
    std::vector<int64_t> outputs = {conv.w.num_elements()};
    if (conv.bias) outputs.push_back(conv.y.dim(1));
    return MakeEmpty(outputs, -1, 0, 0);
  }
  return CatchOnednn(context, [&] { return MakeWeightGradient(context, conv); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> PrepareOnednnConv(const PrepareContext& context) {
  return PrepareForward(context, false);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareOnednnConvGradInput(const PrepareContext& context) {
  return PrepareInputGradient(context, false);
}

WEFT_REGISTER_KERNEL("", "Conv", DeviceKind::kCpu, AlsoInHalf(PrepareConv));
WEFT_REGISTER_KERNEL("ai.weft", "ConvGradInput", DeviceKind::kCpu,
                     AlsoInHalf(PrepareConvGradInput));
WEFT_REGISTER_KERNEL("ai.weft", "ConvGradWeights", DeviceKind::kCpu,
                     AlsoInHalf(PrepareConvGradWeights));

}  // namespace weft::cpu
