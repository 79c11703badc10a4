#include "tools/flags/pattern_list.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "platform/status.h"

namespace weft {
namespace {

std::string WithoutComment(std::string line) {
  for (size_t i = 0; i < line.size(); ++i) {
    const bool begins = line[i] == '#' && (i == 0 || absl::ascii_isspace(line[i - 1]));
    if (begins) line.resize(i);
  }
  absl::StripAsciiWhitespace(&line);
  return line;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadPatternList(FileSystem& files, const std::string& flag,
                                                         const std::vector<std::string>& texts) {
  std::vector<std::string> patterns;
  for (const std::string& text : texts) {
    if (!absl::StartsWith(text, "@")) {
      patterns.push_back(text);
      continue;
    }
    const auto content = files.ReadFile(text.substr(1));
    if (!content.ok()) return Annotate(content.status(), absl::StrCat(flag, " ", text));
    const size_t before = patterns.size();
    const std::vector<std::string> lines = absl::StrSplit(*content, '\n');
    for (const std::string& line : lines) {
      std::string pattern = WithoutComment(line);
      if (!pattern.empty()) patterns.push_back(std::move(pattern));
    }
    if (patterns.size() > before) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " ", text, ": the file has no pattern; expected one on each line"));
  }
  return patterns;
}

}  // namespace weft
