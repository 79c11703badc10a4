#include "tools/flags/repair_flags.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "onnx_import/unfolding/unfold_norms.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tools/console/exit_code.h"

namespace weft {
namespace {

constexpr char kUnfolding[] = "unfold-bn";

std::string CheckRepair(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  const bool has_pattern = text.size() > parts.first.size();
  const bool is_good = parts.first == kUnfolding && (!has_pattern || !parts.second.empty());
  return is_good ? ""
                 : absl::StrCat("'", text,
                                "' is no repair; expected unfold-bn or "
                                "unfold-bn=PATTERN");
}

}  // namespace

void RepairFlags::Add(CLI::App& app, const std::string& group) {
  app.add_option("--repair", repairs_,
                 "put BatchNormalization back behind convolutions that an exporter has folded it "
                 "into, or behind those of a pattern; with the statistics of the training data")
      ->type_name("unfold-bn[=PATTERN]")
      ->check(CLI::Validator(CheckRepair, ""))
      ->group(group);
}

std::vector<std::string> RepairFlags::patterns() const {
  std::vector<std::string> patterns;
  for (const std::string& repair : repairs_) {
    if (repair != kUnfolding) patterns.push_back(repair.substr(repair.find('=') + 1));
  }
  return patterns;
}

std::string RepairFlags::TrainModePattern() { return absl::StrCat("*/", kUnfoldedNorm); }

FileRepair RepairFlags::WithoutData() const {
  if (!unfolds()) return nullptr;
  return [wanted = patterns()](ModelFile file) -> absl::StatusOr<ModelFile> {
    auto norms = FindFoldedNorms(file, wanted);
    if (!norms.ok()) {
      return WithExitCode(Annotate(norms.status(), "--repair unfold-bn"), ExitCode::kModel);
    }
    auto repaired = UnfoldNorms(std::move(file), *norms, {});
    if (!repaired.ok()) return WithExitCode(repaired.status(), ExitCode::kModel);
    return repaired;
  };
}

}  // namespace weft
