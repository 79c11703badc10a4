// A model that was exported in training mode, written for inference.
#ifndef WEFT_ONNX_IMPORT_EDIT_INFERENCE_FORM_H_
#define WEFT_ONNX_IMPORT_EDIT_INFERENCE_FORM_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx_import/model_file.h"

namespace weft {

// Nodes that do in inference what they should do in training only, functions and subgraphs
// included.
struct TrainingModeNodes {
  int batch_normalizations = 0;  // with the statistics of the batch
  int dropouts = 0;              // that drop
  bool any() const { return batch_normalizations > 0 || dropouts > 0; }
};
TrainingModeNodes TrainingModeNodesOf(const ModelFile& file);

// The encoded model with these nodes in their form for inference, in any operator set; all else
// byte for byte as it was:
//  * BatchNormalization without training_mode, and without outputs for running statistics. What
//    read these reads the node's own statistics; an output of the graph is a copy of them.
//  * Dropout without its training_mode input. An initializer, Constant or input of the graph that
//    nothing else reads goes with it. Its mask, if it is read, is all true then, as ONNX says.
//  * Before operator set 7, is_test is 1.
// Unimplemented where a node reads the outputs saved_mean or saved_var (before operator set 14),
// naming both nodes; InvalidArgument for bytes that are no model.
absl::StatusOr<std::string> WriteForInference(std::string_view bytes);

// Whether that would succeed; reads no payload.
absl::Status CheckInferenceForm(const ModelFile& file);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_INFERENCE_FORM_H_
