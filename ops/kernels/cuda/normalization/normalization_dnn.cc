#include "ops/kernels/cuda/normalization/normalization_dnn.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

void LogOtherWay(const PrepareContext& context, absl::string_view why) {
  Log(LogLevel::kInfo, "node '", context.node().name, "' does not go through cuDNN: ", why);
}

size_t BytesOf(const DnnTensor& tensor, DType dtype) {
  return static_cast<size_t>(DTypeBytes(dtype, tensor.num_elements()));
}

}  // namespace

DnnNormalizationKernel::DnnNormalizationKernel(const NormalizationSpec& spec, const Owned& owned)
    : spec_(spec) {
  const size_t statistic = BytesOf(spec.statistics(), DType::kFloat32);
  const size_t parameter = BytesOf(spec.parameters(), spec.parameter_dtype);
  if (spec.has_mean() && !owned.mean) mean_ = layout_.Add(statistic);
  if (!owned.inverse) inverse_ = layout_.Add(statistic);
  if (!spec.is_gradient) return;
  if (!owned.dscale) dscale_ = layout_.Add(parameter);
  if (spec.has_mean() && !owned.dbias) dbias_ = layout_.Add(parameter);
}

absl::Status DnnNormalizationKernel::Prepare(Dnn& library) {
  WEFT_ASSIGN_OR_RETURN(work_, library.PrepareNormalization(spec_));
  library_ = layout_.Add(DnnWorkspaceRoom(work_->workspace_bytes()));
  return absl::OkStatus();
}

absl::Status DnnNormalizationKernel::Run(const KernelContext& run) {
  NormalizationOperands operands = OperandsOf(run);
  const auto floats_at = [&](size_t offset) {
    return static_cast<float*>(At(run.workspace, offset));
  };
  if (spec_.has_mean() && operands.mean == nullptr) operands.mean = floats_at(mean_);
  if (operands.inverse == nullptr) operands.inverse = floats_at(inverse_);
  if (spec_.is_gradient && operands.dscale == nullptr) operands.dscale = At(run.workspace, dscale_);
  if (spec_.is_gradient && spec_.has_mean() && operands.dbias == nullptr) {
    operands.dbias = At(run.workspace, dbias_);
  }
  WEFT_RETURN_IF_ERROR(Before(run, operands));
  void* const room = At(run.workspace, library_);
  WEFT_RETURN_IF_ERROR(
      work_->Run(operands, DnnWorkspaceIn(room, work_->workspace_bytes()), QueueOf(run)));
  return After(run, operands);
}

absl::StatusOr<Dnn*> DnnForNormalization(const PrepareContext& context, const std::string& beyond) {
  if (!context.uses_cudnn()) return nullptr;
  const absl::StatusOr<Dnn*> library = DnnOf(context.device());
  if (!library.ok()) {
    return absl::Status(library.status().code(),
                        absl::StrCat("node '", context.node().name, "' (", context.node().op,
                                     "): ", std::string(library.status().message())));
  }
  if (beyond.empty()) return *library;
  LogOtherWay(context, absl::StrCat("it has ", beyond));
  return nullptr;
}

absl::StatusOr<std::unique_ptr<Kernel>> PreparedOrNull(
    const PrepareContext& context, Dnn& library, std::unique_ptr<DnnNormalizationKernel> kernel) {
  const absl::Status prepared = kernel->Prepare(library);
  if (absl::IsUnimplemented(prepared)) {
    LogOtherWay(context, prepared.message());
    return nullptr;
  }
  WEFT_RETURN_IF_ERROR(prepared);
  return kernel;
}

std::string BeyondDnnTypes(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kFloat16:
    case DType::kBfloat16:
      return "";
    default:
      return absl::StrCat("operands of ", std::string(DTypeName(dtype)));
  }
}

}  // namespace weft::cuda
