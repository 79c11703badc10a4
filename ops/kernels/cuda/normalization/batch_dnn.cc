#include "ops/kernels/cuda/normalization/batch_dnn.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/fold_plan.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/normalization/batch_calls.h"
#include "ops/kernels/cuda/normalization/normalization_dnn.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// Two axes of an image stay; others are one, which is the same in memory.
DnnTensor ImagesTensor(const Shape& x) {
  if (x.rank() == 4) return DnnTensor::Dense({x.dim(0), x.dim(1), x.dim(2), x.dim(3)});
  return DnnTensor::Dense({x.dim(0), x.dim(1), x.ProductOf(2, x.rank()), 1});
}

BatchPlan PlanOfImages(const PrepareContext& context, const Shape& x) {
  BatchPlan plan;
  plan.samples = x.dim(0);
  plan.channels = x.dim(1);
  plan.plane = x.ProductOf(2, x.rank());
  plan.epsilon = context.attributes().Float("epsilon", 1e-5f);
  plan.momentum = context.attributes().Float("momentum", 0.9f);
  return plan;
}

NormalizationSpec SpecOfImages(const PrepareContext& context, bool is_gradient) {
  const int x = is_gradient ? 1 : 0;
  NormalizationSpec spec;
  spec.kind = NormalizationKind::kBatch;
  spec.is_gradient = is_gradient;
  spec.dtype = context.InputDType(x);
  spec.x = ImagesTensor(context.InputShape(x));
  spec.epsilon = context.attributes().Float("epsilon", 1e-5f);
  return spec;
}

// `x` and `last`: the inputs that x is, and that scale and bias end with.
std::string BeyondDnnBatch(const PrepareContext& context, int x, int last) {
  if (context.attributes().Int("training_mode", 0) == 0) return "statistics that are given";
  if (context.InputShape(x).num_elements() == 0) return "no elements";
  for (int i = x + 1; i <= last; ++i) {
    if (context.InputDType(i) == DType::kFloat32) continue;
    return absl::StrCat("parameters of ", std::string(DTypeName(context.InputDType(i))));
  }
  return BeyondDnnTypes(context.InputDType(x));
}

class DnnBatchKernel final : public DnnNormalizationKernel {
 public:
  DnnBatchKernel(const PrepareContext& context, const NormalizationSpec& spec)
      : DnnNormalizationKernel(spec, {}),
        plan_(PlanOfImages(context, context.InputShape(0))),
        has_mean_(context.HasOutput(1)),
        has_variance_(context.HasOutput(2)) {
    running_.mean.dtype = context.InputDType(3);
    running_.variance.dtype = context.InputDType(4);
    if (has_mean_) running_.new_mean.dtype = context.OutputDType(1);
    if (has_variance_) running_.new_variance.dtype = context.OutputDType(2);
  }

 protected:
  NormalizationOperands OperandsOf(const KernelContext& run) const override {
    NormalizationOperands operands;
    operands.x = run.inputs[0];
    operands.scale = run.inputs[1];
    operands.bias = run.inputs[2];
    operands.result = run.outputs[0];
    return operands;
  }
  absl::Status After(const KernelContext& run, const NormalizationOperands& operands) override {
    if (!has_mean_ && !has_variance_) return absl::OkStatus();
    BatchParameters parameters = running_;
    parameters.mean.data = run.inputs[3];
    parameters.variance.data = run.inputs[4];
    if (has_mean_) parameters.new_mean.data = run.outputs[1];
    if (has_variance_) parameters.new_variance.data = run.outputs[2];
    return LaunchStatus(
        LaunchBatchRunning(QueueOf(run), plan_, parameters, operands.mean, operands.inverse),
        "BatchNormalization's running statistics");
  }

 private:
  const BatchPlan plan_;
  const bool has_mean_;
  const bool has_variance_;
  BatchParameters running_;
};

// T: the type of x.
template <typename T>
class DnnBatchGradKernel final : public DnnNormalizationKernel {
 public:
  DnnBatchGradKernel(const PrepareContext& context, const NormalizationSpec& spec)
      : DnnNormalizationKernel(spec,
                               {.dscale = context.HasOutput(1), .dbias = context.HasOutput(2)}),
        plan_(PlanOfImages(context, context.InputShape(1))),
        fold_(FoldPlan::Make(Shape{plan_.samples, plan_.channels, plan_.plane}, {true, false, true},
                             kBatchWidth<T>)),
        has_dscale_(context.HasOutput(1)),
        has_dbias_(context.HasOutput(2)) {
    const size_t array = static_cast<size_t>(plan_.channels) * sizeof(float);
    factor_ = layout_.Add(array);
    first_ = layout_.Add(array);
    partials_ = layout_.Add(fold_.workspace_bytes(kBatchTotalBytes));
  }

 protected:
  NormalizationOperands OperandsOf(const KernelContext& run) const override {
    NormalizationOperands operands;
    operands.dy = run.inputs[0];
    operands.x = run.inputs[1];
    operands.scale = run.inputs[2];
    operands.result = run.outputs[0];
    if (has_dscale_) operands.dscale = run.outputs[1];
    if (has_dbias_) operands.dbias = run.outputs[2];
    return operands;
  }
  // Statistics of X.
  absl::Status Before(const KernelContext& run, const NormalizationOperands& operands) override {
    const auto floats_at = [&](size_t offset) {
      return static_cast<float*>(At(run.workspace, offset));
    };
    BatchChannels<float> channels;
    channels.mean = operands.mean;
    channels.inverse = operands.inverse;
    channels.factor = floats_at(factor_);
    channels.first = floats_at(first_);
    BatchParameters parameters;
    parameters.scale = {run.inputs[2], DType::kFloat32};
    const T* const x = In<T>(run, 1);
    return LaunchStatus(LaunchBatchMoments(QueueOf(run), fold_.For({x}), plan_, parameters,
                                           channels, x, At(run.workspace, partials_)),
                        "BatchNormalizationGrad's statistics");
  }

 private:
  const BatchPlan plan_;
  const FoldPlan fold_;
  const bool has_dscale_;
  const bool has_dbias_;
  size_t factor_ = 0, first_ = 0, partials_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> MakeDnnBatchNormalization(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(Dnn* const library,
                        DnnForNormalization(context, BeyondDnnBatch(context, 0, 2)));
  if (library == nullptr) return nullptr;
  return PreparedOrNull(context, *library,
                        std::make_unique<DnnBatchKernel>(context, SpecOfImages(context, false)));
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeDnnBatchNormalizationGrad(
    const PrepareContext& context) {
  std::string beyond = BeyondDnnBatch(context, 1, 2);
  if (!context.HasOutput(0)) beyond = "no dX";
  WEFT_ASSIGN_OR_RETURN(Dnn* const library, DnnForNormalization(context, beyond));
  if (library == nullptr) return nullptr;
  const NormalizationSpec spec = SpecOfImages(context, true);
  return PrepareByElement(
      context, spec.dtype, Elements<float, Float16, Bfloat16>(), [&](auto zero) {
        return PreparedOrNull(context, *library,
                              std::make_unique<DnnBatchGradKernel<decltype(zero)>>(context, spec));
      });
}

}  // namespace weft::cuda
