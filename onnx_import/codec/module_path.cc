#include "onnx_import/codec/module_path.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/ascii.h"

namespace weft {
namespace {

// Longer texts are not looked at.
constexpr size_t kMaxScopes = 16384;
constexpr size_t kMaxModulePath = 1024;

// In the place of a module where PyTorch knows none.
constexpr std::string_view kNoModule = "_empty_nn_module_stack";

// "norm@1", of the second call, as "norm".
std::string_view WithoutCallNumber(std::string_view module) {
  const size_t at = module.rfind('@');
  if (at == std::string_view::npos || at + 1 == module.size()) return module;
  const std::string_view number = module.substr(at + 1);
  const bool is_number = std::all_of(number.begin(), number.end(),
                                     [](unsigned char c) { return absl::ascii_isdigit(c); });
  return is_number ? module.substr(0, at) : module;
}

// Keys of a ModuleDict are part of a path, and may have blanks and signs. Signs that mean something
// in calls, patterns and names of nodes are no part: what has them is no path.
bool IsModulePath(std::string_view text) {
  return !text.empty() && text.size() <= kMaxModulePath &&
         text.find_first_of("@*?/") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return absl::ascii_isprint(c); });
}

// Whether `child` is an entry of the list `part`, as "features.0" is of "features".
bool NamesAgain(std::string_view child, std::string_view part) {
  return child.size() > part.size() && child.substr(0, part.size()) == part &&
         child[part.size()] == '.';
}

}  // namespace

std::string ModuleInScopes(std::string_view text) {
  if (text.size() > kMaxScopes) return "";
  std::vector<std::string_view> scopes;
  while (true) {
    const size_t begin = text.find_first_of("'\"");
    if (begin == std::string_view::npos) break;
    const size_t end = text.find(text[begin], begin + 1);
    if (end == std::string_view::npos) break;
    scopes.push_back(text.substr(begin + 1, end - begin - 1));
    text.remove_prefix(end + 1);
  }
  if (scopes.size() < 2) return "";
  const std::string_view module = WithoutCallNumber(scopes[scopes.size() - 2]);
  const bool is_none = module.substr(0, kNoModule.size()) == kNoModule;
  return IsModulePath(module) && !is_none ? std::string(module) : "";
}

std::string ModuleInNodeName(std::string_view node) {
  if (node.empty() || node.front() != '/') return "";
  node.remove_prefix(1);
  std::string path;
  // All parts but the last, which is the operator.
  for (size_t slash = node.find('/'); slash != std::string_view::npos; slash = node.find('/')) {
    const std::string_view part = node.substr(0, slash);
    node.remove_prefix(slash + 1);
    const size_t next_slash = node.find('/');
    const bool is_last = next_slash == std::string_view::npos;
    if (part.empty() || (!is_last && NamesAgain(node.substr(0, next_slash), part))) continue;
    if (!path.empty()) path += '.';
    path += part;
  }
  return path;
}

}  // namespace weft
