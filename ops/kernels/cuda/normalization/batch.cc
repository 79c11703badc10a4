// BatchNormalization and its gradient. A launch finds each channel's statistics and coefficients,
// in the workspace; another applies them.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/fold_plan.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/normalization/batch_calls.h"
#include "ops/kernels/cuda/normalization/batch_dnn.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// What both kernels have. T: the type of x.
template <typename T>
class BatchBase : public Kernel {
 public:
  BatchBase(const PrepareContext& context, const Shape& x)
      : training_(context.attributes().Int("training_mode", 0) != 0) {
    plan_.samples = x.dim(0);
    plan_.channels = x.dim(1);
    plan_.plane = x.ProductOf(2, x.rank());
    plan_.epsilon = context.attributes().Float("epsilon", 1e-5f);
    plan_.momentum = context.attributes().Float("momentum", 0.9f);
    plan_.wide = x.num_elements() >= (int64_t{1} << 31) ? 1 : 0;
    packed_plan_ = plan_;
    has_packets_ = plan_.plane > 0 && plan_.plane % kWidest<T> == 0;
    if (plan_.wide == 0) {
      plan_.by_plane = Divisor(plan_.plane);
      plan_.by_channels = Divisor(plan_.channels);
      packed_plan_.by_plane = Divisor(plan_.plane / kWidest<T>);
      packed_plan_.by_channels = plan_.by_channels;
    }
    std::vector<bool> reduced(3, true);
    reduced[1] = false;
    fold_ =
        FoldPlan::Make(Shape{plan_.samples, plan_.channels, plan_.plane}, reduced, kBatchWidth<T>);
  }

  size_t workspace_bytes() const override {
    return kArrays * ArrayBytes() + fold_.workspace_bytes(kBatchTotalBytes);
  }

 protected:
  using C = Compute<T>;

  BatchChannels<C> ChannelsIn(void* workspace) const {
    const auto array = [&](int i) {
      return reinterpret_cast<C*>(static_cast<char*>(workspace) + i * ArrayBytes());
    };
    return {array(0), array(1), array(2), array(3), array(4)};
  }
  void* PartialsIn(void* workspace) const {
    return static_cast<char*>(workspace) + kArrays * ArrayBytes();
  }
  bool IsPacked(std::initializer_list<const void*> operands) const {
    return has_packets_ && AreAligned(operands);
  }
  const BatchPlan& PlanFor(bool packed) const { return packed ? packed_plan_ : plan_; }

  const bool training_;
  BatchPlan plan_;
  FoldPlan fold_;

 private:
  static constexpr int kArrays = 5;

  static FastDivisor<int32_t> Divisor(int64_t by) {
    return FastDivisor<int32_t>(static_cast<int32_t>(std::max<int64_t>(by, 1)));
  }
  size_t ArrayBytes() const {
    return (static_cast<size_t>(plan_.channels) * sizeof(C) + 63) / 64 * 64;
  }

  BatchPlan packed_plan_;
  bool has_packets_ = false;
};

RealInput InputOf(const PrepareContext& context, int i) { return {nullptr, context.InputDType(i)}; }
RealOutput OutputOf(const PrepareContext& context, int i) {
  return {nullptr, context.OutputDType(i)};
}

template <typename T>
class BatchNormalizationKernel final : public BatchBase<T> {
 public:
  BatchNormalizationKernel(const PrepareContext& context, const Shape& x)
      : BatchBase<T>(context, x),
        parameters_{InputOf(context, 1), InputOf(context, 2),  InputOf(context, 3),
                    InputOf(context, 4), OutputOf(context, 1), OutputOf(context, 2)},
        has_mean_(context.HasOutput(1)),
        has_variance_(context.HasOutput(2)) {}

  absl::Status Run(const KernelContext& run) override {
    const LaunchQueue queue = QueueOf(run);
    const T* x = In<T>(run, 0);
    T* y = Out<T>(run, 0);
    BatchParameters parameters = parameters_;
    parameters.scale.data = run.inputs[1];
    parameters.bias.data = run.inputs[2];
    parameters.mean.data = run.inputs[3];
    parameters.variance.data = run.inputs[4];
    if (has_mean_) parameters.new_mean.data = run.outputs[1];
    if (has_variance_) parameters.new_variance.data = run.outputs[2];
    const auto channels = this->ChannelsIn(run.workspace);
    const int code = this->training_
                         ? LaunchBatchMoments(queue, this->fold_.For({x}), this->plan_, parameters,
                                              channels, x, this->PartialsIn(run.workspace))
                         : LaunchBatchGiven(queue, this->plan_, parameters, channels);
    WEFT_RETURN_IF_ERROR(LaunchStatus(code, "BatchNormalization's statistics"));
    const bool packed = this->IsPacked({x, y});
    return LaunchStatus(LaunchBatchApply(queue, this->PlanFor(packed), packed, channels, x, y),
                        "BatchNormalization");
  }

 private:
  const BatchParameters parameters_;
  const bool has_mean_;
  const bool has_variance_;
};

template <typename T>
class BatchNormalizationGradKernel final : public BatchBase<T> {
 public:
  BatchNormalizationGradKernel(const PrepareContext& context, const Shape& x)
      : BatchBase<T>(context, x),
        dx_(context.HasOutput(0)),
        dscale_(context.HasOutput(1)),
        dbias_(context.HasOutput(2)),
        parameter_type_(context.InputDType(2)) {
    parameters_.scale.dtype = parameter_type_;
    parameters_.mean.dtype = context.HasInput(3) ? context.InputDType(3) : DType::kFloat32;
    parameters_.variance.dtype = context.HasInput(4) ? context.InputDType(4) : DType::kFloat32;
  }

  absl::Status Run(const KernelContext& run) override {
    const LaunchQueue queue = QueueOf(run);
    const T* dy = In<T>(run, 0);
    const T* x = In<T>(run, 1);
    BatchParameters parameters = parameters_;
    parameters.scale.data = run.inputs[2];
    const auto channels = this->ChannelsIn(run.workspace);
    void* const partials = this->PartialsIn(run.workspace);
    if (this->training_) {
      WEFT_RETURN_IF_ERROR(LaunchStatus(LaunchBatchMoments(queue, this->fold_.For({x}), this->plan_,
                                                           parameters, channels, x, partials),
                                        "BatchNormalizationGrad's statistics"));
    } else {
      parameters.mean.data = run.inputs[3];
      parameters.variance.data = run.inputs[4];
      WEFT_RETURN_IF_ERROR(LaunchStatus(LaunchBatchGiven(queue, this->plan_, parameters, channels),
                                        "BatchNormalizationGrad's statistics"));
    }
    if (this->training_ || dscale_ || dbias_) {
      const RealOutput dscale = {dscale_ ? run.outputs[1] : nullptr, parameter_type_};
      const RealOutput dbias = {dbias_ ? run.outputs[2] : nullptr, parameter_type_};
      WEFT_RETURN_IF_ERROR(LaunchStatus(
          LaunchBatchGradSums(queue, this->fold_.For({dy, x}), this->plan_, this->training_,
                              channels, dy, x, dscale, dbias, partials),
          "BatchNormalizationGrad's sums"));
    }
    if (!dx_) return absl::OkStatus();
    T* dx = Out<T>(run, 0);
    const bool packed = this->IsPacked({dy, x, dx});
    return LaunchStatus(
        LaunchBatchGradApply(queue, this->PlanFor(packed), packed, channels, dy, x, dx),
        "BatchNormalizationGrad");
  }

 private:
  const bool dx_;
  const bool dscale_;
  const bool dbias_;
  const DType parameter_type_;
  BatchParameters parameters_;
};

absl::Status CheckFloats(const PrepareContext& context, int first) {
  for (int i = first; i < context.num_inputs(); ++i) {
    if (!context.HasInput(i)) continue;
    switch (context.InputDType(i)) {
      case DType::kFloat32:
      case DType::kFloat64:
      case DType::kFloat16:
      case DType::kBfloat16:
        continue;
      default:
        return context.Unimplemented(absl::StrCat("no kernel for parameters of type ",
                                                  std::string(DTypeName(context.InputDType(i))),
                                                  " on CUDA devices"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareBatchNormalization(const PrepareContext& context) {
  WEFT_RETURN_IF_ERROR(CheckFloats(context, 1));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> through_cudnn, MakeDnnBatchNormalization(context));
  if (through_cudnn != nullptr) return through_cudnn;
  return PrepareByElement(context, context.InputDType(0), FloatElements(),
                          [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return std::make_unique<BatchNormalizationKernel<decltype(zero)>>(
                                context, context.InputShape(0));
                          });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareBatchNormalizationGrad(
    const PrepareContext& context) {
  if (!(context.InputShape(0) == context.InputShape(1))) {
    return context.InvalidArgument("dY and X must have the same shape");
  }
  WEFT_RETURN_IF_ERROR(CheckFloats(context, 2));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> through_cudnn,
                        MakeDnnBatchNormalizationGrad(context));
  if (through_cudnn != nullptr) return through_cudnn;
  return PrepareByElement(context, context.InputDType(0), FloatElements(),
                          [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return std::make_unique<BatchNormalizationGradKernel<decltype(zero)>>(
                                context, context.InputShape(1));
                          });
}

WEFT_REGISTER_KERNEL("", "BatchNormalization", DeviceKind::kCuda, PrepareBatchNormalization);
WEFT_REGISTER_KERNEL(kWeftDomain, "BatchNormalizationGrad", DeviceKind::kCuda,
                     PrepareBatchNormalizationGrad);

}  // namespace
}  // namespace weft::cuda
