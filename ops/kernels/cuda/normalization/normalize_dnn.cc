#include "ops/kernels/cuda/normalization/normalize_dnn.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/line_plan.h"
#include "ops/kernels/cuda/normalization/normalization_dnn.h"
#include "ops/kernels/cuda/normalization/normalize_calls.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

NormalizationSpec SpecOfRows(const PrepareContext& context, NormalizationKind kind,
                             bool is_gradient, int64_t rows, int64_t columns) {
  NormalizationSpec spec;
  spec.kind = kind;
  spec.is_gradient = is_gradient;
  spec.dtype = context.InputDType(is_gradient ? 1 : 0);
  spec.parameter_dtype = context.InputDType(is_gradient ? 2 : 1);
  spec.x = DnnTensor::Rows(rows, columns);
  spec.epsilon = context.attributes().Float("epsilon", 1e-5f);
  return spec;
}

// What all of them have in common: x and its size.
std::string BeyondDnnRows(const PrepareContext& context, int x) {
  if (context.InputShape(x).num_elements() == 0) return "no elements";
  return BeyondDnnTypes(context.InputDType(x));
}

class DnnRowsKernel final : public DnnNormalizationKernel {
 public:
  DnnRowsKernel(const PrepareContext& context, const NormalizationSpec& spec)
      : DnnNormalizationKernel(spec,
                               {.mean = context.HasOutput(1), .inverse = context.HasOutput(2)}),
        has_bias_(spec.has_mean()),
        has_mean_(context.HasOutput(1)),
        has_inverse_(context.HasOutput(2)) {}

 protected:
  NormalizationOperands OperandsOf(const KernelContext& run) const override {
    NormalizationOperands operands;
    operands.x = run.inputs[0];
    operands.scale = run.inputs[1];
    if (has_bias_) operands.bias = run.inputs[2];
    if (has_mean_) operands.mean = Out<float>(run, 1);
    if (has_inverse_) operands.inverse = Out<float>(run, 2);
    operands.result = run.outputs[0];
    return operands;
  }

 private:
  const bool has_bias_;
  const bool has_mean_;
  const bool has_inverse_;
};

class DnnLayerGradKernel final : public DnnNormalizationKernel {
 public:
  DnnLayerGradKernel(const PrepareContext& context, const NormalizationSpec& spec)
      : DnnNormalizationKernel(spec, {.mean = true,
                                      .inverse = true,
                                      .dscale = context.HasOutput(1),
                                      .dbias = context.HasOutput(2)}),
        has_dscale_(context.HasOutput(1)),
        has_dbias_(context.HasOutput(2)) {}

 protected:
  NormalizationOperands OperandsOf(const KernelContext& run) const override {
    NormalizationOperands operands;
    operands.dy = run.inputs[0];
    operands.x = run.inputs[1];
    operands.scale = run.inputs[2];
    // Gradients read them.
    operands.mean = const_cast<float*>(In<float>(run, 3));
    operands.inverse = const_cast<float*>(In<float>(run, 4));
    operands.result = run.outputs[0];
    if (has_dscale_) operands.dscale = run.outputs[1];
    if (has_dbias_) operands.dbias = run.outputs[2];
    return operands;
  }

 private:
  const bool has_dscale_;
  const bool has_dbias_;
};

// T: the type of x.
template <typename T>
class DnnRmsGradKernel final : public DnnNormalizationKernel {
 public:
  DnnRmsGradKernel(const PrepareContext& context, const NormalizationSpec& spec)
      : DnnNormalizationKernel(spec, {.dscale = context.HasOutput(1)}),
        has_dscale_(context.HasOutput(1)),
        epsilon_(spec.epsilon),
        by_row_(LinePlan::Make(spec.x.dims[0], spec.x.dims[1], 1, 16 / sizeof(T),
                               /*registers=*/true)) {}

 protected:
  NormalizationOperands OperandsOf(const KernelContext& run) const override {
    NormalizationOperands operands;
    operands.dy = run.inputs[0];
    operands.x = run.inputs[1];
    operands.scale = run.inputs[2];
    operands.result = run.outputs[0];
    if (has_dscale_) operands.dscale = run.outputs[1];
    return operands;
  }
  absl::Status Before(const KernelContext& run, const NormalizationOperands& operands) override {
    NormalizeGradOperands<T> inverses;
    inverses.dy = In<T>(run, 0);
    inverses.x = In<T>(run, 1);
    inverses.scale = In<T>(run, 2);
    inverses.new_inverse = operands.inverse;
    inverses.epsilon = epsilon_;
    const LineLaunch& line = by_row_.For({inverses.dy, inverses.x, inverses.scale});
    return LaunchStatus(LaunchNormalizeGrad(QueueOf(run), line, /*rms=*/true, inverses),
                        "the inverses of RMSNormalization");
  }

 private:
  const bool has_dscale_;
  const double epsilon_;
  const LinePlan by_row_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> MakeDnnLayerNormalization(const PrepareContext& context,
                                                                  int64_t rows, int64_t columns) {
  std::string beyond = BeyondDnnRows(context, 0);
  if (!context.HasInput(2)) beyond = "no bias";
  for (int i = 1; i < 3; ++i) {
    if (context.HasOutput(i) && context.OutputDType(i) != DType::kFloat32) {
      beyond = absl::StrCat("statistics of ", std::string(DTypeName(context.OutputDType(i))));
    }
  }
  WEFT_ASSIGN_OR_RETURN(Dnn* const library, DnnForNormalization(context, beyond));
  if (library == nullptr) return nullptr;
  return PreparedOrNull(
      context, *library,
      std::make_unique<DnnRowsKernel>(
          context, SpecOfRows(context, NormalizationKind::kLayer, false, rows, columns)));
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeDnnLayerNormalizationGrad(const PrepareContext& context,
                                                                      int64_t rows,
                                                                      int64_t columns) {
  std::string beyond = BeyondDnnRows(context, 1);
  if (!context.HasOutput(0)) beyond = "no dX";
  WEFT_ASSIGN_OR_RETURN(Dnn* const library, DnnForNormalization(context, beyond));
  if (library == nullptr) return nullptr;
  return PreparedOrNull(
      context, *library,
      std::make_unique<DnnLayerGradKernel>(
          context, SpecOfRows(context, NormalizationKind::kLayer, true, rows, columns)));
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeDnnRmsNormalization(const PrepareContext& context,
                                                                int64_t rows, int64_t columns) {
  std::string beyond = BeyondDnnRows(context, 0);
  const DType scales = context.InputDType(1);
  if (scales != context.InputDType(0) && scales != DType::kFloat32) {
    beyond = absl::StrCat("a scale of ", std::string(DTypeName(scales)));
  }
  if (context.OutputDType(0) != context.InputDType(0)) beyond = "a result of another type";
  if (context.InputShape(1).num_elements() != columns) beyond = "a scale that is spread";
  WEFT_ASSIGN_OR_RETURN(Dnn* const library, DnnForNormalization(context, beyond));
  if (library == nullptr) return nullptr;
  return PreparedOrNull(
      context, *library,
      std::make_unique<DnnRowsKernel>(
          context, SpecOfRows(context, NormalizationKind::kRms, false, rows, columns)));
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeDnnRmsNormalizationGrad(const PrepareContext& context,
                                                                    int64_t rows, int64_t columns) {
  std::string beyond = BeyondDnnRows(context, 1);
  if (!context.HasOutput(0)) beyond = "no dX";
  WEFT_ASSIGN_OR_RETURN(Dnn* const library, DnnForNormalization(context, beyond));
  if (library == nullptr) return nullptr;
  const NormalizationSpec spec = SpecOfRows(context, NormalizationKind::kRms, true, rows, columns);
  return PrepareByElement(
      context, spec.dtype, Elements<float, Float16, Bfloat16>(), [&](auto zero) {
        return PreparedOrNull(context, *library,
                              std::make_unique<DnnRmsGradKernel<decltype(zero)>>(context, spec));
      });
}

}  // namespace weft::cuda
