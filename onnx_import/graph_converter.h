// Converts the nodes of one ONNX graph, its subgraphs and the functions it calls; the inside of the
// importer.
#ifndef WEFT_ONNX_IMPORT_GRAPH_CONVERTER_H_
#define WEFT_ONNX_IMPORT_GRAPH_CONVERTER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "onnx_import/codec/tensor_codec.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/function_table.h"
#include "onnx_import/import_options.h"

namespace weft {

// What the graphs of one model share.
struct ConversionContext {
  const onnx::ModelProto& model;
  ImportOptions options;
  TensorSource source;
  std::map<std::string, int64_t> opsets;
  FunctionTable functions;
  // Initializers of the main graph that are variables, whatever their type; with `only_state`, no
  // other tensor is one.
  std::set<std::string> state;
  bool only_state = false;
};

// The names that a list of nodes can see, and what its nodes are written in.
struct ConversionScope {
  absl::flat_hash_map<std::string, ValueId> values;
  const std::map<std::string, int64_t>* opsets = nullptr;
  // Put before names of nodes and values: "call_3/" inside a function, else empty.
  std::string prefix;
  // Inside a function: the attributes of the call, and what its outputs are called outside.
  bool in_function = false;
  std::map<std::string, const onnx::AttributeProto*> bindings;
  std::map<std::string, std::string> output_names;
  const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>* value_info = nullptr;
};

// One per graph or subgraph; used once.
class GraphConverter {
 public:
  // `outer` and `outer_scope` are what a subgraph lies in, null for the main graph. Borrows all.
  GraphConverter(ConversionContext& context, Graph& graph, GraphConverter* outer = nullptr,
                 ConversionScope* outer_scope = nullptr)
      : context_(context), graph_(graph), outer_(outer), outer_scope_(outer_scope) {}

  // Fills the graph. `algorithm`, if any, goes on where the graph ends: it sees the graph's names.
  absl::Status Convert(const onnx::GraphProto& proto, const onnx::GraphProto* algorithm = nullptr);
  // After Convert: the value of that name in the main graph.
  std::optional<ValueId> Find(const std::string& name) const;

  // Float tensors of the main graph, in file order within each storage.
  std::vector<ImportedParameter>& parameters() { return parameters_; }
  // Names a subgraph takes from outside, in the order of the inputs added for them.
  const std::vector<std::string>& captures() const { return captures_; }

 private:
  using NodeProtos = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

  bool IsMain() const { return outer_ == nullptr; }
  void Declare(const onnx::GraphProto& proto);
  absl::Status AddInputs(const onnx::GraphProto& proto, ConversionScope& scope);
  absl::Status AddInitializers(const onnx::GraphProto& proto, ParameterStorage storage,
                               ConversionScope& scope);
  absl::Status AddOutputs(const onnx::GraphProto& proto, ConversionScope& scope);
  // A float tensor of the main graph becomes a variable, if asked for; anything else a constant.
  absl::StatusOr<ValueId> AddTensor(const std::string& name, Tensor tensor,
                                    ParameterStorage storage, int index, bool may_be_parameter);

  // The value of a name here or further out; nullopt when nobody defines it.
  std::optional<ValueId> Resolve(const std::string& name, ConversionScope& scope);
  bool IsDefined(const std::string& name, const ConversionScope& scope) const;

  absl::Status ConvertNodes(const NodeProtos& nodes, ConversionScope& scope);
  absl::Status ConvertNode(const onnx::NodeProto& proto, int index, ConversionScope& scope);
  absl::Status ConvertConstant(const onnx::NodeProto& proto, int index, ConversionScope& scope);
  absl::Status AddOperator(const onnx::NodeProto& proto, int64_t version, const std::string& name,
                           ConversionScope& scope);
  absl::Status ConvertAttributes(const onnx::NodeProto& proto, ConversionScope& scope,
                                 Graph::NodeSpec& spec);
  absl::StatusOr<std::vector<ValueId>> ResolveInputs(const onnx::NodeProto& proto,
                                                     ConversionScope& scope);
  absl::Status InlineCall(const onnx::NodeProto& proto, const std::string& name,
                          const onnx::FunctionProto& function, ConversionScope& scope);
  absl::Status BindCall(const onnx::NodeProto& proto, const onnx::FunctionProto& function,
                        ConversionScope& scope, ConversionScope& body);
  absl::Status TakeOutputs(const onnx::NodeProto& proto, const onnx::FunctionProto& function,
                           ConversionScope& body, ConversionScope& scope);
  // Types, origins and schema checks of the nodes made since `first`.
  absl::Status Finish(NodeId first, const std::string& origin);

  ConversionContext& context_;
  Graph& graph_;
  GraphConverter* const outer_;
  ConversionScope* const outer_scope_;
  std::vector<ImportedParameter> parameters_;
  std::vector<std::string> captures_;
  absl::flat_hash_map<std::string, ValueId> values_;  // of the whole, when it is converted
  // Declared types, by the file's names.
  absl::flat_hash_map<std::string, const onnx::TypeProto*> declared_;
};

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_GRAPH_CONVERTER_H_
