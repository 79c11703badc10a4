// What exporters write about tensors and nodes beside what ONNX defines (metadata_props).
#ifndef WEFT_ONNX_IMPORT_PARAMETERS_EXPORTER_METADATA_H_
#define WEFT_ONNX_IMPORT_PARAMETERS_EXPORTER_METADATA_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "onnx_import/codec/graph_signature.h"
#include "onnx_import/model_file.h"

namespace weft {

// Of the main graph. Texts of a file that nobody needs to trust: what is too long, or not as
// expected, counts as absent.
struct ExporterMetadata {
  // By the tensor's name: torch.export's graph signature.
  std::map<std::string, ExportedKind> kinds = {};
  // Parameters, as "encoder.layers.0.norm.weight", that the file has no tensor of this name for:
  // the exporter has transposed or cut it, or merged it with another.
  std::set<std::string> lost_parameters = {};
  // By the node's name: the path of its module, as "encoder.layers.0.linear1"; never empty.
  std::map<std::string, std::string> module_of_node = {};

  std::optional<ExportedKind> KindOf(const std::string& tensor) const;
  bool has_signature() const { return !kinds.empty(); }
};

// Reads graph, nodes, initializers and value_info of the main graph. Linear in the file.
ExporterMetadata ReadExporterMetadata(const ModelFile& file);

// The kinds in the text of a torch.export graph signature (ReadGraphSignature), by the target's
// name, and by the argument's.
std::map<std::string, ExportedKind> ParseGraphSignature(std::string_view text);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_PARAMETERS_EXPORTER_METADATA_H_
