// ParameterNames: what a parameter can be called besides the name that it has in the file.
#ifndef WEFT_ONNX_IMPORT_PARAMETERS_PARAMETER_NAMES_H_
#define WEFT_ONNX_IMPORT_PARAMETERS_PARAMETER_NAMES_H_

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "onnx_import/parameters/exporter_metadata.h"
#include "onnx_import/parameters/forward_walk.h"

namespace weft {

// A variable is called by
//   its own name             onnx::MatMul_374
//   its reader and port      /layer.3/attention/query/MatMul.B
//   its module and role      layer.3.attention.query.weight, and layer.3/attention/query/weight
// The module is that of the reader: what the exporter says (PyTorch's name_scopes), or what the
// reader's name says (/layer.3/attention/query/MatMul, as PyTorch's older exporter has it). Readers
// behind reshapes and casts count too. The role is what PyTorch calls a port: weight, bias,
// running_mean, weight_ih, ...; a tensor of one element that is no learnable operand has none.
//
// Borrows all; one thread.
class ParameterNames {
 public:
  ParameterNames(const Graph& graph, const ForwardWalk& forward, const ExporterMetadata& metadata)
      : graph_(graph), forward_(forward), metadata_(metadata) {}

  // The modules of the variable's readers.
  std::set<std::string> ModulesOf(const Variable& variable) const;

  // Sets Variable::other_names and shown_name of all variables of the graph, which must be the one
  // that was given.
  void Give(Graph& graph) const;

 private:
  std::string ModuleOf(const Node& node) const;
  std::vector<std::string> ByModule(const Variable& variable) const;
  std::vector<std::string> ByReader(const Variable& variable) const;
  // A name of `names` that tells more than a made-up own one; "" without one.
  std::string Telling(const Variable& variable, const std::vector<std::string>& modules,
                      const std::map<std::string, int>& owners) const;

  const Graph& graph_;
  const ForwardWalk& forward_;
  const ExporterMetadata& metadata_;
};

// Whether an exporter made the name up for a value that a node computes: "val_51",
// "/layer/Constant_1_output_0", "onnx::Add_12", "unsqueeze_2", "374". Weights can have such names
// too, where the exporter transposed or cut them.
bool IsMadeUpName(std::string_view name);

// "bert/encoder/layer.0/query" of the module path "bert.encoder.layer.0.query": numbers stay with
// what they count.
std::string WithSlashes(std::string_view path);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_PARAMETERS_PARAMETER_NAMES_H_
