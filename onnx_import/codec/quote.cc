#include "onnx_import/codec/quote.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace weft {

namespace {

constexpr size_t kLongestName = 120;

// Length of the valid UTF-8 sequence at the start of `text`; 0 when there is none.
size_t Utf8SequenceLength(std::string_view text) {
  const unsigned char first = static_cast<unsigned char>(text[0]);
  size_t length = 0;
  if (first < 0x80) length = 1;
  if (first >= 0xc2 && first < 0xe0) length = 2;
  if (first >= 0xe0 && first < 0xf0) length = 3;
  if (first >= 0xf0 && first < 0xf5) length = 4;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return length;
}

// U+0080..U+009F steer terminals as the ASCII control characters do.
bool IsControl(std::string_view sequence) {
  const unsigned char first = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return first < 0x20 || first == 0x7f;
  return sequence.size() == 2 && first == 0xc2 && static_cast<unsigned char>(sequence[1]) < 0xa0;
}

// `text` up to `limit` bytes with what cannot be printed, and the characters in `special`, escaped.
std::string Escaped(std::string_view text, size_t limit, std::string_view special) {
  std::string escaped;
  size_t at = 0;
  while (at < text.size() && at < limit) {
    const size_t length = Utf8SequenceLength(text.substr(at));
    const std::string_view piece = text.substr(at, length == 0 ? 1 : length);
    if (length == 0 || IsControl(piece) || special.find(piece) != special.npos) {
      escaped += absl::CHexEscape(absl::string_view(piece.data(), piece.size()));
    } else {
      escaped.append(piece);
    }
    at += piece.size();
  }
  return at < text.size() ? escaped + "..." : escaped;
}

}  // namespace

std::string Quoted(std::string_view name) {
  return absl::StrCat("'", Escaped(name, kLongestName, "'\\"), "'");
}

std::string QuotedPath(std::string_view path) {
  return absl::StrCat("'", Escaped(path, path.size(), "'\\"), "'");
}

absl::Status Printable(const absl::Status& status) {
  if (status.ok()) return status;
  const std::string_view text(status.message().data(), status.message().size());
  return absl::Status(status.code(), Escaped(text, text.size(), ""));
}

}  // namespace weft
