// TrainedModel: the files that a training job writes.
#ifndef WEFT_TOOLS_JOBS_TRAINED_MODEL_H_
#define WEFT_TOOLS_JOBS_TRAINED_MODEL_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx_import/importer.h"
#include "platform/file_system.h"
#include "tensor/tensor.h"
#include "tools/flags/tie_flags.h"
#include "training/adapters/lora.h"
#include "training/quantization/quantization.h"

namespace weft {

// A model file, what trains beside its weights, and how it is quantized. Borrows them.
struct TrainedModel {
  const ImportedModel& imported;
  const std::vector<LoraAdapter>& adapters;
  ExportMode mode = ExportMode::kAsImported;
  const Quantization* quantization = nullptr;  // null: it is not

  // Writes the file with these values of the job's variables: adapters are merged into their
  // weights, everything else stays as it was, but for what `mode` and `quantization` say. A note
  // for people, or "". After an error of FreezeQuantization or WriteQuantized, which is returned,
  // the file has the float model.
  absl::StatusOr<std::string> Save(FileSystem& files, const std::string& path,
                                   std::map<std::string, Tensor> values) const;
  // Writes the adapters alone as PEFT's safetensors, and their configuration beside them
  // (peft_file.h).
  absl::Status SaveAdapters(FileSystem& files, const std::string& path,
                            const std::map<std::string, Tensor>& values) const;
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOBS_TRAINED_MODEL_H_
