// What an import is asked for, and where the file keeps its parameters.
#ifndef WEFT_ONNX_IMPORT_IMPORT_OPTIONS_H_
#define WEFT_ONNX_IMPORT_IMPORT_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>

#include "graph/graph.h"

namespace weft {

// How ImportModel makes a graph of a file.
struct ImportOptions {
  // True (training, inspecting): float initializers and float Constant nodes of the main graph
  // become Variables, none of them trainable yet: MarkTrainable (parameters/trainable.h) decides.
  // False (running, evaluating): they become constants, so that kernels can pack weights.
  bool parameters_as_variables = true;
  // Fill in the types of all values. An operator whose inputs do not fit is then an import error.
  bool infer_shapes = true;
  // Shapes of the main graph's inputs, by name, in the place of those that the file declares.
  std::map<std::string, SymbolicShape> input_shapes = {};
};

// How the file stores a float tensor; the exporter puts trained values back in the same place.
enum class ParameterStorage : uint8_t {
  kInitializer,
  kConstantNode,
  kAlgorithmInitializer,  // of the model's own training (training_info.h)
};

// A float tensor of the file, and where the file stores it.
struct ImportedParameter {
  std::string name;  // of the value in the graph
  ParameterStorage storage = ParameterStorage::kInitializer;
  int index = 0;  // of the initializer, or of the node, in the file's main graph
  // The file lists it among the graph's inputs too (old exporters); here it is no input.
  bool also_graph_input = false;
  DType dtype = DType::kInvalid;
  Shape shape;
};

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_IMPORT_OPTIONS_H_
