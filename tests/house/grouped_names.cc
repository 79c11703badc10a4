#include "tests/house/grouped_names.h"

#include <re2/re2.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/house/build_rules.h"

namespace weft::testing {
namespace {

// The name that a line at the left margin defines; empty where it defines none. Members of other
// scopes are indented, and what follows "A::" belongs to A.
std::string DefinedName(const std::string& line) {
  static const RE2 kNone("^(using namespace|using \\S+;|namespace|template|return|public|private)");
  static const RE2 kType(
      "^(?:struct|class|union|enum(?: class| struct)?) (?:\\[\\[.*?\\]\\] )?(\\w+)");
  static const RE2 kAlias("^using (\\w+) =");
  static const RE2 kFunctionOrValue("^[^({=;\\[]*[ *&>](\\w+)(?:\\(| =|\\{|;|\\[)");
  static const RE2 kBrokenFunction("^([A-Z]\\w*[a-z]\\w*)\\(");  // its type is on the line before
  std::string name;
  if (RE2::PartialMatch(line, kNone)) return name;
  if (RE2::PartialMatch(line, kType, &name) || RE2::PartialMatch(line, kAlias, &name) ||
      RE2::PartialMatch(line, kFunctionOrValue, &name)) {
    return absl::StrContains(line, absl::StrCat("::", name)) ? "" : name;
  }
  RE2::PartialMatch(line, kBrokenFunction, &name);
  return name;
}

// The names that a source defines for itself: in unnamed namespaces, static ones, and macros.
std::set<std::string> OwnNames(const std::string& text) {
  static const RE2 kMacro("^#(define|undef) (\\w+)");
  static const RE2 kEnumerator("\\b(k\\w+)\\s*(?:,|=|\\}|$)");
  std::set<std::string> names;
  bool is_unnamed = false;
  bool in_enum = false;
  for (const absl::string_view part : absl::StrSplit(text, '\n')) {
    const std::string line(part);
    std::string directive, macro;
    if (line == "namespace {") is_unnamed = true;
    if (line == "}  // namespace") is_unnamed = false;
    if (RE2::PartialMatch(line, kMacro, &directive, &macro)) {
      if (directive == "define") names.insert(macro);
      if (directive == "undef") names.erase(macro);
    }
    if (!is_unnamed && !absl::StartsWith(line, "static ")) continue;
    in_enum |= absl::StartsWith(line, "enum ") && !absl::StartsWith(line, "enum class ");
    if (in_enum) {
      re2::StringPiece rest(line);
      std::string enumerator;
      while (RE2::FindAndConsume(&rest, kEnumerator, &enumerator)) names.insert(enumerator);
      in_enum = !absl::StrContains(line, "}");
    }
    if (line.empty() || absl::StrContains(" #/}", line.substr(0, 1))) continue;
    const std::string name = DefinedName(line);
    if (!name.empty()) names.insert(name);
  }
  return names;
}

// Whether a name of a BUILD file, which may have one "*", is that of a file. "*" is within a
// folder.
bool Matches(const std::string& pattern, const std::string& file) {
  return RE2::FullMatch(file, absl::StrJoin(absl::StrSplit(pattern, '*'), "[^/]*"));
}

bool MatchesOneOf(const std::vector<std::string>& patterns, const std::string& file) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&file](const std::string& pattern) { return Matches(pattern, file); });
}

// As weft_library and weft_cuda_library of third_party/weft.bzl have it.
bool IsGrouped(const BuildRule& rule, const std::string& path) {
  const bool is_library = rule.kind == "weft_library" || rule.kind == "weft_cuda_library";
  return is_library && rule.grouped && !absl::StartsWith(path, "ops/kernels/cpu");
}

}  // namespace

std::vector<std::string> FindClashingNames(const std::string& path, std::string_view text,
                                           const std::map<std::string, std::string>& sources) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);  // npos + 1 is 0
  std::vector<std::string> violations;
  for (const BuildRule& rule : ReadBuildRules(text)) {
    if (!IsGrouped(rule, path)) continue;
    std::map<std::string, std::vector<std::string>> owners;  // files by name
    for (auto source = sources.lower_bound(folder);
         source != sources.end() && absl::StartsWith(source->first, folder); ++source) {
      const std::string file = source->first.substr(folder.size());
      const bool is_member = absl::EndsWith(file, ".cc") && MatchesOneOf(rule.sources, file) &&
                             !MatchesOneOf(rule.excluded, file);
      if (!is_member) continue;
      for (const std::string& name : OwnNames(source->second)) {
        owners[name].push_back(source->first);
      }
    }
    for (const auto& [name, files] : owners) {
      if (files.size() < 2) continue;
      violations.push_back(
          absl::StrCat(path, ": sources of ", rule.name, " are compiled as one file, and ",
                       absl::StrJoin(files, " and "), " each define ", name,
                       ": give one of them another name, or share it in a header"));
    }
  }
  return violations;
}

}  // namespace weft::testing
