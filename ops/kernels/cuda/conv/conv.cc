// Conv, ConvGradInput, ConvGradWeights and ConvTranspose: which of the ways a node goes.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/defs/conv/transposed_window.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/conv/conv_calls.h"
#include "ops/kernels/cuda/conv/conv_dnn.h"
#include "ops/kernels/cuda/conv/conv_plan.h"
#include "ops/kernels/cuda/conv/conv_product.h"
#include "ops/window.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

std::vector<int64_t> ImageDims(const Shape& shape) {
  return std::vector<int64_t>(shape.dims().begin() + 2, shape.dims().end());
}

// The plan of a Conv of `large` with `weights`, or of one of its gradients.
absl::StatusOr<ConvPlan> PlanOf(const PrepareContext& context, const Shape& large,
                                const Shape& weights, const Shape& small) {
  const auto window = WindowSpec::Create(context.attributes(), ImageDims(weights));
  if (!window.ok()) return context.InvalidArgument(std::string(window.status().message()));
  const auto axes = window->ResolveAll(large);
  if (!axes.ok()) return context.InvalidArgument(std::string(axes.status().message()));
  return PlanConv(context, large, weights, small, *axes);
}

// The sizes of a direct convolution.
DirectConv DirectOf(const ConvPlan& plan) {
  DirectConv conv;
  conv.window = plan.window;
  conv.samples = plan.samples;
  conv.groups = plan.groups;
  conv.large_channels = plan.large_channels;
  conv.small_channels = plan.small_channels;
  return conv;
}

// small = W * large + bias.
std::unique_ptr<Kernel> MakeDirectSmall(const ConvPlan& plan, bool has_bias) {
  return MakeKernel([plan, has_bias](const KernelContext& run) {
    DirectConv conv = DirectOf(plan);
    conv.large_image = const_cast<void*>(run.inputs[0]);
    conv.weights = const_cast<void*>(run.inputs[1]);
    conv.bias = has_bias ? run.inputs[2] : nullptr;
    conv.small_image = run.outputs[0];
    return LaunchStatus(LaunchDirectSmall(QueueOf(run), plan.dtype, conv), "a convolution");
  });
}

// large = W^T * small + bias.
std::unique_ptr<Kernel> MakeDirectLarge(const ConvPlan& plan, bool has_bias) {
  return MakeKernel([plan, has_bias](const KernelContext& run) {
    DirectConv conv = DirectOf(plan);
    conv.small_image = const_cast<void*>(run.inputs[0]);
    conv.weights = const_cast<void*>(run.inputs[1]);
    conv.bias = has_bias ? run.inputs[2] : nullptr;
    conv.large_image = run.outputs[0];
    return LaunchStatus(LaunchDirectLarge(QueueOf(run), plan.dtype, conv),
                        "a transposed convolution");
  });
}

// The sums of the small image's channels are a product kernel's: it has no products then.
class DirectWeights final : public Kernel {
 public:
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const PrepareContext& context,
                                                        const ConvPlan& plan, bool has_bias) {
    auto kernel = std::make_unique<DirectWeights>(plan);
    if (has_bias) {
      ConvPlan sums_only = plan;
      sums_only.large_channels = 0;
      WEFT_ASSIGN_OR_RETURN(kernel->bias_, MakeWeightsProduct(context, sums_only, true));
    }
    return kernel;
  }
  explicit DirectWeights(const ConvPlan& plan) : plan_(plan) {}

  size_t workspace_bytes() const override {
    return bias_ == nullptr ? 0 : bias_->workspace_bytes();
  }
  absl::Status Run(const KernelContext& run) override {
    if (bias_ != nullptr) WEFT_RETURN_IF_ERROR(bias_->Run(run));
    DirectConv conv = DirectOf(plan_);
    conv.large_image = const_cast<void*>(run.inputs[0]);
    conv.small_image = const_cast<void*>(run.inputs[1]);
    conv.weights = run.outputs[0];
    return LaunchStatus(LaunchDirectWeights(QueueOf(run), plan_.dtype, conv),
                        "the gradient of a convolution's weights");
  }

 private:
  const ConvPlan plan_;
  std::unique_ptr<Kernel> bias_;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareConv(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ConvPlan plan, PlanOf(context, context.InputShape(0),
                                                    context.InputShape(1), context.OutputShape(0)));
  WEFT_ASSIGN_OR_RETURN(
      std::unique_ptr<Kernel> by_dnn,
      MakeDnnConv(context, plan, ConvolutionResult::kSmallImage, context.HasInput(2)));
  if (by_dnn != nullptr) return by_dnn;
  if (plan.is_direct()) return MakeDirectSmall(plan, context.HasInput(2));
  return MakeSmallProduct(context, plan, context.HasInput(2));
}

// Input 2 is the shape of the large image.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareConvGradInput(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ConvPlan plan, PlanOf(context, context.OutputShape(0),
                                                    context.InputShape(1), context.InputShape(0)));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> by_dnn,
                        MakeDnnConv(context, plan, ConvolutionResult::kLargeImage, false));
  if (by_dnn != nullptr) return by_dnn;
  if (plan.is_direct()) return MakeDirectLarge(plan, false);
  return MakeLargeProduct(context, plan, false);
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareConvGradWeights(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ConvPlan plan, PlanOf(context, context.InputShape(0),
                                                    context.OutputShape(0), context.InputShape(1)));
  WEFT_ASSIGN_OR_RETURN(
      std::unique_ptr<Kernel> by_dnn,
      MakeDnnConv(context, plan, ConvolutionResult::kWeights, context.HasOutput(1)));
  if (by_dnn != nullptr) return by_dnn;
  if (plan.is_direct()) return DirectWeights::Create(context, plan, context.HasOutput(1));
  return MakeWeightsProduct(context, plan, context.HasOutput(1));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareConvTranspose(const PrepareContext& context) {
  const Shape& small = context.InputShape(0);
  const Shape& weights = context.InputShape(1);
  const auto axes = TransposedWindows(context.attributes(), ImageDims(weights), ImageDims(small));
  if (!axes.ok()) return context.InvalidArgument(std::string(axes.status().message()));
  WEFT_ASSIGN_OR_RETURN(const ConvPlan plan,
                        PlanConv(context, context.OutputShape(0), weights, small, *axes));
  WEFT_ASSIGN_OR_RETURN(
      std::unique_ptr<Kernel> by_dnn,
      MakeDnnConv(context, plan, ConvolutionResult::kLargeImage, context.HasInput(2)));
  if (by_dnn != nullptr) return by_dnn;
  if (plan.is_direct()) return MakeDirectLarge(plan, context.HasInput(2));
  return MakeLargeProduct(context, plan, context.HasInput(2));
}

}  // namespace

WEFT_REGISTER_KERNEL("", "Conv", DeviceKind::kCuda, PrepareConv);
WEFT_REGISTER_KERNEL("ai.weft", "ConvGradInput", DeviceKind::kCuda, PrepareConvGradInput);
WEFT_REGISTER_KERNEL("ai.weft", "ConvGradWeights", DeviceKind::kCuda, PrepareConvGradWeights);
WEFT_REGISTER_KERNEL("", "ConvTranspose", DeviceKind::kCuda, PrepareConvTranspose);

}  // namespace weft::cuda
