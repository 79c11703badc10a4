#include "onnx_import/edit/ties.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/edit/copied_tensors.h"
#include "onnx_import/edit/file_edit.h"
#include "onnx_import/edit/lost_biases.h"
#include "onnx_import/edit/merged_norms.h"
#include "onnx_import/edit/tensor_uses.h"
#include "onnx_import/edit/tensor_values.h"
#include "onnx_import/edit/tie_evidence.h"
#include "onnx_import/edit/untie.h"
#include "onnx_import/edit/use_groups.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"

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

bool MatchesAny(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&name](const std::string& pattern) { return MatchesPattern(pattern, name); });
}

// Copies of one parameter, unless the user says something of them. `all` and `none` of --untie
// leave them as they are.
void TieByDefault(const TensorUses& uses, const std::vector<CopiedTensor>& copies,
                  const TieOptions& options, TieEvidence& evidence, TieReport& report) {
  if (options.untie == std::vector<std::string>{"all"}) return;
  if (options.untie == std::vector<std::string>{"none"}) return;
  std::set<std::string> taken;  // in no further tie
  for (const CopiedTensor& tie : report.tied) taken.insert({tie.tensor, tie.copy});
  for (const UntiedTensor& untied : report.untied) taken.insert(untied.from);
  for (const CopiedTensor& copy : copies) {
    const bool is_taken = taken.contains(copy.tensor) || taken.contains(copy.copy) ||
                          MatchesAny(options.untie, copy.tensor) ||
                          MatchesAny(options.untie, copy.copy);
    if (!is_taken && IsOneParameter(uses, copy, evidence)) report.tied.push_back(copy);
  }
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
    std::vector<CopiedTensor> copies;
    if (HasStandardOperators(file)) {
      copies = FindCopies(uses, values);
    } else if (!options.tie.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--tie: ", file.Label(),
                       " imports no operator set ai.onnx, of which a tie "
                       "needs Transpose or Identity"));
    }
    UseGroups groups(uses, values, CopiesInOneModule(uses, copies));
    TieEvidence evidence(uses, values, groups);
    WEFT_RETURN_IF_ERROR(PlanUntying(uses, values, groups, evidence, options.untie, copies, budget,
                                     edit, model.report));
    const bool none = options.untie == std::vector<std::string>{"none"};
    if (!none) WEFT_RETURN_IF_ERROR(SplitNorms(uses, values, budget, edit, model.report));
    WEFT_ASSIGN_OR_RETURN(model.report.tied, ParseTies(uses, values, options.tie, copies));
    TieByDefault(uses, copies, options, evidence, model.report);
    for (const CopiedTensor& tie : model.report.tied) TieCopy(uses, tie, edit);
    WEFT_RETURN_IF_ERROR(CheckTied(uses, model.report, edit));
    if (!none) WEFT_RETURN_IF_ERROR(RestoreBiases(uses, budget, edit, model.report));
    std::set<std::string> tied;
    for (const CopiedTensor& tie : model.report.tied) tied.insert(tie.copy);
    for (const CopiedTensor& copy : copies) {
      if (!tied.contains(copy.copy)) model.report.copies.push_back(copy);
    }
  }
  WEFT_ASSIGN_OR_RETURN(model.file, ApplyEdit(std::move(file), edit, options.keep_payloads));
  return model;
}

}  // namespace weft
