#include "onnx_import/edit/ties.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/edit/copied_tensors.h"
#include "onnx_import/edit/file_edit.h"
#include "onnx_import/edit/tensor_uses.h"
#include "onnx_import/edit/tensor_values.h"
#include "onnx_import/edit/untie.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Whether nodes of ONNX's own operators can be added.
bool HasStandardOperators(const ModelFile& file) {
  const auto& opsets = file.proto()->opset_import();
  return std::any_of(opsets.begin(), opsets.end(), [](const onnx::OperatorSetIdProto& opset) {
    return NormalizedDomain(opset.domain()).empty();
  });
}

// After TieCopy, each tensor that is read must be there still.
absl::Status CheckTied(const TensorUses& uses, const TieReport& report, const FileEdit& edit) {
  for (const CopiedTensor& tie : report.tied) {
    const FileTensor& tensor = uses.tensors()[static_cast<size_t>(uses.TensorOf(tie.tensor))];
    if (edit.removed_initializers.count(tensor.initializer) == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--tie ", tie.tensor, "=", tie.copy, ": ", Quoted(tie.tensor),
                     " is untied, and nothing reads it by that name any more; tie another one"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TiedModel> SettleTies(ModelFile file, const TieOptions& options) {
  TiedModel model;
  if (file.proto()->training_info_size() > 0) {
    if (!options.untie.empty() || !options.tie.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--untie and --tie are not for ", file.Label(),
                       ", which brings its own training (training_info) and names its tensors in "
                       "it; leave them out"));
    }
    model.file = std::move(file);
    return model;
  }
  FileEdit edit;
  {
    const TensorUses uses(file);
    TensorValues values(file);
    CopyBudget budget(file, options.keep_payloads);
    WEFT_RETURN_IF_ERROR(PlanUntying(uses, values, options.untie, budget, edit, model.report));
    std::vector<CopiedTensor> copies;
    if (HasStandardOperators(file)) {
      copies = FindCopies(uses, values);
    } else if (!options.tie.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--tie: ", file.Label(),
                       " imports no operator set ai.onnx, of which a tie "
                       "needs Transpose or Identity"));
    }
    WEFT_ASSIGN_OR_RETURN(model.report.tied, ParseTies(uses, values, options.tie, copies));
    for (const CopiedTensor& tie : model.report.tied) TieCopy(uses, tie, edit);
    WEFT_RETURN_IF_ERROR(CheckTied(uses, model.report, edit));
    for (const CopiedTensor& copy : copies) {
      const auto same = [&](const CopiedTensor& tie) { return tie.copy == copy.copy; };
      const std::vector<CopiedTensor>& tied = model.report.tied;
      if (std::none_of(tied.begin(), tied.end(), same)) model.report.copies.push_back(copy);
    }
  }
  WEFT_ASSIGN_OR_RETURN(model.file, ApplyEdit(std::move(file), edit, options.keep_payloads));
  return model;
}

}  // namespace weft
