// StringNormalizer, StringConcat, StringSplit, RegexFullMatch.
#include <re2/re2.h>

#include <algorithm>
#include <clocale>
#include <cwctype>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/value/tensor_parts.h"
#include "ops/value_kernel.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// ---- Case

enum class Case { kKeep, kLower, kUpper };

// The character at `at`, which moves behind it; a byte that begins none stands for itself.
char32_t NextCharacter(const std::string& text, size_t& at) {
  const auto byte = [&text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : 0;
  if (more == 0 || at + static_cast<size_t>(more) >= text.size()) return byte(at++);
  char32_t character = lead & (0x3fu >> more);
  for (int i = 1; i <= more; ++i) {
    const unsigned char next = byte(at + static_cast<size_t>(i));
    if ((next & 0xc0) != 0x80) return byte(at++);
    character = (character << 6) | (next & 0x3f);
  }
  at += static_cast<size_t>(more) + 1;
  return character;
}

void AppendCharacter(char32_t character, std::string& text) {
  const auto tail = [&](int shift) {
    text.push_back(static_cast<char>(0x80 | ((character >> shift) & 0x3f)));
  };
  if (character < 0x80) {
    text.push_back(static_cast<char>(character));
  } else if (character < 0x800) {
    text.push_back(static_cast<char>(0xc0 | (character >> 6)));
    tail(0);
  } else if (character < 0x10000) {
    text.push_back(static_cast<char>(0xe0 | (character >> 12)));
    tail(6);
    tail(0);
  } else {
    text.push_back(static_cast<char>(0xf0 | (character >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

// Of all alphabets, the same in every locale of the machine; text that is no UTF-8 stays.
std::string InCase(const std::string& text, Case wanted) {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (wanted == Case::kKeep) return text;
  std::string changed;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    char32_t character = NextCharacter(text, at);
    if (character >= 0x80 && (at == begin + 1 || locale == nullptr)) {
      changed.append(text, begin, at - begin);
      continue;
    }
    if (locale != nullptr) {
      const auto wide = static_cast<wint_t>(character);
      character = static_cast<char32_t>(wanted == Case::kLower ? towlower_l(wide, locale)
                                                               : towupper_l(wide, locale));
    } else {
      const int byte = static_cast<int>(character);
      character =
          static_cast<char32_t>(wanted == Case::kLower ? std::tolower(byte) : std::toupper(byte));
    }
    AppendCharacter(character, changed);
  }
  return changed;
}

// ---- StringNormalizer

absl::Status RunStringNormalizer(ValueContext& context) {
  const Tensor& input = context.InputTensor(0);
  const int rank = input.shape().rank();
  if (rank != 1 && !(rank == 2 && input.shape().dim(0) == 1)) {
    return context.InvalidArgument("expected a shape [C] or [1,C]");
  }
  const std::string action = context.attributes().String("case_change_action", "NONE");
  if (action != "NONE" && action != "LOWER" && action != "UPPER") {
    return context.InvalidArgument(absl::StrCat("attribute case_change_action is '", action,
                                                "', expected LOWER, UPPER or NONE"));
  }
  const Case change = action == "LOWER"   ? Case::kLower
                      : action == "UPPER" ? Case::kUpper
                                          : Case::kKeep;
  const bool sensitive = context.attributes().Int("is_case_sensitive", 0) != 0;
  const Case compared = sensitive ? Case::kKeep : Case::kLower;
  std::set<std::string> stopwords;
  for (const std::string& word : context.attributes().Strings("stopwords")) {
    stopwords.insert(InCase(word, compared));
  }
  std::vector<std::string> kept;
  for (const std::string& word : input.strings()) {
    if (stopwords.contains(InCase(word, compared))) continue;
    kept.push_back(InCase(word, change));
  }
  if (kept.empty()) kept.emplace_back();
  const auto count = static_cast<int64_t>(kept.size());
  const Shape shape = rank == 1 ? Shape{count} : Shape{1, count};
  context.SetOutput(0, Tensor::OfStrings(shape, std::move(kept)));
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("", "StringNormalizer", RunStringNormalizer);

// ---- StringConcat

// Which element of an operand of `shape` goes to element `index` of the broadcast shape.
int64_t BroadcastIndex(const Shape& shape, const Shape& whole, int64_t index) {
  int64_t from = 0;
  int64_t stride = 1;
  for (int axis = whole.rank() - 1; axis >= 0; --axis) {
    const int64_t at = index % whole.dim(axis);
    index /= whole.dim(axis);
    const int own = axis - (whole.rank() - shape.rank());
    if (own < 0) break;
    if (shape.dim(own) != 1) from += at * stride;
    stride *= shape.dim(own);
  }
  return from;
}

absl::Status RunStringConcat(ValueContext& context) {
  const Tensor& x = context.InputTensor(0);
  const Tensor& y = context.InputTensor(1);
  Shape shape;
  const int rank = std::max(x.shape().rank(), y.shape().rank());
  for (int axis = 0; axis < rank; ++axis) {
    const auto size = [&](const Shape& of) {
      const int own = axis - (rank - of.rank());
      return own < 0 ? 1 : of.dim(own);
    };
    const int64_t a = size(x.shape());
    const int64_t b = size(y.shape());
    if (a != b && a != 1 && b != 1) return context.InvalidArgument("the shapes do not broadcast");
    shape.AddDim(a == 1 ? b : a);
  }
  WEFT_RETURN_IF_ERROR(Shape::Create(shape.dims()).status());
  std::vector<std::string> joined;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    joined.push_back(x.strings()[static_cast<size_t>(BroadcastIndex(x.shape(), shape, i))] +
                     y.strings()[static_cast<size_t>(BroadcastIndex(y.shape(), shape, i))]);
  }
  context.SetOutput(0, Tensor::OfStrings(shape, std::move(joined)));
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("", "StringConcat", RunStringConcat);

// ---- StringSplit

constexpr std::string_view kWhitespace = " \t\n\r\f\v";

// At runs of whitespace; none at the ends. At most `splits` times, when that is not negative.
std::vector<std::string> SplitAtWhitespace(const std::string& text, int64_t splits) {
  std::vector<std::string> parts;
  size_t at = text.find_first_not_of(kWhitespace);
  while (at != std::string::npos) {
    if (splits >= 0 && static_cast<int64_t>(parts.size()) == splits) {
      parts.push_back(text.substr(at));
      break;
    }
    const size_t end = text.find_first_of(kWhitespace, at);
    parts.push_back(text.substr(at, end - at));
    at = end == std::string::npos ? end : text.find_first_not_of(kWhitespace, end);
  }
  return parts;
}

std::vector<std::string> SplitAt(const std::string& text, const std::string& delimiter,
                                 int64_t splits) {
  if (delimiter.empty()) return SplitAtWhitespace(text, splits);
  std::vector<std::string> parts;
  size_t begin = 0;
  while (splits < 0 || static_cast<int64_t>(parts.size()) < splits) {
    const size_t end = text.find(delimiter, begin);
    if (end == std::string::npos) break;
    parts.push_back(text.substr(begin, end - begin));
    begin = end + delimiter.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

absl::Status RunStringSplit(ValueContext& context) {
  const Tensor& input = context.InputTensor(0);
  const std::string delimiter = context.attributes().String("delimiter", "");
  const int64_t splits = context.attributes().Int("maxsplit", -1);
  std::vector<std::vector<std::string>> rows;
  std::vector<int64_t> counts;
  size_t max_parts = 0;
  for (const std::string& text : input.strings()) {
    rows.push_back(SplitAt(text, delimiter, splits));
    counts.push_back(static_cast<int64_t>(rows.back().size()));
    max_parts = std::max(max_parts, rows.back().size());
  }
  Shape shape = input.shape();
  shape.AddDim(static_cast<int64_t>(max_parts));
  WEFT_RETURN_IF_ERROR(Shape::Create(shape.dims()).status());
  std::vector<std::string> parts;
  for (std::vector<std::string>& row : rows) {
    row.resize(max_parts);
    parts.insert(parts.end(), std::make_move_iterator(row.begin()),
                 std::make_move_iterator(row.end()));
  }
  context.SetOutput(0, Tensor::OfStrings(shape, std::move(parts)));
  context.SetOutput(1, Tensor::Of<int64_t>(input.shape(), counts));
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("", "StringSplit", RunStringSplit);

// ---- RegexFullMatch

absl::Status RunRegexFullMatch(ValueContext& context) {
  const Tensor& input = context.InputTensor(0);
  RE2::Options options;
  options.set_log_errors(false);
  const RE2 pattern(context.attributes().String("pattern", ""), options);
  if (!pattern.ok()) {
    return context.InvalidArgument(absl::StrCat("attribute pattern '", pattern.pattern(),
                                                "' is no regular expression: ", pattern.error()));
  }
  WEFT_ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(DType::kBool, input.shape()));
  const auto matches = output.mutable_data<bool>();
  size_t i = 0;
  for (const std::string& text : input.strings()) matches[i++] = RE2::FullMatch(text, pattern);
  context.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("", "RegexFullMatch", RunRegexFullMatch);

}  // namespace
}  // namespace weft::cpu
