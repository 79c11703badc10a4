#include "platform/text/json_limits.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

absl::Status TooMuch(const char* what, int64_t seen, int64_t limit, size_t byte) {
  return absl::InvalidArgumentError(absl::StrCat("JSON with ", seen, " ", what, " (at byte ", byte,
                                                 "); at most ", limit, " are read"));
}

// The first byte behind the text that begins at `begin`, which is a quotation mark.
size_t EndOfText(std::string_view json, size_t begin) {
  size_t i = begin + 1;
  while (i < json.size() && json[i] != '"') i += json[i] == '\\' ? 2 : 1;
  return i + 1;
}

}  // namespace

absl::Status CheckJsonLimits(std::string_view text, const JsonLimits& limits) {
  const auto size = static_cast<int64_t>(text.size());
  if (size > limits.bytes) return TooMuch("bytes", size, limits.bytes, text.size());
  std::vector<int64_t> keys;  // of the lists and objects around
  int64_t values = 1;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"') {
      i = EndOfText(text, i);
      continue;
    }
    if (c == '[' || c == '{') {
      keys.push_back(0);
      const auto depth = static_cast<int64_t>(keys.size());
      if (depth > limits.depth) return TooMuch("lists in each other", depth, limits.depth, i);
    }
    if ((c == ']' || c == '}') && !keys.empty()) keys.pop_back();
    if (c == ':' && !keys.empty() && ++keys.back() > limits.keys) {
      return TooMuch("keys in one object", keys.back(), limits.keys, i);
    }
    // Each stands before a value.
    if ((c == '[' || c == '{' || c == ',') && ++values > limits.values) {
      return TooMuch("values", values, limits.values, i);
    }
    ++i;
  }
  return absl::OkStatus();
}

}  // namespace weft
