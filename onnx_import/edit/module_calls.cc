#include "onnx_import/edit/module_calls.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// "layers.0.norm" and 1 of "layers.0.norm_1"; nothing without such an end.
std::optional<std::pair<std::string, int>> SplitCallNumber(const std::string& path) {
  const size_t underscore = path.rfind('_');
  if (underscore == std::string::npos || underscore == 0) return std::nullopt;
  const std::string digits = path.substr(underscore + 1);
  int number = 0;
  const bool is_number = !digits.empty() && digits.front() >= '1' && digits.front() <= '9' &&
                         absl::SimpleAtoi(digits, &number);
  if (!is_number) return std::nullopt;
  return std::pair(path.substr(0, underscore), number);
}

bool HasNamesOfItsOwn(const std::string& path, const std::set<std::string>& names) {
  const std::string begin = absl::StrCat(path, ".");
  const auto first = names.lower_bound(begin);
  return first != names.end() && absl::StartsWith(*first, begin);
}

}  // namespace

std::map<std::string, std::string> FindModuleCalls(
    const std::map<std::string, std::set<int>>& tensors_of, const std::set<std::string>& names) {
  // By the module: the paths with a number behind it, by the number.
  std::map<std::string, std::map<int, std::string>> numbered;
  for (const auto& [path, tensors] : tensors_of) {
    const auto split = SplitCallNumber(path);
    if (split.has_value() && tensors_of.count(split->first) > 0) {
      numbered[split->first][split->second] = path;
    }
  }
  std::map<std::string, std::string> calls;
  for (const auto& [module, paths] : numbered) {
    const std::set<int>& known = tensors_of.at(module);
    int next = 1;
    for (const auto& [number, path] : paths) {
      if (number != next++) break;
      const std::set<int>& read = tensors_of.at(path);
      const bool reads_others = std::any_of(
          read.begin(), read.end(), [&known](int tensor) { return known.count(tensor) == 0; });
      if (!reads_others && !HasNamesOfItsOwn(path, names)) calls.emplace(path, module);
    }
  }
  return calls;
}

}  // namespace weft
