// Arbitrary bytes through all that `graph_runner check --trainable` does with a model: import,
// constant folding by the production kernels, inference, the diagnosis.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "onnx_import/importer.h"
#include "onnx_import/model_file.h"
#include "tools/reports/model_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const bool trainable : {false, true}) {
    const auto file = weft::ModelFile::Parse(bytes, "fuzzed.onnx");
    if (!file.ok()) return 0;
    auto model = weft::ImportModel(*file);
    if (!model.ok()) return 0;
    // Whether it finds anything is for the diagnosis's own tests; here it must come back.
    (void)weft::CheckModel(*model, trainable);
  }
  return 0;
}
