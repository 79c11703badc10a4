#include "tests/house/build_rules.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace weft::testing {
namespace {

absl::string_view ViewOf(std::string_view text) { return {text.data(), text.size()}; }

std::string FirstFolder(const std::string& path) { return path.substr(0, path.find('/')); }

// Adds what a line of srcs or hdrs names. `excludes`: whether the line is in the list of a glob's
// exclude; kept from line to line.
void ReadFiles(absl::string_view line, std::vector<std::string>& files, BuildRule& rule,
               bool& excludes) {
  const std::vector<absl::string_view> parts = absl::StrSplit(line, '"');
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i % 2 == 1) {
      (excludes ? rule.excluded : files).emplace_back(parts[i]);
      continue;
    }
    const size_t begin = parts[i].rfind("exclude = "), end = parts[i].rfind(']');
    const bool begins = begin != absl::string_view::npos;
    const bool ends = end != absl::string_view::npos;
    if (begins || ends) excludes = begins && (!ends || begin > end);
  }
}

}  // namespace

std::vector<BuildRule> ReadBuildRules(std::string_view text) {
  std::vector<BuildRule> rules;
  std::string attribute;
  bool excludes = false;
  for (absl::string_view line : absl::StrSplit(ViewOf(text), '\n')) {
    line = absl::StripTrailingAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    if (line[0] != ' ') {
      attribute.clear();
      absl::ConsumePrefix(&line, "[");
      if (absl::ConsumeSuffix(&line, "(")) rules.emplace_back().kind = std::string(line);
      continue;
    }
    if (rules.empty()) continue;
    BuildRule& rule = rules.back();
    const bool begins = absl::StartsWith(line, "    ") && line.substr(4, 1) != " ";
    if (begins) {
      line = line.substr(4);
      attribute = std::string(line.substr(0, line.find(" = ")));
      excludes = false;
    }
    const std::vector<absl::string_view> parts = absl::StrSplit(line, '"');
    if (attribute == "name" && parts.size() == 3) rule.name = std::string(parts[1]);
    if (attribute == "srcs") ReadFiles(line, rule.sources, rule, excludes);
    if (attribute == "hdrs") ReadFiles(line, rule.headers, rule, excludes);
    if (attribute == "gpu_srcs") ReadFiles(line, rule.gpu_sources, rule, excludes);
    if (attribute == "deps") ReadFiles(line, rule.libraries, rule, excludes);
    if (attribute == "grouped") rule.grouped = !absl::StrContains(line, "False");
  }
  return rules;
}

std::vector<std::string> FindSharedHeaders(const std::string& path, std::string_view text) {
  std::map<std::string, std::set<std::string>> owners;  // rules by header or pattern
  for (const BuildRule& rule : ReadBuildRules(text)) {
    if (rule.kind == "filegroup" || rule.kind == "genrule") continue;  // these read them as text
    for (const std::vector<std::string>& files : {rule.sources, rule.headers}) {
      for (const std::string& file : files) {
        if (absl::EndsWith(file, ".h")) owners[file].insert(rule.name);
      }
    }
  }
  std::vector<std::string> violations;
  const auto pattern = owners.find("*.h");
  for (auto& [header, rules] : owners) {
    const bool is_local = header != "*.h" && !absl::StrContains(header, "/");
    if (pattern != owners.end() && is_local) {
      rules.insert(pattern->second.begin(), pattern->second.end());
    }
    if (rules.size() < 2) continue;
    violations.push_back(absl::StrCat(path, ": the header ", header, " belongs to ",
                                      absl::StrJoin(rules, " and "), "; give it to one of them"));
  }
  return violations;
}

std::vector<BuildLabel> ReadLabels(std::string_view text) {
  std::vector<BuildLabel> labels;
  size_t number = 0;
  bool is_visibility = false;
  for (absl::string_view line : absl::StrSplit(ViewOf(text), '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    if (absl::StartsWith(line, "load(")) continue;
    is_visibility |= absl::StrContains(line, "visibility = ");
    if (is_visibility) {
      is_visibility = !absl::StrContains(line, "]");
      continue;
    }
    const std::vector<absl::string_view> parts = absl::StrSplit(line, '"');
    for (size_t i = 1; i < parts.size(); i += 2) {
      if (absl::StartsWith(parts[i], "//")) labels.push_back({number, std::string(parts[i])});
    }
  }
  return labels;
}

std::vector<std::string> FindTooVisibleRooms(
    const std::map<std::string, std::string>& build_files) {
  std::map<std::string, std::set<std::string>> users;  // top folders by package
  for (const auto& [path, text] : build_files) {
    for (const BuildLabel& label : ReadLabels(text)) {
      const std::string target = label.name.substr(2);
      users[target.substr(0, target.find(':'))].insert(FirstFolder(path));
    }
  }
  std::vector<std::string> violations;
  for (const auto& [path, text] : build_files) {
    const std::string package = path.substr(0, path.rfind('/'));
    const std::string folder = FirstFolder(path);
    // All users of tools/ are tools/ and tests/.
    if (!absl::StrContains(package, "/") || folder == "tools") continue;
    if (!absl::StrContains(text, "default_visibility = [\"//:")) continue;
    const std::set<std::string>& tops = users[package];
    const bool is_wide = std::any_of(tops.begin(), tops.end(), [&folder](const std::string& top) {
      return top != folder && top != "tests";
    });
    if (is_wide) continue;
    violations.push_back(absl::StrCat(path, ": nobody outside ", folder, "/ and tests/ uses ",
                                      package, "/: give it the visibility \"//", folder,
                                      ":__subpackages__\""));
  }
  return violations;
}

std::vector<std::string> FindMissingTwins(const std::string& path, std::string_view text) {
  std::vector<std::string> violations;
  if (!absl::StartsWith(path, "ops/") || absl::StartsWith(path, "ops/kernels/cuda/")) {
    return violations;
  }
  const std::vector<std::string> lines = absl::StrSplit(ViewOf(text), '\n');
  bool is_explained = false;  // by the comment above
  for (size_t i = 0; i < lines.size(); ++i) {
    if (absl::StartsWith(lines[i], "#")) {
      is_explained |= absl::StrContains(lines[i], "also_avx2");
      continue;
    }
    if (lines[i] == "weft_tests(" && !is_explained) {
      bool has_twin = false;
      for (size_t k = i + 1; k < lines.size() && lines[k] != ")"; ++k) {
        has_twin |= absl::StrContains(lines[k], "also_avx2 = True");
      }
      if (!has_twin) {
        violations.push_back(absl::StrCat(path, ":", i + 1,
                                          ": tests of kernels run with AVX2 alone, too: say "
                                          "also_avx2 = True, or above it why not"));
      }
    }
    is_explained = false;
  }
  return violations;
}

}  // namespace weft::testing
