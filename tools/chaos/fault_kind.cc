#include "tools/chaos/fault_kind.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "platform/text/nearest_name.h"

namespace weft {

const std::vector<FaultKindRow>& FaultKindRows() {
  static const auto* const rows = new std::vector<FaultKindRow>{
      {FaultKind::kKill, "kill", "kill -9 of a worker", true, false, true},
      {FaultKind::kStop, "stop", "SIGSTOP to a worker, SIGCONT later", true, false, true},
      {FaultKind::kLeave, "leave", "SIGTERM to a worker", true, false, false},
      {FaultKind::kQuota, "quota", "a fifth of a processor for a worker", true, false, false},
      {FaultKind::kDisk, "disk", "no checkpoint can be written", false, false, false},
      {FaultKind::kCut, "cut", "connections to a worker carry nothing", true, true, true},
      {FaultKind::kReset, "reset", "connections to a worker are closed", true, true, true},
      {FaultKind::kFlip, "flip", "a bit flips on connections to a worker", true, true, true},
      {FaultKind::kCoordinator, "coordinator", "kill -9 of the coordinator, --resume", false, false,
       false},
      {FaultKind::kInterrupt, "interrupt", "SIGTERM to the coordinator, --resume", false, false,
       false},
  };
  return *rows;
}

const FaultKindRow& RowOf(FaultKind kind) { return FaultKindRows()[static_cast<size_t>(kind)]; }

absl::StatusOr<std::vector<FaultKind>> ParseFaultKinds(const std::string& text) {
  std::vector<std::string> known;
  for (const FaultKindRow& row : FaultKindRows()) known.emplace_back(row.name);
  std::vector<FaultKind> kinds;
  for (const auto part : absl::StrSplit(text, ',')) {
    const std::string word(absl::StripAsciiWhitespace(part));
    const auto found = std::find(known.begin(), known.end(), word);
    if (found == known.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", word, "' is no fault", DidYouMean(word, known)));
    }
    kinds.push_back(static_cast<FaultKind>(found - known.begin()));
  }
  std::sort(kinds.begin(), kinds.end());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  return kinds;
}

std::string FaultKindNames(const std::vector<FaultKind>& kinds) {
  std::string text;
  for (const FaultKind kind : kinds)
    absl::StrAppend(&text, text.empty() ? "" : ",", RowOf(kind).name);
  return text;
}

}  // namespace weft
