#include "onnx_import/parameters/variable_names.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "platform/text/name_pattern.h"

namespace weft {
namespace {

// So many candidates are told.
constexpr size_t kToldCandidates = 5;

std::string ToldNames(const std::vector<const Variable*>& variables) {
  std::string text;
  for (size_t i = 0; i < std::min(variables.size(), kToldCandidates); ++i) {
    absl::StrAppend(&text, i == 0 ? "'" : ", '", absl::Utf8SafeCEscape(variables[i]->name), "'");
  }
  if (variables.size() > kToldCandidates) absl::StrAppend(&text, ", ...");
  return text;
}

}  // namespace

std::vector<std::string> NamesOf(const Variable& variable) {
  std::vector<std::string> names = {variable.name};
  names.insert(names.end(), variable.other_names.begin(), variable.other_names.end());
  return names;
}

bool IsCalled(const Variable& variable, std::string_view pattern) {
  const auto fits = [pattern](const std::string& name) {
    return name == pattern || MatchesPattern(pattern, name);
  };
  return fits(variable.name) ||
         std::any_of(variable.other_names.begin(), variable.other_names.end(), fits);
}

std::string ShownName(const Variable& variable) {
  if (variable.shown_name.empty() || variable.shown_name == variable.name) return variable.name;
  return absl::StrCat(variable.shown_name, " (", variable.name, ")");
}

absl::StatusOr<std::vector<const Variable*>> VariablesCalled(
    std::string_view pattern, const std::vector<const Variable*>& variables) {
  std::vector<const Variable*> called;
  for (const Variable* const variable : variables) {
    if (variable->name == pattern) return std::vector<const Variable*>{variable};
    if (IsCalled(*variable, pattern)) called.push_back(variable);
  }
  const bool is_pattern = pattern.find_first_of("*?") != std::string_view::npos;
  if (is_pattern || called.size() < 2) return called;
  const std::string name = absl::Utf8SafeCEscape(std::string(pattern));
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is a name of ", called.size(), " tensors: ", ToldNames(called),
                   "; take their own names, or '", name, "*' for all of them"));
}

}  // namespace weft
