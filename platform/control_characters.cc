#include "platform/control_characters.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_format.h"

namespace weft {
namespace {

// A character of UTF-8 (RFC 3629) at the beginning of a text: how many bytes it has, 0 for none,
// and its number.
struct Character {
  size_t size = 0;
  uint32_t number = 0;
};

Character FirstCharacter(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {1, first};
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return {};
  uint32_t number = first & (0x7fU >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    number = number << 6 | (byte(i) & 0x3fU);
  }
  constexpr uint32_t kMinimum[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = number >= 0xd800 && number <= 0xdfff;
  if (number < kMinimum[size] || number > 0x10ffff || is_surrogate) return {};
  return {size, number};
}

bool IsControl(uint32_t number) {
  return number < 0x20 || (number >= 0x7f && number < 0xa0) ||
         (number >= 0x202a && number <= 0x202e) || (number >= 0x2066 && number <= 0x2069);
}

}  // namespace

std::string EscapeControlCharacters(std::string_view text, std::string_view kept) {
  std::string escaped;
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    const size_t size = std::max<size_t>(character.size, 1);
    const bool is_kept = kept.find(text.front()) != std::string_view::npos;
    if (is_kept || (character.size > 0 && !IsControl(character.number))) {
      escaped.append(text.substr(0, size));
    } else {
      for (const char byte : text.substr(0, size)) {
        absl::StrAppendFormat(&escaped, "\\x%02x", static_cast<unsigned char>(byte));
      }
    }
    text.remove_prefix(size);
  }
  return escaped;
}

}  // namespace weft
