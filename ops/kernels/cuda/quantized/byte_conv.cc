// ConvInteger and QLinearConv.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/conv/conv_plan.h"
#include "ops/kernels/cuda/quantized/byte_calls.h"
#include "ops/kernels/cuda/quantized/byte_lines.h"
#include "ops/window.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// Which inputs a convolution has.
struct ConvInputs {
  int x;
  int x_zero;
  int w;
  int w_zero;
};

// How a node is computed.
enum class ByteConvWay : uint8_t { kPlain, kWindows, kDirect };

struct ByteConv {
  ByteProduct product;  // without the addresses of a run
  ByteWindows windows;
  ByteConvWay way = ByteConvWay::kWindows;
  int64_t filters = 0;  // of all groups
};

// One for all, or one for each filter: matrix i is one group's.
LinePlace PlaceOfFilters(int64_t count, int64_t groups, int64_t filters_of_group) {
  if (count == 1) return {};
  return {.line_step = 1, .matrix_step = filters_of_group, .period = groups};
}

// Matrix i, of group i % groups of sample i / groups, begins after i % groups strides.
AxisIndex IndexOfGroups(int64_t samples, int64_t groups, int64_t of_group, int64_t of_sample) {
  AxisIndex index;
  index.axes = 2;
  index.sizes[0] = groups;
  index.sizes[1] = samples;
  index.strides[0] = of_group;
  index.strides[1] = of_sample;
  index.wide = groups * samples > std::numeric_limits<int32_t>::max() ? 1 : 0;
  if (index.wide == 0) index.divisors[0] = FastDivisor<int32_t>(static_cast<int32_t>(groups));
  return index;
}

absl::Status CheckZeros(const PrepareContext& context, const ConvInputs& inputs, int64_t filters) {
  if (context.HasInput(inputs.x_zero) && context.InputShape(inputs.x_zero).num_elements() != 1) {
    return context.InvalidArgument("the zero point of X must have one element");
  }
  const int64_t zeros =
      context.HasInput(inputs.w_zero) ? context.InputShape(inputs.w_zero).num_elements() : 1;
  if (zeros == 1 || zeros == filters) return absl::OkStatus();
  return context.InvalidArgument(
      absl::StrCat("the zero point of W has ", zeros, " elements, expected 1 or ", filters));
}

FastDivisor<int32_t> DivisorOf(int64_t value) {
  return FastDivisor<int32_t>(static_cast<int32_t>(std::max<int64_t>(value, 1)));
}

absl::StatusOr<ByteConv> ByteConvOf(const PrepareContext& context, const ConvInputs& inputs) {
  const Shape& x = context.InputShape(inputs.x);
  const Shape& w = context.InputShape(inputs.w);
  std::vector<int64_t> kernel(w.dims().begin() + 2, w.dims().end());
  WEFT_ASSIGN_OR_RETURN(const WindowSpec spec,
                        WindowSpec::Create(context.attributes(), std::move(kernel)));
  WEFT_ASSIGN_OR_RETURN(const std::vector<WindowAxis> axes, spec.ResolveAll(x));
  ByteConv conv;
  ConvWindow& window = conv.windows.window;
  WEFT_ASSIGN_OR_RETURN(window, ConvWindowOf(context, axes));
  const int64_t groups = context.attributes().Int("group", 1);
  const int64_t channels = w.dim(1);
  conv.filters = w.dim(0);
  WEFT_RETURN_IF_ERROR(CheckZeros(context, inputs, conv.filters));
  ByteProduct& product = conv.product;
  product.matrices = x.dim(0) * groups;
  product.m = conv.filters / groups;
  product.n = window.small_size();
  product.k = channels * window.taps();
  if (product.k > std::numeric_limits<int32_t>::max() - kImageAxes) {
    return context.Unimplemented("convolutions on GPUs have filters of less than 2^31 elements");
  }
  product.a_format = MakeByteFormat(context.InputDType(inputs.w));
  product.b_format = MakeByteFormat(context.InputDType(inputs.x));
  // Zero points have the types of their operands.
  product.a_zeros.format = product.a_format;
  product.b_zeros.format = product.b_format;
  if (context.HasInput(inputs.w_zero)) {
    product.a_zeros.place =
        PlaceOfFilters(context.InputShape(inputs.w_zero).num_elements(), groups, product.m);
  }
  product.a_matrix = IndexOfGroups(x.dim(0), groups, product.m * product.k, 0);
  const int64_t of_group = channels * window.large_size();
  product.b_matrix = IndexOfGroups(x.dim(0), groups, of_group, groups * of_group);
  conv.windows.taps = DivisorOf(window.taps());
  conv.windows.plane = DivisorOf(int64_t{window.kernel[1]} * window.kernel[2]);
  conv.windows.line = DivisorOf(window.kernel[2]);
  // Tiles of groups with few channels would be nearly empty.
  const ConvPlan plan = {.window = window,
                         .samples = x.dim(0),
                         .groups = groups,
                         .large_channels = channels,
                         .small_channels = product.m};
  if (plan.is_direct()) {
    conv.way = ByteConvWay::kDirect;
  } else if (plan.is_plain()) {
    conv.way = ByteConvWay::kPlain;
  }
  return conv;
}

// Launches the convolution of the inputs of a run.
int LaunchConv(const KernelContext& run, const ByteConv& conv, const ConvInputs& inputs,
               bool has_x_zero, bool has_w_zero, const ByteOutput& output) {
  ByteProduct now = conv.product;
  now.a = run.inputs[inputs.w];
  now.b = run.inputs[inputs.x];
  now.a_zeros.data = OptionalInput(run, has_w_zero, inputs.w_zero);
  now.b_zeros.data = OptionalInput(run, has_x_zero, inputs.x_zero);
  const LaunchQueue queue = QueueOf(run);
  switch (conv.way) {
    case ByteConvWay::kPlain:
      return LaunchByteProduct(queue, now, output);
    case ByteConvWay::kDirect:
      return LaunchDirectByteConv(queue, now, conv.windows, output);
    case ByteConvWay::kWindows:
      break;
  }
  return LaunchByteConv(queue, now, conv.windows, output);
}

absl::Status CheckTypes(const PrepareContext& context, const ConvInputs& inputs) {
  const auto is_byte = [](DType dtype) { return dtype == DType::kInt8 || dtype == DType::kUint8; };
  if (is_byte(context.InputDType(inputs.x)) && is_byte(context.InputDType(inputs.w))) {
    return absl::OkStatus();
  }
  return context.Unimplemented("no convolution of these types on CUDA devices");
}

// ---- ConvInteger.

absl::StatusOr<std::unique_ptr<Kernel>> PrepareConvInteger(const PrepareContext& context) {
  const ConvInputs inputs = {.x = 0, .x_zero = 2, .w = 1, .w_zero = 3};
  WEFT_RETURN_IF_ERROR(CheckTypes(context, inputs));
  WEFT_ASSIGN_OR_RETURN(const ByteConv conv, ByteConvOf(context, inputs));
  const bool has_x_zero = context.HasInput(inputs.x_zero);
  const bool has_w_zero = context.HasInput(inputs.w_zero);
  return MakeKernel([=](const KernelContext& run) {
    return LaunchStatus(
        LaunchConv(run, conv, inputs, has_x_zero, has_w_zero, {.y = run.outputs[0]}),
        "ConvInteger");
  });
}
WEFT_REGISTER_KERNEL("", "ConvInteger", DeviceKind::kCuda, PrepareConvInteger);

// ---- QLinearConv.

absl::StatusOr<std::unique_ptr<Kernel>> PrepareQLinearConv(const PrepareContext& context) {
  const ConvInputs inputs = {.x = 0, .x_zero = 2, .w = 3, .w_zero = 5};
  WEFT_RETURN_IF_ERROR(CheckTypes(context, inputs));
  WEFT_ASSIGN_OR_RETURN(const ByteConv conv, ByteConvOf(context, inputs));
  const auto count = [&context](int i) { return context.InputShape(i).num_elements(); };
  const bool has_bias = context.HasInput(8);
  const bool fits = count(1) == 1 && (count(4) == 1 || count(4) == conv.filters) && count(6) == 1 &&
                    count(7) == 1 && (!has_bias || count(8) == conv.filters);
  if (!fits) {
    return context.InvalidArgument(absl::StrCat(
        "scales and zero points must be scalars, those of W and the bias one or ", conv.filters));
  }
  const int64_t groups = context.attributes().Int("group", 1);
  ByteOutput output;
  output.is_codes = true;
  output.codes.rounds_first = true;
  output.codes.a_place = PlaceOfFilters(count(4), groups, conv.product.m);
  output.codes.bias_place = {.line_step = 1, .matrix_step = conv.product.m, .period = groups};
  output.codes.zeros.format = MakeByteFormat(context.OutputDType(0));
  output.codes.writer = MakeCodeEncoder(context.OutputDType(0), /*saturate=*/true);
  return MakeKernel([=](const KernelContext& run) {
    ByteOutput now = output;
    now.y = run.outputs[0];
    now.codes.a_scales = run.inputs[4];
    now.codes.b_scales = run.inputs[1];
    now.codes.y_scales = run.inputs[6];
    now.codes.zeros.data = run.inputs[7];
    now.codes.bias = static_cast<const int32_t*>(OptionalInput(run, has_bias, 8));
    return LaunchStatus(LaunchConv(run, conv, inputs, true, true, now), "QLinearConv");
  });
}
WEFT_REGISTER_KERNEL("", "QLinearConv", DeviceKind::kCuda, PrepareQLinearConv);

}  // namespace
}  // namespace weft::cuda
