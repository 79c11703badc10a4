// adapter_config.json: what PEFT writes beside a file of adapters, as far as LoRA needs it.
#ifndef WEFT_TRAINING_ADAPTERS_PEFT_CONFIG_H_
#define WEFT_TRAINING_ADAPTERS_PEFT_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// The configuration of LoRA. A value.
struct PeftConfig {
  int64_t rank = 0;  // "r"; 0 = there is no module yet
  double alpha = 0;  // "lora_alpha"
  // Of modules that differ; a name is that of a module, or an end of it after a dot.
  std::map<std::string, int64_t> rank_pattern = {};
  std::map<std::string, double> alpha_pattern = {};
  bool root_of_rank = false;  // "use_rslora": the product counts alpha / sqrt(r) times
  bool fan_in_fan_out = false;
  std::vector<std::string> target_modules = {};

  // How often the product of a module counts whose tensors have this rank. InvalidArgument where
  // the configuration says another rank.
  absl::StatusOr<double> ScaleOf(const std::string& module, int64_t module_rank) const;

  // Adds a module. The first one sets rank and alpha, others are patterns where they differ.
  void Add(const std::string& module, int64_t module_rank, double scale);

  // With all keys that PEFT wants.
  std::string ToJson() const;

  // `path` is for messages.
  std::string path = "";
};

// Reads a configuration that nobody needs to trust. InvalidArgument naming the path, the key and
// what is wrong; Unimplemented for a method other than LoRA, for DoRA and for patterns that are
// regular expressions.
absl::StatusOr<PeftConfig> ParsePeftConfig(const std::string& text, const std::string& path);

}  // namespace weft

#endif  // WEFT_TRAINING_ADAPTERS_PEFT_CONFIG_H_
