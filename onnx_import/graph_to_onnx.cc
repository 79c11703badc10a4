#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "onnx_import/annotations.h"
#include "onnx_import/codec/attribute_codec.h"
#include "onnx_import/codec/ir_versions.h"
#include "onnx_import/codec/tensor_codec.h"
#include "onnx_import/codec/type_codec.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/graph_wire.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using PropertyList = google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>;

// What a graph may need of the file format, whatever its operators: variables that are no inputs
// came with 4, optional values with 8, and properties of nodes and values with 10.
constexpr int64_t kIrVersionOfGraphs = 8;
constexpr int64_t kIrVersionOfAnnotations = 10;

void AddProperty(PropertyList& properties, const std::string& key, const std::string& value) {
  onnx::StringStringEntryProto& entry = *properties.Add();
  entry.set_key(key);
  entry.set_value(value);
}

void AddOrigin(const Origin& origin, PropertyList& properties) {
  if (!origin.forward_node.empty()) {
    AddProperty(properties, annotation::kOrigin, origin.forward_node);
  }
  if (!origin.logical_value.empty()) {
    AddProperty(properties, annotation::kLogicalValue, origin.logical_value);
  }
  if (origin.is_gradient) AddProperty(properties, annotation::kGradient, "1");
}

// ONNX asks for a multiple of the page size, for programs that map the file.
constexpr int64_t kBesideAlignment = 4096;

Shape ShapeOf(const Graph& graph, const Variable& variable) {
  return graph.value(variable.value).type.shape.ToConcrete().value();
}

int64_t BytesOf(const Graph& graph, const Variable& variable) {
  return DTypeBytes(graph.value(variable.value).type.dtype,
                    ShapeOf(graph, variable).num_elements());
}

// Encodes one graph; subgraphs get an encoder each.
class GraphEncoder {
 public:
  GraphEncoder(const Graph& graph, const GraphToOnnxOptions& options)
      : graph_(graph),
        options_(options),
        ranks_(graph.value_capacity()),
        offsets_(options.weights_beside.empty() ? std::vector<int64_t>() : OffsetsBeside(graph)) {
    int rank = 0;
    for (const ValueId id : graph.value_ids()) ranks_[id.value] = rank++;
  }

  absl::Status Encode(onnx::GraphProto& proto) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    proto.set_name(graph_.name.empty() ? "weft" : graph_.name);
    EncodeNodes(order, proto);
    EncodeConstants(proto);
    for (const ValueId input : graph_.inputs()) EncodeInput(input, proto);
    for (size_t i = 0; i < graph_.variables().size(); ++i) EncodeVariable(i, proto);
    for (const ValueId output : graph_.outputs()) {
      EncodeValue(output, /*annotate=*/false, *proto.add_output());
    }
    if (options_.annotations) {
      if (graph_.name.empty())
        AddProperty(*proto.mutable_metadata_props(), annotation::kUnnamed, "1");
      for (const auto& [domain, version] : graph_.opsets) {
        AddProperty(*proto.mutable_metadata_props(), absl::StrCat(annotation::kOpsetPrefix, domain),
                    absl::StrCat(version));
      }
    }
    return status_;
  }

 private:
  void EncodeNodes(const std::vector<NodeId>& order, onnx::GraphProto& proto) {
    std::vector<int> node_ranks(graph_.node_capacity());
    int rank = 0;
    for (const NodeId id : graph_.node_ids()) node_ranks[id.value] = rank++;
    for (const NodeId id : order) {
      const Node& node = graph_.node(id);
      EncodeNode(node, node_ranks[id.value], *proto.add_node());
      for (const ValueId output : node.outputs) {
        if (output.valid()) EncodeValue(output, options_.annotations, *proto.add_value_info());
      }
    }
  }

  void EncodeNode(const Node& node, int rank, onnx::NodeProto& proto) {
    for (const ValueId input : node.inputs) proto.add_input(NameOf(input));
    for (const ValueId output : node.outputs) proto.add_output(NameOf(output));
    proto.set_name(node.name);
    proto.set_op_type(node.op);
    if (!node.domain.empty()) proto.set_domain(node.domain);
    const auto encode_subgraph = [this](const Graph& subgraph) {
      onnx::GraphProto encoded;
      const absl::Status status = GraphEncoder(subgraph, options_).Encode(encoded);
      if (status_.ok()) status_ = status;
      return encoded;
    };
    for (const auto& [name, attribute] : node.attributes.items()) {
      *proto.add_attribute() = EncodeAttribute(name, attribute, encode_subgraph);
    }
    if (!options_.annotations) return;
    PropertyList& properties = *proto.mutable_metadata_props();
    AddProperty(properties, annotation::kId, absl::StrCat(rank));
    if (node.phase != Phase::kForward) {
      AddProperty(properties, annotation::kPhase, std::string(PhaseName(node.phase)));
    }
    if (node.stage.valid()) {
      AddProperty(properties, annotation::kStage, absl::StrCat(node.stage.value));
    }
    AddOrigin(node.origin, properties);
  }

  void EncodeConstants(onnx::GraphProto& proto) {
    for (const ValueId id : graph_.value_ids()) {
      const ValueDef& value = graph_.value(id);
      if (value.source != ValueSource::kConstant) continue;
      *proto.add_initializer() = EncodeTensor(value.name, value.constant);
      if (options_.annotations) EncodeValue(id, true, *proto.add_value_info());
    }
  }

  void EncodeInput(ValueId input, onnx::GraphProto& proto) {
    onnx::ValueInfoProto& info = *proto.add_input();
    EncodeValue(input, options_.annotations, info);
    if (options_.annotations && graph_.input_role(input) == InputRole::kStep) {
      AddProperty(*info.mutable_metadata_props(), annotation::kRole, "step");
    }
  }

  void EncodeVariable(size_t index, onnx::GraphProto& proto) {
    const Variable& variable = graph_.variables()[index];
    const bool has_weights = options_.weights && variable.initial.valid();
    if (!options_.weights_beside.empty()) {
      EncodeBeside(variable, offsets_[index], *proto.add_initializer());
      if (!options_.annotations) return;
    } else if (has_weights) {
      *proto.add_initializer() = EncodeTensor(NameOf(variable.value), variable.initial);
      if (!options_.annotations) return;
    }
    onnx::ValueInfoProto& info = *proto.add_input();
    EncodeValue(variable.value, options_.annotations, info);
    if (!options_.annotations) return;
    PropertyList& properties = *info.mutable_metadata_props();
    AddProperty(properties, annotation::kVariable, variable.name);
    AddProperty(properties, annotation::kVariableIndex, absl::StrCat(index));
    if (variable.trainable) AddProperty(properties, annotation::kTrainable, "1");
    if (!variable.slot_of.empty()) AddProperty(properties, annotation::kSlotOf, variable.slot_of);
    if (variable.update.valid()) {
      AddProperty(properties, annotation::kUpdate, NameOf(variable.update));
    }
  }

  void EncodeBeside(const Variable& variable, int64_t offset, onnx::TensorProto& proto) const {
    proto.set_name(NameOf(variable.value));
    proto.set_data_type(static_cast<int32_t>(graph_.value(variable.value).type.dtype));
    const Shape shape = ShapeOf(graph_, variable);
    for (const int64_t dim : shape.dims()) proto.add_dims(dim);
    proto.set_data_location(onnx::TensorProto::EXTERNAL);
    PropertyList& entries = *proto.mutable_external_data();
    AddProperty(entries, "location", options_.weights_beside);
    AddProperty(entries, "offset", absl::StrCat(offset));
    AddProperty(entries, "length", absl::StrCat(BytesOf(graph_, variable)));
  }

  void EncodeValue(ValueId id, bool annotate, onnx::ValueInfoProto& proto) {
    const ValueDef& value = graph_.value(id);
    proto.set_name(value.name);
    *proto.mutable_type() = EncodeType(value.type);
    if (!annotate) return;
    AddProperty(*proto.mutable_metadata_props(), annotation::kId, absl::StrCat(ranks_[id.value]));
    AddOrigin(value.origin, *proto.mutable_metadata_props());
    if (value.placement.has_value()) {
      AddProperty(*proto.mutable_metadata_props(), annotation::kPlacement,
                  absl::StrCat(absl::StrJoin(value.placement->global_shape.dims(), ","), ";",
                               absl::StrJoin(value.placement->offset, ",")));
    }
  }

  std::string NameOf(ValueId id) const { return id.valid() ? graph_.value(id).name : ""; }

  const Graph& graph_;
  const GraphToOnnxOptions& options_;
  std::vector<int> ranks_;              // by ValueId: place among the live ones
  const std::vector<int64_t> offsets_;  // of OffsetsBeside, where they are written
  absl::Status status_;                 // the first error of a subgraph
};

// Domains of all nodes, also of subgraphs.
void CollectDomains(const Graph& graph, std::set<std::string>& domains) {
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    domains.insert(node.domain);
    for (const auto& [name, attribute] : node.attributes.items()) {
      const auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (subgraph != nullptr) CollectDomains(**subgraph, domains);
    }
  }
}

}  // namespace

std::vector<int64_t> OffsetsBeside(const Graph& graph) {
  std::vector<int64_t> offsets;
  int64_t end = 0;
  for (const Variable& variable : graph.variables()) {
    offsets.push_back((end + kBesideAlignment - 1) / kBesideAlignment * kBesideAlignment);
    end = offsets.back() + BytesOf(graph, variable);
  }
  offsets.push_back(end);
  return offsets;
}

absl::StatusOr<std::string> GraphToOnnx(const Graph& graph, const GraphToOnnxOptions& options) {
  onnx::ModelProto model;
  model.set_producer_name("weft");
  int64_t ir_version = options.annotations ? kIrVersionOfAnnotations : kIrVersionOfGraphs;
  std::set<std::string> domains = {""};
  CollectDomains(graph, domains);
  for (const std::string& domain : domains) {
    onnx::OperatorSetIdProto& opset = *model.add_opset_import();
    opset.set_domain(domain);
    const auto imported = graph.opsets.find(domain);
    const bool known = imported != graph.opsets.end() && imported->second > 0;
    opset.set_version(domain.empty() ? options.opset : known ? imported->second : 1);
    ir_version = std::max(ir_version, IrVersionOfOpset(domain, opset.version()));
  }
  model.set_ir_version(ir_version);
  WEFT_RETURN_IF_ERROR(GraphEncoder(graph, options).Encode(*model.mutable_graph()));
  std::string bytes;
  if (model.ByteSizeLong() < (size_t{1} << 31) && model.SerializeToString(&bytes)) return bytes;
  return absl::ResourceExhaustedError(
      absl::StrCat("the graph takes ", model.ByteSizeLong(),
                   " bytes, more than the 2 GiB of an ONNX file; write it without weights"));
}

}  // namespace weft
