#include "tools/jobs/trained_model.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "executor/variables/safetensors.h"
#include "onnx_import/edit/inference_form.h"
#include "onnx_import/edit/quantized_form.h"
#include "onnx_import/exporter.h"
#include "platform/status_macros.h"

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
  std::vector<SafetensorsEntry> entries;
  for (const LoraAdapter& adapter : adapters) {
    for (const std::string& name : {adapter.a, adapter.b}) {
      const auto value = values.find(name);
      if (value == values.end()) continue;
      entries.push_back({name, value->second.dtype(), value->second.shape(), 0});
    }
  }
  const double scale = adapters.empty() ? 1 : adapters.front().scale;
  WEFT_ASSIGN_OR_RETURN(
      const SafetensorsLayout layout,
      LayOutSafetensors(std::move(entries), {{"scale", absl::StrFormat("%.17g", scale)}}));
  std::string bytes = layout.header;
  for (const SafetensorsEntry& entry : layout.tensors) {
    const Tensor& value = values.at(entry.name);
    bytes.append(static_cast<const char*>(value.raw_data()), value.bytes());
  }
  return files.WriteFileAtomically(path, bytes);
}

}  // namespace weft
