// From an ONNX model to a Graph whose nodes all have their newest form.
#ifndef WEFT_ONNX_IMPORT_IMPORTER_H_
#define WEFT_ONNX_IMPORT_IMPORTER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "onnx_import/import_options.h"
#include "onnx_import/model_file.h"
#include "platform/file_system.h"

namespace weft {

// The first and the last version of something that are known here.
struct KnownVersions {
  int64_t oldest = 0;
  int64_t newest = 0;
};
// Of the file format (IR): a file of another version is refused.
KnownVersions KnownIrVersions();
// Of ONNX's own operator sets. A model of a later one is taken: each operator in its newest known
// form, and a node that this form does not fit is the error.
KnownVersions KnownOpsets();

// What the file declares as a map, or as a sequence of maps. In a Graph, a map is a sequence of two
// tensors in one order: values [n] and keys [n].
struct MapType {
  DType key = DType::kInvalid;  // int64 or string
  DType value = DType::kInvalid;
  bool in_sequence = false;
  std::string ToString() const;  // "sequence(map(int64, float32))"
};

// A model as a graph, with the file that it came from. The graph can change; the file does not.
struct ImportedModel {
  Graph graph;
  // The file as it was, for the exporter and for messages.
  ModelFile file;
  // Every float initializer and float Constant node of the main graph, in file order, whether it
  // may train or not, with ImportOptions::parameters_as_variables or without.
  std::vector<ImportedParameter> parameters;

  // Of the main graph's inputs and outputs, by name: those that are maps.
  std::map<std::string, MapType> maps;

  std::string producer_name;
  std::string producer_version;
  std::string doc;
  int64_t ir_version = 0;
  int64_t model_version = 0;
  std::map<std::string, int64_t> opsets;  // "" is ONNX's own domain
  // The latest set of ONNX's operators that the file, or a function in it, is written for, where it
  // is later than KnownOpsets().newest; else 0.
  int64_t unknown_opset = 0;
  std::map<std::string, std::string> metadata;
};

// Converts a checked file. Operators of older opsets are rewritten to their newest form; an
// operator that no schema is registered for is kept as a node with a null schema (it can be
// inspected, not run). Model-local functions are inlined. Every node and value gets a stable unique
// name and origin.
//
// A subgraph (of If, Loop, Scan) becomes a Graph attribute; values it takes from outside become its
// last inputs, listed in the string attribute "weft.captures.NAME" of the node, and inputs of the
// node after its own, so that the node depends on them. Kinds of attributes that Graph cannot hold
// are kept encoded as strings "weft.encoded.NAME".
//
// InvalidArgument, with file, node, attribute or tensor: references that dangle or form a cycle,
// tensors that do not fit, missing or wrong attributes, unknown operator sets. Linear time.
absl::StatusOr<ImportedModel> ImportModel(const ModelFile& file, const ImportOptions& options = {});

// All but graph and parameters.
ImportedModel DescribeFile(const ModelFile& file);

// Load and import in one.
absl::StatusOr<ImportedModel> ImportModelFile(FileSystem& file_system, const std::string& path,
                                              const ImportOptions& options = {});

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_IMPORTER_H_
