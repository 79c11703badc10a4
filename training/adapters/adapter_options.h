// What --lora, --qlora and --adapters-in ask for together.
#ifndef WEFT_TRAINING_ADAPTERS_ADAPTER_OPTIONS_H_
#define WEFT_TRAINING_ADAPTERS_ADAPTER_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "platform/file_system.h"
#include "training/adapters/lora.h"
#include "training/adapters/peft_file.h"
#include "training/adapters/weight_quantization.h"

namespace weft {

// The texts of the flags. A value.
struct AdapterTexts {
  std::vector<std::string> lora;       // items of --lora
  std::vector<std::string> quantized;  // items of --qlora
  std::string file;                    // of --adapters-in

  bool any() const { return !lora.empty() || !quantized.empty() || !file.empty(); }
};

struct AdapterOptions {
  LoraSpec lora;
  std::optional<BaseQuantization> quantized;
  std::optional<PeftAdapters> start;
};

// Parses the texts and reads the file. InvalidArgument where a flag says nothing good, or --lora
// says what the file says. Errors of the file as ReadPeft's.
absl::StatusOr<AdapterOptions> ReadAdapterOptions(FileSystem& files, const AdapterTexts& texts);

// Adds adapters to the graph (AddAdapters), gives them the values of the file, and quantizes their
// weights. Errors as of these three.
absl::StatusOr<std::vector<LoraAdapter>> AdaptModel(Graph& graph, const AdapterOptions& options,
                                                    uint64_t seed);

}  // namespace weft

#endif  // WEFT_TRAINING_ADAPTERS_ADAPTER_OPTIONS_H_
