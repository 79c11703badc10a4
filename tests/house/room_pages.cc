#include "tests/house/room_pages.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace weft::testing {
namespace {

constexpr int kMaxRoomLines = 40;
constexpr int kMaxFolderLines = 100;
// Fewer words say no more than the folder's name.
constexpr size_t kMinPurposeWords = 6;
// With more of them, laws tell what holds between them.
constexpr int kTypesWithLaws = 5;

std::vector<absl::string_view> LinesOf(std::string_view text) {
  return absl::StrSplit(absl::string_view(text.data(), text.size()), '\n');
}

// Whether a line is part of a table or a list.
bool IsListed(absl::string_view line) {
  if (absl::StartsWith(line, "| ") || absl::StartsWith(line, "- ") ||
      absl::StartsWith(line, "* ")) {
    return true;
  }
  const size_t digits = line.find_first_not_of("0123456789");
  return digits != 0 && digits != absl::string_view::npos &&
         absl::StartsWith(line.substr(digits), ". ");
}

bool IsSentence(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  return words.size() >= kMinPurposeWords && (text.back() == '.' || text.back() == ':');
}

}  // namespace

int CountTypes(std::string_view header) {
  int types = 0;
  for (const absl::string_view line : LinesOf(header)) {
    const bool begins = absl::StartsWith(line, "class ") || absl::StartsWith(line, "struct ");
    types += begins && !absl::EndsWith(line, ";");
  }
  return types;
}

std::string PurposeOf(std::string_view text) {
  std::vector<absl::string_view> purpose;
  for (const absl::string_view line : LinesOf(text)) {
    if (absl::StartsWith(line, "#") && purpose.empty()) continue;
    if (line.empty() && purpose.empty()) continue;
    if (line.empty() || absl::StartsWith(line, "#") || IsListed(line)) break;
    purpose.push_back(line);
  }
  return absl::StrJoin(purpose, " ");
}

std::vector<std::string> CheckPage(const std::string& path, std::string_view text,
                                   const RoomFacts& facts) {
  std::vector<std::string> lacks;
  const auto lack = [&](absl::string_view what) {
    lacks.push_back(absl::StrCat(path, ": ", what));
  };
  const std::vector<absl::string_view> lines = LinesOf(text);
  const std::string lower = absl::AsciiStrToLower(absl::string_view(text.data(), text.size()));
  const int max_lines = facts.is_room ? kMaxRoomLines : kMaxFolderLines;
  if (static_cast<int>(lines.size()) - 1 > max_lines) {
    lack(absl::StrCat("has more than ", max_lines, " lines"));
  }
  if (!absl::StartsWith(lines.front(), "# ")) lack("begins without a title");
  if (!IsSentence(PurposeOf(text))) {
    lack("says no purpose: a sentence after the title, and not only the folder's name");
  }
  if (!facts.has_build_file && !absl::StrContains(lower, "build file")) {
    lack("does not say why the folder has no BUILD file");
  }
  if (facts.is_testing) return lacks;
  if (facts.types > 0 && std::none_of(lines.begin(), lines.end(), IsListed)) {
    lack(absl::StrCat("has no table and no list, and the folder has ", facts.types, " types"));
  }
  const bool has_laws = absl::StrContains(lower, "laws") || absl::StrContains(lower, "does not") ||
                        absl::StrContains(lower, "do not");
  if (facts.types >= kTypesWithLaws && !has_laws) {
    lack(absl::StrCat("has neither laws nor what the folder does not do, and it has ", facts.types,
                      " types"));
  }
  return lacks;
}

}  // namespace weft::testing
