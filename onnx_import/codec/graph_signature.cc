#include "onnx_import/codec/graph_signature.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "onnx_import/codec/wire.pb.h"

namespace weft {
namespace {

// Longer texts are not looked at: a signature has some 100 bytes a tensor.
constexpr size_t kMaxSignature = size_t{32} << 20;
constexpr size_t kMaxTarget = 1024;

constexpr std::string_view kSignatureKey = "pkg.torch.export.ExportedProgram.graph_signature";

// The letters and underscores that a text begins with.
std::string_view FirstWord(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && (absl::ascii_isalpha(text[end]) || text[end] == '_')) ++end;
  return text.substr(0, end);
}

std::string_view WithoutBlanks(std::string_view text) {
  while (!text.empty() && absl::ascii_isspace(text.front())) text.remove_prefix(1);
  while (!text.empty() && absl::ascii_isspace(text.back())) text.remove_suffix(1);
  return text;
}

// What stands between the quotes after `key`, as in target='fc.weight'; "" where it does not.
std::string_view QuotedAfter(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos || at + key.size() >= text.size()) return "";
  const char quote = text[at + key.size()];
  if (quote != '\'' && quote != '"') return "";
  text.remove_prefix(at + key.size() + 1);
  const size_t end = text.find(quote);
  return end == std::string_view::npos || end > kMaxTarget ? "" : text.substr(0, end);
}

// "p_fc_weight: PARAMETER target='fc.weight'".
void ReadSignatureLine(std::string_view line, std::vector<SignatureEntry>& entries) {
  const size_t colon = line.find(": ");
  if (colon == std::string_view::npos || colon > kMaxTarget) return;
  const std::optional<ExportedKind> kind = KindNamed(FirstWord(line.substr(colon + 2)));
  if (!kind.has_value()) return;
  entries.push_back({std::string(line.substr(0, colon)),
                     std::string(QuotedAfter(line.substr(colon), " target=")), *kind});
}

// "InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='p_w'), target='w', ...)".
void ReadInputSpecs(std::string_view text, std::vector<SignatureEntry>& entries) {
  constexpr std::string_view kBegin = "InputSpec(kind=<InputKind.";
  size_t at = text.find(kBegin);
  while (at != std::string_view::npos) {
    const size_t next = text.find(kBegin, at + kBegin.size());
    const std::string_view spec =
        text.substr(at + kBegin.size(), std::min(next, text.size()) - at - kBegin.size());
    const std::optional<ExportedKind> kind = KindNamed(FirstWord(spec));
    if (kind.has_value()) {
      entries.push_back({std::string(QuotedAfter(spec, "(name=")),
                         std::string(QuotedAfter(spec, " target=")), *kind});
    }
    at = next;
  }
}

}  // namespace

std::optional<ExportedKind> KindNamed(std::string_view word) {
  if (word == "PARAMETER") return ExportedKind::kParameter;
  if (word == "BUFFER") return ExportedKind::kBuffer;
  if (word == "CONSTANT_TENSOR") return ExportedKind::kConstant;
  return std::nullopt;
}

std::vector<SignatureEntry> ReadGraphSignature(std::string_view text) {
  std::vector<SignatureEntry> entries;
  if (text.size() > kMaxSignature) return entries;
  ReadInputSpecs(text, entries);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    ReadSignatureLine(WithoutBlanks(text.substr(0, end)), entries);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return entries;
}

std::vector<SignatureEntry> GraphSignatureOf(const onnx::ModelProto& model) {
  for (const auto* const properties : {&model.graph().metadata_props(), &model.metadata_props()}) {
    for (const onnx::StringStringEntryProto& entry : *properties) {
      if (entry.key() != kSignatureKey) continue;
      std::vector<SignatureEntry> entries = ReadGraphSignature(entry.value());
      if (!entries.empty()) return entries;
      break;
    }
  }
  return {};
}

}  // namespace weft
