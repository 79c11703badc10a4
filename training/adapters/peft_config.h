// adapter_config.json: what PEFT writes beside a file of adapters, as far as LoRA needs it.
#ifndef WEFT_TRAINING_ADAPTERS_PEFT_CONFIG_H_
#define WEFT_TRAINING_ADAPTERS_PEFT_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// What names of modules say, in the file's order. A name is that of a module, or an end of it after
// a dot. Where several fit, the first counts, as in PEFT.
template <typename T>
class ModulePatterns {
 public:
  // A name that is there already stays as it is.
  void Add(const std::string& name, T value) {
    by_name_.emplace(name, PlacedValue{by_name_.size(), value});
  }
  // `usual` where no name fits. Costs as much as the module has dots.
  T ValueOf(std::string_view module, T usual) const {
    const PlacedValue* first = nullptr;
    while (true) {
      const auto found = by_name_.find(module);
      const bool fits = found != by_name_.end();
      if (fits && (first == nullptr || found->second.place < first->place)) first = &found->second;
      const size_t dot = module.find('.');
      if (dot == std::string_view::npos) break;
      module.remove_prefix(dot + 1);
    }
    return first == nullptr ? usual : first->value;
  }

 private:
  struct PlacedValue {
    size_t place = 0;
    T value = {};
  };
  std::map<std::string, PlacedValue, std::less<>> by_name_;
};

// The configuration of LoRA. A value.
struct PeftConfig {
  int64_t rank = 0;  // "r"; 0 = there is no module yet
  double alpha = 0;  // "lora_alpha"
  // Of modules that differ.
  ModulePatterns<int64_t> rank_pattern = {};
  ModulePatterns<double> alpha_pattern = {};
  bool root_of_rank = false;  // "use_rslora": the product counts alpha / sqrt(r) times
  bool fan_in_fan_out = false;
  // To be written: "target_modules", and what they have.
  struct Module {
    std::string name;
    int64_t rank = 0;
    double alpha = 0;
  };
  std::vector<Module> modules = {};

  // How often the product of a module counts whose tensors have this rank. InvalidArgument where
  // the configuration says another rank.
  absl::StatusOr<double> ScaleOf(const std::string& module, int64_t module_rank) const;

  // Adds a module to be written. The first one sets rank and alpha.
  void Add(const std::string& module, int64_t module_rank, double scale);

  // Of the modules added, with all keys that PEFT wants. Where modules differ from the first one,
  // patterns say so, longer names first: a name fits whatever ends in it.
  std::string ToJson() const;

  // `path` is for messages.
  std::string path = "";
};

// A longer configuration is refused.
inline constexpr int64_t kMaxPeftConfigBytes = int64_t{1} << 20;

// Reads a configuration that nobody needs to trust. InvalidArgument naming the path, the key and
// what is wrong; Unimplemented for a method other than LoRA, for DoRA and for patterns that are
// regular expressions.
absl::StatusOr<PeftConfig> ParsePeftConfig(const std::string& text, const std::string& path);

}  // namespace weft

#endif  // WEFT_TRAINING_ADAPTERS_PEFT_CONFIG_H_
