#include "onnx_import/parameters/exporter_metadata.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "onnx_import/codec/module_path.h"
#include "onnx_import/codec/wire.pb.h"

namespace weft {
namespace {

// Longer texts are not looked at: a signature has some 100 bytes a tensor.
constexpr size_t kMaxSignature = size_t{32} << 20;
constexpr size_t kMaxName = 1024;

constexpr std::string_view kSignatureKey = "pkg.torch.export.ExportedProgram.graph_signature";
constexpr std::string_view kKindKey = "pkg.torch.export.graph_signature.InputSpec.kind";

using Properties = google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>;

const std::string* PropertyOf(const Properties& properties, std::string_view key) {
  for (const onnx::StringStringEntryProto& entry : properties) {
    if (entry.key() == key) return &entry.value();
  }
  return nullptr;
}

std::optional<ExportedKind> KindNamed(std::string_view word) {
  if (word == "PARAMETER") return ExportedKind::kParameter;
  if (word == "BUFFER") return ExportedKind::kBuffer;
  if (word == "CONSTANT_TENSOR") return ExportedKind::kConstant;
  return std::nullopt;
}

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
  return end == std::string_view::npos || end > kMaxName ? "" : text.substr(0, end);
}

void AddKind(std::string_view name, ExportedKind kind, std::map<std::string, ExportedKind>& kinds) {
  if (!name.empty()) kinds.emplace(name, kind);
}

// "p_fc_weight: PARAMETER target='fc.weight'".
void ParseSignatureLine(std::string_view line, std::map<std::string, ExportedKind>& kinds) {
  const size_t colon = line.find(": ");
  if (colon == std::string_view::npos || colon > kMaxName) return;
  const std::optional<ExportedKind> kind = KindNamed(FirstWord(line.substr(colon + 2)));
  if (!kind.has_value()) return;
  AddKind(line.substr(0, colon), *kind, kinds);
  AddKind(QuotedAfter(line.substr(colon), " target="), *kind, kinds);
}

// "InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='p_w'), target='w', ...)".
void ParseInputSpecs(std::string_view text, std::map<std::string, ExportedKind>& kinds) {
  constexpr std::string_view kBegin = "InputSpec(kind=<InputKind.";
  size_t at = text.find(kBegin);
  while (at != std::string_view::npos) {
    const size_t next = text.find(kBegin, at + kBegin.size());
    const std::string_view spec =
        text.substr(at + kBegin.size(), std::min(next, text.size()) - at - kBegin.size());
    const std::optional<ExportedKind> kind = KindNamed(FirstWord(spec));
    if (kind.has_value()) {
      AddKind(QuotedAfter(spec, "(name="), *kind, kinds);
      AddKind(QuotedAfter(spec, " target="), *kind, kinds);
    }
    at = next;
  }
}

void AddNodes(const onnx::GraphProto& graph, ExporterMetadata& metadata) {
  for (int i = 0; i < graph.node_size(); ++i) {
    const onnx::NodeProto& node = graph.node(i);
    const std::string* const scopes = PropertyOf(node.metadata_props(), kNameScopesKey);
    if (scopes == nullptr) continue;
    std::string module = ModuleInScopes(*scopes);
    if (module.empty()) continue;
    // As the importer calls nodes without a name.
    const std::string name =
        node.name().empty() ? absl::StrCat(node.op_type(), "_", i) : node.name();
    metadata.module_of_node.emplace(name, std::move(module));
  }
}

// Arguments' names have no dots.
void AddLostParameters(const onnx::GraphProto& graph, ExporterMetadata& metadata) {
  std::set<std::string_view> stored;
  for (const onnx::TensorProto& tensor : graph.initializer()) stored.insert(tensor.name());
  for (const auto& [name, kind] : metadata.kinds) {
    const bool is_path = name.find('.') != std::string::npos;
    if (kind == ExportedKind::kParameter && is_path && !stored.contains(name)) {
      metadata.lost_parameters.insert(name);
    }
  }
}

}  // namespace

std::optional<ExportedKind> ExporterMetadata::KindOf(const std::string& tensor) const {
  const auto found = kinds.find(tensor);
  if (found == kinds.end()) return std::nullopt;
  return found->second;
}

std::map<std::string, ExportedKind> ParseGraphSignature(std::string_view text) {
  std::map<std::string, ExportedKind> kinds;
  if (text.size() > kMaxSignature) return kinds;
  ParseInputSpecs(text, kinds);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    ParseSignatureLine(WithoutBlanks(text.substr(0, end)), kinds);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return kinds;
}

ExporterMetadata ReadExporterMetadata(const ModelFile& file) {
  ExporterMetadata metadata;
  if (file.proto() == nullptr) return metadata;
  const onnx::GraphProto& graph = file.proto()->graph();
  for (const Properties* const properties :
       {&graph.metadata_props(), &file.proto()->metadata_props()}) {
    const std::string* const text = PropertyOf(*properties, kSignatureKey);
    if (text == nullptr || !metadata.kinds.empty()) continue;
    metadata.kinds = ParseGraphSignature(*text);
  }
  AddLostParameters(graph, metadata);
  const auto add_tensor = [&metadata](const auto& tensor) {
    const std::string* const word = PropertyOf(tensor.metadata_props(), kKindKey);
    const std::optional<ExportedKind> kind = word == nullptr ? std::nullopt : KindNamed(*word);
    if (kind.has_value()) metadata.kinds.emplace(tensor.name(), *kind);
  };
  for (const onnx::TensorProto& tensor : graph.initializer()) add_tensor(tensor);
  for (const onnx::ValueInfoProto& value : graph.value_info()) add_tensor(value);
  AddNodes(graph, metadata);
  return metadata;
}

}  // namespace weft
