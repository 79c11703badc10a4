// The model-local functions of a model, and how much inlining them makes.
#ifndef WEFT_ONNX_IMPORT_FUNCTION_TABLE_H_
#define WEFT_ONNX_IMPORT_FUNCTION_TABLE_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx_import/codec/wire.pb.h"

namespace weft {

// The functions that a model defines, by domain, name and overload.
class FunctionTable {
 public:
  // Borrows the model.
  explicit FunctionTable(const onnx::ModelProto& model);

  // The function that the node calls; null when it is an operator.
  const onnx::FunctionProto* Find(const onnx::NodeProto& node) const;

  // InvalidArgument when a function that the graph calls, at any depth, calls itself, or when calls
  // or, once inlined, subgraphs are nested more than kMaxNesting deep; ResourceExhausted when
  // inlining them all would make more nodes than a file of this many is meant to have. Linear time,
  // before anything is inlined.
  absl::Status CheckCalls(const onnx::GraphProto& graph);

 private:
  struct Extent {
    int64_t nodes = 0;  // after inlining; stops counting above the limit
    int depth = 0;      // of calls
    int bodies = 0;     // of subgraphs, after inlining
    bool known = false;
  };
  using NodeProtos = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

  absl::StatusOr<Extent> Measure(const NodeProtos& nodes);
  absl::StatusOr<Extent> MeasureCall(const onnx::FunctionProto& function);

  std::map<std::tuple<std::string, std::string, std::string>, const onnx::FunctionProto*>
      functions_;
  std::map<const onnx::FunctionProto*, Extent> extents_;
  int64_t max_nodes_ = 0;  // after inlining
  // Functions being measured, outermost first.
  std::vector<const onnx::FunctionProto*> calls_;
};

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_FUNCTION_TABLE_H_
