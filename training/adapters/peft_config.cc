#include "training/adapters/peft_config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "platform/status_macros.h"
#include "platform/text/json_limits.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxConfigDepth = 16;
constexpr int64_t kMaxConfigValues = int64_t{1} << 20;
// The first pattern that fits decides: so they stay in their order, in which a search is linear.
constexpr int64_t kMaxPatterns = 16384;
constexpr int64_t kMaxConfigRank = 65536;
constexpr double kMaxAlpha = 1e9;
constexpr char kRegexCharacters[] = "*+?[](){}|^$\\";

// Reads the keys of one file.
class ConfigReader {
 public:
  ConfigReader(const Json& json, const std::string& path) : json_(json), path_(path) {}

  absl::StatusOr<PeftConfig> Read() const;

 private:
  std::string At(const std::string& key) const {
    return absl::StrCat("\"", absl::Utf8SafeCEscape(path_), "\": ", absl::Utf8SafeCEscape(key));
  }
  absl::StatusOr<int64_t> Rank(const Json& value, const std::string& key) const {
    if (value.is_number_unsigned() && value.get<uint64_t>() > 0 &&
        value.get<uint64_t>() <= static_cast<uint64_t>(kMaxConfigRank)) {
      return value.get<int64_t>();
    }
    return absl::InvalidArgumentError(
        absl::StrCat(At(key), " is no whole number from 1 to ", kMaxConfigRank));
  }
  absl::StatusOr<double> Alpha(const Json& value, const std::string& key) const {
    if (value.is_number() && value.get<double>() > 0 && value.get<double>() <= kMaxAlpha) {
      return value.get<double>();
    }
    return absl::InvalidArgumentError(
        absl::StrCat(At(key), " is no number above 0 and up to ", kMaxAlpha));
  }
  // False for a key that is not there.
  absl::StatusOr<bool> Switch(const char* key) const {
    if (!json_.contains(key) || json_[key].is_null()) return false;
    if (json_[key].is_boolean()) return json_[key].get<bool>();
    return absl::InvalidArgumentError(absl::StrCat(At(key), " is neither true nor false"));
  }
  // Reads each entry by `read`.
  template <typename T, typename ReadFn>
  absl::Status Patterns(const char* key, ModulePatterns<T>& patterns, ReadFn read) const;

  const Json& json_;
  const std::string& path_;
};

template <typename T, typename ReadFn>
absl::Status ConfigReader::Patterns(const char* key, ModulePatterns<T>& patterns,
                                    ReadFn read) const {
  if (!json_.contains(key) || json_[key].is_null()) return absl::OkStatus();
  if (!json_[key].is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(At(key), " is no JSON object"));
  }
  for (const auto& [pattern, value] : json_[key].items()) {
    const std::string place = absl::StrCat(key, ".", pattern);
    if (pattern.find_first_of(kRegexCharacters) != std::string::npos) {
      return absl::UnimplementedError(
          absl::StrCat(At(place), " is a regular expression; names of modules are known alone"));
    }
    WEFT_ASSIGN_OR_RETURN(const T read_value, read(value, place));
    patterns.Add(pattern, read_value);
  }
  return absl::OkStatus();
}

absl::StatusOr<PeftConfig> ConfigReader::Read() const {
  PeftConfig config;
  config.path = path_;
  if (json_.contains("peft_type") && json_["peft_type"] != "LORA") {
    return absl::UnimplementedError(absl::StrCat(At("peft_type"), " is not LORA"));
  }
  WEFT_ASSIGN_OR_RETURN(const bool dora, Switch("use_dora"));
  if (dora) {
    return absl::UnimplementedError(
        absl::StrCat(At("use_dora"), " is true; only adapters without magnitudes are known"));
  }
  if (!json_.contains("r")) return absl::InvalidArgumentError(absl::StrCat(At("r"), " is missing"));
  if (!json_.contains("lora_alpha")) {
    return absl::InvalidArgumentError(absl::StrCat(At("lora_alpha"), " is missing"));
  }
  WEFT_ASSIGN_OR_RETURN(config.rank, Rank(json_["r"], "r"));
  WEFT_ASSIGN_OR_RETURN(config.alpha, Alpha(json_["lora_alpha"], "lora_alpha"));
  WEFT_ASSIGN_OR_RETURN(config.root_of_rank, Switch("use_rslora"));
  WEFT_ASSIGN_OR_RETURN(config.fan_in_fan_out, Switch("fan_in_fan_out"));
  WEFT_RETURN_IF_ERROR(
      Patterns("rank_pattern", config.rank_pattern,
               [this](const Json& value, const std::string& key) { return Rank(value, key); }));
  WEFT_RETURN_IF_ERROR(
      Patterns("alpha_pattern", config.alpha_pattern,
               [this](const Json& value, const std::string& key) { return Alpha(value, key); }));
  return config;
}

// Whether PEFT takes what it knows by the name `pattern` for the module.
bool FitsModule(const std::string& pattern, const std::string& module) {
  return module == pattern || absl::EndsWith(module, absl::StrCat(".", pattern));
}

}  // namespace

absl::StatusOr<double> PeftConfig::ScaleOf(const std::string& module, int64_t module_rank) const {
  const int64_t said = rank_pattern.ValueOf(module, rank);
  if (said != module_rank) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", absl::Utf8SafeCEscape(path), "\": r is ", said, " for module '",
        absl::Utf8SafeCEscape(module), "', whose tensors have the rank ", module_rank));
  }
  const auto divisor = static_cast<double>(module_rank);
  return alpha_pattern.ValueOf(module, alpha) / (root_of_rank ? std::sqrt(divisor) : divisor);
}

void PeftConfig::Add(const std::string& module, int64_t module_rank, double scale) {
  double module_alpha = scale * static_cast<double>(module_rank);
  // alpha / rank * rank is alpha but for the last bit.
  const double whole = std::round(module_alpha);
  if (std::abs(module_alpha - whole) < 1e-9 * whole) module_alpha = whole;
  if (modules.empty()) {
    rank = module_rank;
    alpha = module_alpha;
  }
  modules.push_back({module, module_rank, module_alpha});
}

std::string PeftConfig::ToJson() const {
  const auto number = [](double value) {
    const auto whole = static_cast<int64_t>(value);
    return static_cast<double>(whole) == value ? Json(whole) : Json(value);
  };
  const auto differs = [this](const Module& module) {
    return module.rank != rank || module.alpha != alpha;
  };
  Json names = Json::array();
  std::vector<const Module*> told;
  for (const Module& module : modules) {
    names.push_back(module.name);
    const bool is_told = std::any_of(modules.begin(), modules.end(), [&](const Module& other) {
      return differs(other) && FitsModule(other.name, module.name);
    });
    if (is_told) told.push_back(&module);
  }
  std::stable_sort(told.begin(), told.end(), [](const Module* a, const Module* b) {
    return a->name.size() > b->name.size();
  });
  Json ranks = Json::object(), alphas = Json::object();
  for (const Module* const module : told) {
    ranks[module->name] = module->rank;
    alphas[module->name] = number(module->alpha);
  }
  const Json json = {{"peft_type", "LORA"},
                     {"task_type", nullptr},
                     {"base_model_name_or_path", nullptr},
                     {"r", rank},
                     {"lora_alpha", number(alpha)},
                     {"lora_dropout", 0.0},
                     {"bias", "none"},
                     {"target_modules", names},
                     {"fan_in_fan_out", fan_in_fan_out},
                     {"rank_pattern", ranks},
                     {"alpha_pattern", alphas},
                     {"use_rslora", root_of_rank},
                     {"use_dora", false},
                     {"modules_to_save", nullptr},
                     {"init_lora_weights", true},
                     {"inference_mode", true}};
  return absl::StrCat(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

absl::StatusOr<PeftConfig> ParsePeftConfig(const std::string& text, const std::string& path) {
  const auto bad = [&path](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("\"", absl::Utf8SafeCEscape(path), "\" ", what));
  };
  const absl::Status within =
      CheckJsonLimits(text, {kMaxPeftConfigBytes, kMaxConfigDepth, kMaxConfigValues, kMaxPatterns});
  if (!within.ok()) return bad(absl::StrCat("is ", within.message()));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return bad("is no JSON object");
  return ConfigReader(json, path).Read();
}

}  // namespace weft
