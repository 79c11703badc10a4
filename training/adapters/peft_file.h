// Adapters as Hugging Face's PEFT keeps them: a file of safetensors, with tensors
//
//   base_model.model.MODULE.lora_A.weight   [r, in], of a convolution [r, in, k...]
//   base_model.model.MODULE.lora_B.weight   [out, r], of a convolution [out, r, 1...]
//
// (".default" may stand before ".weight"), and beside it adapter_config.json: r, lora_alpha,
// target_modules. PEFT adds lora_alpha / r times B A. A MODULE is a path such as
// "h.0.attn.c_attn"; its weight is "h.0.attn.c_attn.weight".
#ifndef WEFT_TRAINING_ADAPTERS_PEFT_FILE_H_
#define WEFT_TRAINING_ADAPTERS_PEFT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "platform/file_system.h"
#include "tensor/tensor.h"
#include "training/adapters/lora.h"

namespace weft {

// The adapter of one module. All its numbers are finite.
struct PeftAdapter {
  std::string module;
  Tensor a;  // of a floating type, with the shapes above; a.dim(0) == b.dim(1) > 0
  Tensor b;
  // lora_alpha / r, with use_rslora lora_alpha / sqrt(r). Unset: there is no adapter_config.json.
  std::optional<double> scale;
};

struct PeftAdapters {
  std::string path;                   // of the safetensors, for messages
  std::vector<PeftAdapter> adapters;  // by module
  uint64_t checksum = 0;              // XXH3-64 of all that both files hold
};

// The file name that PEFT gives to the configuration.
inline constexpr char kPeftConfig[] = "adapter_config.json";

// Reads and checks both files; nobody needs to trust them. `config` is the text of
// adapter_config.json, if there is one. DataLoss for damaged safetensors, InvalidArgument for a
// tensor that is no half of an adapter, shapes that do not belong together, numbers that are not
// finite and a configuration that cannot be right, Unimplemented for kinds of adapters that are not
// LoRA; each with the path and what is wrong.
absl::StatusOr<PeftAdapters> ParsePeft(std::span<const std::byte> tensors,
                                       const std::optional<std::string>& config,
                                       const std::string& path);
// The same of `path` and the configuration in its folder. Errors of the file system too:
// ResourceExhausted for a configuration of more than kMaxPeftConfigBytes, which is not read.
absl::StatusOr<PeftAdapters> ReadPeft(FileSystem& files, const std::string& path);

// For AddAdapters: the weights that the modules name (LoraSpec::given). A module is found by any
// name of a weight. Without a configuration, `alpha` is lora_alpha; 0 = not known.
// InvalidArgument for a module that is no weight, with a near name, for two of one weight, for
// shapes that do not fit the weight, and for a scale that nobody says.
absl::StatusOr<std::map<std::string, LoraSpec::Given>> WeightsOfPeft(const PeftAdapters& peft,
                                                                     const Graph& graph,
                                                                     double alpha);

// Gives the adapters, which AddAdapters made for WeightsOfPeft, these initial values, rounded to
// the type of their weights. InvalidArgument for shapes that do not fit, and for numbers that are
// too large for the type.
absl::Status StartFromPeft(const PeftAdapters& peft, Graph& graph,
                           const std::vector<LoraAdapter>& adapters);

// What both files hold.
struct PeftFiles {
  std::string tensors;
  std::string config;
};
// Of adapters with these values; one without a value is left out. fan_in_fan_out is true where the
// model's file itself names a weight [in, out] that of a module (GPT-2's Conv1D).
absl::StatusOr<PeftFiles> WritePeft(const Graph& graph, const std::vector<LoraAdapter>& adapters,
                                    const std::map<std::string, Tensor>& values);

// Where the configuration lies that belongs to a file of adapters.
std::string PeftConfigPath(const std::string& path);

}  // namespace weft

#endif  // WEFT_TRAINING_ADAPTERS_PEFT_FILE_H_
