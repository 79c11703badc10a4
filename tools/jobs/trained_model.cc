#include "tools/jobs/trained_model.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "onnx_import/edit/inference_form.h"
#include "onnx_import/edit/quantized_form.h"
#include "onnx_import/exporter.h"
#include "platform/status_macros.h"
#include "training/adapters/peft_file.h"

namespace weft {
namespace {

absl::StatusOr<std::string> Quantized(std::string_view bytes, const QuantizedForm& form,
                                      bool for_inference) {
  if (!for_inference) return WriteQuantized(bytes, form);
  WEFT_ASSIGN_OR_RETURN(const std::string inference, WriteForInference(bytes));
  return WriteQuantized(inference, form);
}

}  // namespace

absl::StatusOr<std::string> TrainedModel::Save(FileSystem& files, const std::string& path,
                                               std::map<std::string, Tensor> values) const {
  WEFT_ASSIGN_OR_RETURN(auto merged, MergeAdapters(imported.graph, adapters, std::move(values)));
  const bool for_inference = mode == ExportMode::kInference;
  if (quantization == nullptr || quantization->empty()) {
    return SaveTrained(files, path, imported, merged,
                       for_inference ? ExportEdit(WriteForInference) : ExportEdit());
  }
  auto rest = merged;
  const absl::StatusOr<QuantizedForm> form =
      FreezeQuantization(imported.graph, *quantization, rest);
  absl::Status refused = form.status();
  const auto edit = [&](std::string_view bytes) -> absl::StatusOr<std::string> {
    auto written = Quantized(bytes, *form, for_inference);
    refused = written.status();
    return written;
  };
  if (form.ok()) {
    auto saved = SaveTrained(files, path, imported, rest, edit);
    if (refused.ok()) return saved;
  }
  // What was trained is kept all the same.
  for (const Quantization::Input& input : quantization->inputs) merged.erase(input.range);
  WEFT_RETURN_IF_ERROR(SaveTrained(files, path, imported, merged,
                                   for_inference ? ExportEdit(WriteForInference) : ExportEdit())
                           .status());
  return absl::Status(refused.code(),
                      absl::StrCat(path, " has the float model: ", refused.message()));
}

absl::Status TrainedModel::SaveAdapters(FileSystem& files, const std::string& path,
                                        const std::map<std::string, Tensor>& values) const {
  WEFT_ASSIGN_OR_RETURN(const PeftFiles peft, WritePeft(imported.graph, adapters, values));
  WEFT_RETURN_IF_ERROR(files.WriteFileAtomically(path, peft.tensors));
  return files.WriteFileAtomically(PeftConfigPath(path), peft.config);
}

}  // namespace weft
