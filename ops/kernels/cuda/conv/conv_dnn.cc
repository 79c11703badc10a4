#include "ops/kernels/cuda/conv/conv_dnn.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/workspace_layout.h"
#include "ops/kernels/cuda/conv/conv_product.h"
#include "ops/kernels/cuda/linear/blas_lt.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// cuDNN has two or three image axes; those in front that have one element, one tap and no padding
// are left out.
int FirstAxis(const ConvWindow& window) {
  const bool is_plane =
      window.large[0] == 1 && window.small[0] == 1 && window.kernel[0] == 1 && window.pad[0] == 0;
  return is_plane ? 1 : 0;
}

// Whether as many zeros behind the image as before it give the small image.
bool IsSymmetric(const ConvWindow& window) {
  for (int i = 0; i < kImageAxes; ++i) {
    const int64_t reach = int64_t{window.kernel[i] - 1} * window.dilation[i] + 1;
    const int64_t room = window.large[i] + 2 * int64_t{window.pad[i]} - reach;
    if (room < 0 || window.small[i] != room / window.stride[i] + 1) return false;
  }
  return true;
}

bool HasElements(const ConvPlan& plan) {
  return plan.samples > 0 && plan.large_channels > 0 && plan.small_channels > 0 &&
         plan.window.large_size() > 0 && plan.window.small_size() > 0 && plan.window.taps() > 0;
}

ConvolutionSpec SpecOfPlan(const ConvPlan& plan, ConvolutionResult result) {
  const ConvWindow& window = plan.window;
  const int first = FirstAxis(window);
  const auto image = [first](int64_t outer, int64_t inner, const int32_t(&sizes)[kImageAxes]) {
    std::vector<int64_t> dims = {outer, inner};
    dims.insert(dims.end(), sizes + first, sizes + kImageAxes);
    return DnnTensor::Dense(std::move(dims));
  };
  ConvolutionSpec spec;
  spec.result = result;
  spec.dtype = plan.dtype;
  spec.groups = plan.groups;
  spec.large = image(plan.samples, plan.groups * plan.large_channels, window.large);
  spec.weights = image(plan.groups * plan.small_channels, plan.large_channels, window.kernel);
  spec.small = image(plan.samples, plan.groups * plan.small_channels, window.small);
  spec.pads.assign(window.pad + first, window.pad + kImageAxes);
  spec.strides.assign(window.stride + first, window.stride + kImageAxes);
  spec.dilations.assign(window.dilation + first, window.dilation + kImageAxes);
  return spec;
}

// The convolution, and what goes before it: an image that is filled with a bias, or the sums of
// channels.
class DnnConvKernel final : public Kernel {
 public:
  DnnConvKernel(const ConvPlan& plan, ConvolutionResult result) : plan_(plan), result_(result) {}

  // Unimplemented where the library has no algorithm.
  absl::Status Prepare(Dnn& library, ConvolutionSpec spec, bool has_bias) {
    if (!has_bias || result_ == ConvolutionResult::kWeights) {
      WEFT_ASSIGN_OR_RETURN(convolution_, library.Prepare(spec));
    } else {
      WEFT_RETURN_IF_ERROR(PrepareBias(library, std::move(spec)));
    }
    convolution_bytes_ = convolution_->workspace_bytes();
    dnn_offset_ = layout_.Add(DnnWorkspaceRoom(convolution_bytes_));
    return absl::OkStatus();
  }

  // The sums of the small image's channels are another kernel's.
  void TakeSums(std::unique_ptr<Kernel> sums) {
    sums_ = std::move(sums);
    sums_offset_ = layout_.Add(sums_->workspace_bytes());
  }

  size_t workspace_bytes() const override { return layout_.total(); }

  absl::Status Run(const KernelContext& run) override {
    if (sums_ != nullptr) {
      KernelContext of_sums = run;
      of_sums.workspace = At(run.workspace, sums_offset_);
      WEFT_RETURN_IF_ERROR(sums_->Run(of_sums));
    }
    if (fills_) WEFT_RETURN_IF_ERROR(Fill(run));
    ConvolutionOperands operands = Operands(run);
    if (fuses_) operands.bias = run.inputs[2];
    void* const room = At(run.workspace, dnn_offset_);
    return convolution_->Run(operands, DnnWorkspaceIn(room, convolution_bytes_), QueueOf(run));
  }

 private:
  // A bias is added by the library as it writes the image; where it cannot, it adds to an image
  // that holds the bias.
  absl::Status PrepareBias(Dnn& library, ConvolutionSpec spec) {
    spec.has_bias = true;
    absl::StatusOr<std::unique_ptr<PreparedConvolution>> fused = library.Prepare(spec);
    fuses_ = fused.ok();
    if (absl::IsUnimplemented(fused.status())) {
      spec.has_bias = false;
      spec.adds = true;
      fused = library.Prepare(spec);
      fills_ = fused.ok();
    }
    WEFT_RETURN_IF_ERROR(fused.status());
    convolution_ = *std::move(fused);
    return absl::OkStatus();
  }

  ConvolutionOperands Operands(const KernelContext& run) const {
    ConvolutionOperands operands;
    void* const first = const_cast<void*>(run.inputs[0]);
    void* const second = const_cast<void*>(run.inputs[1]);
    switch (result_) {
      case ConvolutionResult::kSmallImage:
        operands.large = first;
        operands.weights = second;
        operands.small = run.outputs[0];
        break;
      case ConvolutionResult::kLargeImage:
        operands.small = first;
        operands.weights = second;
        operands.large = run.outputs[0];
        break;
      case ConvolutionResult::kWeights:
        operands.large = first;
        operands.small = second;
        operands.weights = run.outputs[0];
        break;
    }
    return operands;
  }

  absl::Status Fill(const KernelContext& run) const {
    const bool is_large = result_ == ConvolutionResult::kLargeImage;
    FillChannels fill;
    fill.bias = run.inputs[2];
    fill.image = run.outputs[0];
    fill.channels = plan_.groups * (is_large ? plan_.large_channels : plan_.small_channels);
    fill.plane = is_large ? plan_.window.large_size() : plan_.window.small_size();
    fill.count = plan_.samples * fill.channels * fill.plane;
    return LaunchStatus(LaunchFillChannels(QueueOf(run), plan_.dtype, fill), "a filled image");
  }

  const ConvPlan plan_;
  const ConvolutionResult result_;
  std::unique_ptr<PreparedConvolution> convolution_;
  std::unique_ptr<Kernel> sums_;  // null: none are wanted
  bool fuses_ = false;
  bool fills_ = false;
  WorkspaceLayout layout_;
  size_t convolution_bytes_ = 0;
  size_t dnn_offset_ = 0;
  size_t sums_offset_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> MakeDnnConv(const PrepareContext& context,
                                                    const ConvPlan& plan, ConvolutionResult result,
                                                    bool has_bias) {
  if (!context.uses_cudnn()) return nullptr;
  const absl::StatusOr<Dnn*> library = DnnOf(context.device());
  if (!library.ok()) {
    return absl::Status(library.status().code(),
                        absl::StrCat("node '", context.node().name,
                                     "' (Conv): ", std::string(library.status().message())));
  }
  if (plan.dtype == DType::kFloat64 || !HasElements(plan) || !IsSymmetric(plan.window)) {
    return nullptr;
  }
  ConvolutionSpec spec = SpecOfPlan(plan, result);
  spec.tf32 = plan.dtype == DType::kFloat32 && context.tf32();
  auto kernel = std::make_unique<DnnConvKernel>(plan, result);
  const absl::Status prepared = kernel->Prepare(**library, std::move(spec), has_bias);
  if (absl::IsUnimplemented(prepared)) {
    Log(LogLevel::kInfo, "node '", context.node().name,
        "' does not go through cuDNN: ", prepared.message());
    return nullptr;
  }
  WEFT_RETURN_IF_ERROR(prepared);
  if (has_bias && result == ConvolutionResult::kWeights) {
    // Of no products, a kernel of them computes the sums alone.
    ConvPlan sums_only = plan;
    sums_only.large_channels = 0;
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> sums,
                          MakeWeightsProduct(context, sums_only, true));
    kernel->TakeSums(std::move(sums));
  }
  return kernel;
}

}  // namespace weft::cuda
