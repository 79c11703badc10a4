#include "onnx_import/parameters/exporter_metadata.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "onnx_import/codec/module_path.h"
#include "onnx_import/codec/wire.pb.h"

namespace weft {
namespace {

constexpr std::string_view kKindKey = "pkg.torch.export.graph_signature.InputSpec.kind";

using Properties = google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>;

const std::string* PropertyOf(const Properties& properties, std::string_view key) {
  for (const onnx::StringStringEntryProto& entry : properties) {
    if (entry.key() == key) return &entry.value();
  }
  return nullptr;
}

std::map<std::string, ExportedKind> KindsIn(const std::vector<SignatureEntry>& entries) {
  std::map<std::string, ExportedKind> kinds;
  for (const SignatureEntry& entry : entries) {
    if (!entry.argument.empty()) kinds.emplace(entry.argument, entry.kind);
    if (!entry.target.empty()) kinds.emplace(entry.target, entry.kind);
  }
  return kinds;
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
  return KindsIn(ReadGraphSignature(text));
}

ExporterMetadata ReadExporterMetadata(const ModelFile& file) {
  ExporterMetadata metadata;
  if (file.proto() == nullptr) return metadata;
  const onnx::GraphProto& graph = file.proto()->graph();
  metadata.kinds = KindsIn(GraphSignatureOf(*file.proto()));
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
