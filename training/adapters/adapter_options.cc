#include "training/adapters/adapter_options.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "training/adapters/quantized_bases.h"

namespace weft {

absl::StatusOr<AdapterOptions> ReadAdapterOptions(FileSystem& files, const AdapterTexts& texts) {
  AdapterOptions options;
  WEFT_ASSIGN_OR_RETURN(options.lora, ParseLora(texts.lora));
  if (!texts.quantized.empty()) {
    WEFT_ASSIGN_OR_RETURN(options.quantized, ParseBaseQuantization(texts.quantized));
  }
  if (texts.file.empty()) return options;
  WEFT_ASSIGN_OR_RETURN(options.start, ReadPeft(files, texts.file));
  const bool has_config = options.start->adapters.front().scale.has_value();
  for (const std::string& item : texts.lora) {
    const bool is_alpha = absl::StartsWith(item, "alpha=");
    if (absl::StartsWith(item, "train=") || (is_alpha && !has_config)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--lora ", item,
                     ": the file of --adapters-in says which weights have "
                     "adapters, of which rank",
                     has_config ? " and alpha" : "", "; leave it out"));
  }
  return options;
}

absl::StatusOr<std::vector<LoraAdapter>> AdaptModel(Graph& graph, const AdapterOptions& options,
                                                    uint64_t seed) {
  LoraSpec spec = options.lora;
  if (options.start.has_value()) {
    WEFT_ASSIGN_OR_RETURN(spec.given, WeightsOfPeft(*options.start, graph, spec.alpha));
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<LoraAdapter> adapters, AddAdapters(graph, spec, seed));
  if (options.start.has_value()) {
    WEFT_RETURN_IF_ERROR(StartFromPeft(*options.start, graph, adapters));
  }
  if (options.quantized.has_value()) {
    WEFT_RETURN_IF_ERROR(QuantizeBases(graph, *options.quantized, adapters));
  }
  return adapters;
}

}  // namespace weft
