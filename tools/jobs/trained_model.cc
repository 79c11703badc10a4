#include "tools/jobs/trained_model.h"

#include <utility>

#include "onnx_import/edit/inference_form.h"
#include "onnx_import/edit/quantized_form.h"
#include "onnx_import/exporter.h"
#include "platform/status_macros.h"
#include "training/adapters/peft_file.h"

namespace weft {

absl::StatusOr<std::string> TrainedModel::Save(FileSystem& files, const std::string& path,
                                               std::map<std::string, Tensor> values) const {
  WEFT_ASSIGN_OR_RETURN(auto merged, MergeAdapters(imported.graph, adapters, std::move(values)));
  const bool for_inference = mode == ExportMode::kInference;
  if (quantization == nullptr || quantization->empty()) {
    return SaveTrained(files, path, imported, merged,
                       for_inference ? ExportEdit(WriteForInference) : ExportEdit());
  }
  WEFT_ASSIGN_OR_RETURN(const QuantizedForm form,
                        FreezeQuantization(imported.graph, *quantization, merged));
  const auto edit = [&form, for_inference](std::string_view bytes) -> absl::StatusOr<std::string> {
    if (!for_inference) return WriteQuantized(bytes, form);
    WEFT_ASSIGN_OR_RETURN(const std::string inference, WriteForInference(bytes));
    return WriteQuantized(inference, form);
  };
  return SaveTrained(files, path, imported, merged, edit);
}

absl::Status TrainedModel::SaveAdapters(FileSystem& files, const std::string& path,
                                        const std::map<std::string, Tensor>& values) const {
  WEFT_ASSIGN_OR_RETURN(const PeftFiles peft, WritePeft(imported.graph, adapters, values));
  WEFT_RETURN_IF_ERROR(files.WriteFileAtomically(path, peft.tensors));
  return files.WriteFileAtomically(PeftConfigPath(path), peft.config);
}

}  // namespace weft
