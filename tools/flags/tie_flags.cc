#include "tools/flags/tie_flags.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/console/exit_code.h"

namespace weft {
namespace {

constexpr char kUntie[] = "--untie";
constexpr char kTie[] = "--tie";
constexpr char kInferenceMode[] = "inference";
constexpr char kAsImported[] = "as-imported";

}  // namespace

void TieFlags::Add(CLI::App& app, const std::string& group) {
  app.add_option(kUntie, options_.untie,
                 "give each module that shares these tensors ('*', '?') one of its own; none keeps "
                 "what exporters have merged (default: merged scales and biases)")
      ->type_name("PATTERN|all|none")
      ->group(group);
  app.add_option(kTie, options_.tie,
                 "train two tensors that hold the same numbers, perhaps transposed, as one; auto: "
                 "all of them")
      ->type_name("TENSOR=COPY|auto")
      ->group(group);
}

TieFlags TieFlags::BesideAdapters(const AdapterTexts& adapters) const {
  const std::vector<std::string>& lora = adapters.lora;
  const bool only_adapters =
      adapters.any() && std::none_of(lora.begin(), lora.end(), [](const std::string& part) {
        return absl::StartsWith(part, "train=");
      });
  TieFlags flags = *this;
  if (only_adapters && flags.options_.untie.empty()) flags.options_.untie = {"none"};
  return flags;
}

TieFlags TieFlags::FromGiven(const FlagRecord& given) {
  TieFlags flags;
  flags.options_.untie = ValuesOfFlag(given, kUntie);
  flags.options_.tie = ValuesOfFlag(given, kTie);
  return flags.BesideAdapters(AdapterTextsOfGiven(given));
}

AdapterTexts AdapterTextsOfGiven(const FlagRecord& given) {
  AdapterTexts texts;
  texts.lora = ValuesOfFlag(given, "--lora");
  texts.quantized = ValuesOfFlag(given, "--qlora");
  texts.file = TextOfFlag(given, "--adapters-in");
  return texts;
}

absl::StatusOr<ImportedModel> TieFlags::Import(const std::string& path, TieReport* report,
                                               bool keep_payloads, const FileRepair& repair) const {
  auto file = ModelFile::Load(RealFileSystem(), path);
  if (!file.ok()) return WithExitCode(file.status(), ExitCode::kModel);
  if (repair != nullptr) {
    WEFT_ASSIGN_OR_RETURN(file, repair(*std::move(file)));
  }
  TieOptions options = options_;
  options.keep_payloads = keep_payloads;
  auto settled = SettleTies(*std::move(file), options);
  if (absl::IsResourceExhausted(settled.status())) {
    return WithExitCode(settled.status(), ExitCode::kModel);
  }
  if (!settled.ok()) return WithExitCode(settled.status(), ExitCode::kUsage);
  if (report != nullptr) *report = std::move(settled->report);
  auto model = ImportModel(settled->file);
  if (!model.ok()) return WithExitCode(model.status(), ExitCode::kModel);
  return model;
}

void AddExportMode(CLI::App& app, std::string& mode, const std::string& group) {
  app.add_option("--export-mode", mode,
                 "write a model that is in training mode as it was, or for inference: "
                 "BatchNormalization with its running statistics, Dropout that drops nothing "
                 "(default as-imported)")
      ->type_name("inference|as-imported")
      ->group(group)
      ->check([](const std::string& value) {
        return value == kInferenceMode || value == kAsImported
                   ? std::string()
                   : absl::StrCat("'", value, "' is no mode; expected inference or as-imported");
      });
}

ExportMode ExportModeOf(const std::string& mode) {
  return mode == kInferenceMode ? ExportMode::kInference : ExportMode::kAsImported;
}

}  // namespace weft
