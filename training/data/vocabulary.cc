#include "training/data/vocabulary.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "training/records/data_error.h"

namespace weft {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 24;
constexpr size_t kLongestToken = 256;
constexpr char kUnknown[] = "<unk>";

// Bytes of the UTF-8 character that `text` begins with; 0 when it begins with none (RFC 3629).
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&text](size_t i) { return uint32_t{static_cast<unsigned char>(text[i])}; };
  const uint32_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool surrogate = first == 0xed && byte(1) > 0x9f;
  const bool too_large = first == 0xf4 && byte(1) > 0x8f;
  return overlong || surrogate || too_large ? 0 : bytes;
}

// A line of a vocabulary file without its escapes.
absl::StatusOr<std::string> Unescape(std::string_view line, const std::string& name,
                                     size_t number) {
  std::string token;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      token.push_back(line[i]);
      continue;
    }
    const char code = ++i < line.size() ? line[i] : '\0';
    switch (code) {
      case 'n':
        token.push_back('\n');
        break;
      case 'r':
        token.push_back('\r');
        break;
      case 't':
        token.push_back('\t');
        break;
      case 's':
        token.push_back(' ');
        break;
      case '\\':
        token.push_back('\\');
        break;
      default:
        return UnreadableData(name, absl::StrCat("line ", number + 1, " has a backslash before ",
                                                 "none of n, r, t, s and \\; write \\\\ for one"));
    }
  }
  return token;
}

}  // namespace

absl::Status Vocabulary::Add(const std::string& token, const std::string& name) {
  const auto number = static_cast<uint32_t>(numbers_.size());
  const auto at = [&] { return absl::StrCat("line ", number + 1); };
  if (token.empty() || token.size() > kLongestToken) {
    return UnreadableData(name, absl::StrCat(at(), " is a token of ", token.size(),
                                             " bytes, expected 1 to ", kLongestToken));
  }
  if (numbers_.size() == kMaxTokens) {
    return UnreadableData(name, absl::StrCat("has more than ", kMaxTokens, " tokens"));
  }
  if (!numbers_.emplace(token, number).second) {
    return UnreadableData(
        name, absl::StrCat(at(), " repeats the token '", absl::Utf8SafeCEscape(token), "'"));
  }
  const auto first = static_cast<unsigned char>(token[0]);
  std::vector<size_t>& lengths = lengths_[first];
  const auto place =
      std::lower_bound(lengths.begin(), lengths.end(), token.size(), std::greater<size_t>());
  if (place == lengths.end() || *place != token.size()) lengths.insert(place, token.size());
  if (token.size() == 1) single_[first] = number;
  if (token == kUnknown) unknown_ = number;
  return absl::OkStatus();
}

absl::StatusOr<Vocabulary> Vocabulary::OfCharacters(std::string_view text,
                                                    const std::string& name) {
  // The order of UTF-8's bytes is that of the codes.
  std::set<std::string, std::less<>> characters;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = CharacterBytes(text.substr(at));
    if (bytes == 0) {
      return UnreadableData(
          name, absl::StrCat("byte ", at, " (", int{static_cast<unsigned char>(text[at])},
                             ") is no UTF-8; use --vocabulary bytes"));
    }
    const std::string_view character = text.substr(at, bytes);
    if (characters.find(character) == characters.end()) characters.emplace(character);
    at += bytes;
  }
  Vocabulary vocabulary;
  for (const std::string& character : characters) {
    WEFT_RETURN_IF_ERROR(vocabulary.Add(character, name));
  }
  return vocabulary;
}

absl::StatusOr<Vocabulary> Vocabulary::Parse(std::string_view file, const std::string& name) {
  Vocabulary vocabulary;
  for (size_t number = 0; !file.empty(); ++number) {
    const size_t end = std::min(file.find('\n'), file.size());
    std::string_view line = file.substr(0, end);
    file.remove_prefix(std::min(end + 1, file.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    WEFT_ASSIGN_OR_RETURN(const std::string token, Unescape(line, name, number));
    WEFT_RETURN_IF_ERROR(vocabulary.Add(token, name));
  }
  if (vocabulary.size() == 0) return UnreadableData(name, "has no tokens");
  return vocabulary;
}

std::optional<std::pair<uint32_t, size_t>> Vocabulary::Match(std::string_view rest) const {
  const auto first = static_cast<unsigned char>(rest[0]);
  for (const size_t length : lengths_[first]) {
    if (length > rest.size()) continue;
    if (length == 1) return {{static_cast<uint32_t>(single_[first]), 1}};
    const auto found = numbers_.find(rest.substr(0, length));
    if (found != numbers_.end()) return {{found->second, length}};
  }
  if (!unknown_) return std::nullopt;
  return {{*unknown_, std::max<size_t>(1, CharacterBytes(rest))}};
}

template <typename Number>
absl::StatusOr<Tensor> Vocabulary::EncodeAs(std::string_view text, const std::string& name) const {
  std::vector<Number> tokens;
  for (size_t at = 0; at < text.size();) {
    const auto match = Match(text.substr(at));
    if (!match) {
      const std::string rest(text.substr(at, 8));
      return UnreadableData(name, absl::StrCat("no token of the vocabulary fits at byte ", at,
                                               ": '", absl::Utf8SafeCEscape(rest), "'"));
    }
    tokens.push_back(static_cast<Number>(match->first));
    at += match->second;
  }
  return Tensor::Of<Number>(Shape{static_cast<int64_t>(tokens.size())}, tokens);
}

absl::StatusOr<Tensor> Vocabulary::Encode(std::string_view text, const std::string& name) const {
  if (size() <= int64_t{1} << 16) return EncodeAs<uint16_t>(text, name);
  return EncodeAs<uint32_t>(text, name);
}

}  // namespace weft
