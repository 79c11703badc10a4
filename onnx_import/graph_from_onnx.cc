#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "graph/schema_check.h"
#include "onnx_import/annotations.h"
#include "onnx_import/codec/attribute_codec.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/operator_check.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/tensor_codec.h"
#include "onnx_import/codec/type_codec.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/codec/wire_scan.h"
#include "onnx_import/graph_wire.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status Invalid(const std::string& text) { return absl::InvalidArgumentError(text); }

// metadata_props by key; the last of equal keys counts.
class Properties {
 public:
  explicit Properties(
      const google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>& entries)
      : entries_(entries) {}

  const std::string* Find(absl::string_view key) const {
    const std::string* found = nullptr;
    for (const onnx::StringStringEntryProto& entry : entries_) {
      if (entry.key() == key) found = &entry.value();
    }
    return found;
  }
  bool Has(absl::string_view key) const { return Find(key) != nullptr; }
  std::string Get(absl::string_view key) const {
    const std::string* found = Find(key);
    return found == nullptr ? "" : *found;
  }
  // A number from 0 on; `fallback` when the key is absent.
  absl::StatusOr<int32_t> Number(absl::string_view key, int32_t fallback) const {
    const std::string* found = Find(key);
    if (found == nullptr) return fallback;
    int32_t number = 0;
    if (absl::SimpleAtoi(*found, &number) && number >= 0) return number;
    return Invalid(absl::StrCat("its metadata ", key, " is ", Quoted(*found),
                                ", expected a number from 0 on"));
  }
  // What a value's annotations say beside its type. InvalidArgument when they are malformed.
  absl::Status FillValue(ValueDef& value) const;
  Origin GetOrigin() const {
    return {Get(annotation::kOrigin), Get(annotation::kLogicalValue), Has(annotation::kGradient)};
  }

 private:
  const google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>& entries_;
};

// Numbers from 0 on with commas between; nothing for "".
absl::StatusOr<std::vector<int64_t>> ParseSizes(absl::string_view text) {
  std::vector<int64_t> sizes;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 0 || size > kMaxDim) {
      return Invalid(absl::StrCat(Quoted(std::string(text)), " is no list of sizes"));
    }
    sizes.push_back(size);
  }
  return sizes;
}

absl::Status Properties::FillValue(ValueDef& value) const {
  value.origin = GetOrigin();
  const std::string* text = Find(annotation::kPlacement);
  if (text == nullptr) return absl::OkStatus();
  const std::vector<std::string> parts = absl::StrSplit(*text, ';');
  if (parts.size() != 2) {
    return Invalid(absl::StrCat("value ", Quoted(value.name), ": its placement ", Quoted(*text),
                                " is not SHAPE;OFFSET"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, ParseSizes(parts[0]));
  ShardSlice placement;
  WEFT_ASSIGN_OR_RETURN(placement.global_shape, Shape::Create(dims));
  WEFT_ASSIGN_OR_RETURN(placement.offset, ParseSizes(parts[1]));
  const bool ranks_agree = value.type.shape.has_rank() &&
                           value.type.shape.rank() == placement.global_shape.rank() &&
                           placement.offset.size() == dims.size();
  if (!ranks_agree) {
    return Invalid(absl::StrCat("value ", Quoted(value.name), ", ", value.type.ToString(),
                                ": its placement ", Quoted(*text), " has another rank"));
  }
  value.placement = std::move(placement);
  return absl::OkStatus();
}

std::optional<Phase> ParsePhase(const std::string& name) {
  for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kUpdate, Phase::kBegin}) {
    if (name == PhaseName(phase)) return phase;
  }
  return std::nullopt;
}

// A graph input, variable or constant before it is made.
struct PendingValue {
  int32_t id = 0;  // place among all values
  const onnx::ValueInfoProto* info = nullptr;
  const onnx::TensorProto* tensor = nullptr;
  bool is_input = false;
};

struct PendingNode {
  int32_t id = 0;
  const onnx::NodeProto* proto = nullptr;
};

class GraphDecoder {
 public:
  GraphDecoder(const onnx::GraphProto& proto, const TensorSource& source)
      : proto_(proto), source_(source) {}

  absl::StatusOr<Graph> Decode();

 private:
  absl::Status CollectValues();
  absl::Status CollectNodes();
  absl::Status MakeValue(const PendingValue& pending);
  absl::Status MakeVariable(const PendingValue& pending, const Properties& properties,
                            ValueType type, Tensor initial);
  absl::Status MakeNode(const onnx::NodeProto& proto);
  absl::Status MakeAll();
  absl::Status ConnectNodes();
  absl::Status FinishVariables();
  absl::Status FinishGraph();
  // The place of the node's first output among all values; INT32_MAX when it has none.
  absl::StatusOr<int32_t> FirstOutput(const onnx::NodeProto& node) const;
  absl::StatusOr<ValueId> Find(const std::string& name) const;

  const onnx::GraphProto& proto_;
  const TensorSource& source_;
  Graph graph_;
  absl::flat_hash_map<absl::string_view, const onnx::ValueInfoProto*> infos_;
  std::vector<PendingValue> values_;
  std::vector<PendingNode> nodes_;
  std::vector<std::pair<NodeId, const onnx::NodeProto*>> made_;
  std::map<std::string, int32_t> variable_places_;            // by variable name
  std::vector<std::pair<std::string, std::string>> updates_;  // variable name, value name
};

absl::StatusOr<ValueId> GraphDecoder::Find(const std::string& name) const {
  const std::optional<ValueId> value = graph_.FindValue(name);
  if (value) return *value;
  return Invalid(absl::StrCat("value ", Quoted(name), " is used but not defined"));
}

absl::Status GraphDecoder::CollectValues() {
  for (const onnx::ValueInfoProto& info : proto_.value_info()) infos_[info.name()] = &info;
  absl::flat_hash_map<absl::string_view, const onnx::TensorProto*> tensors;
  for (const onnx::TensorProto& tensor : proto_.initializer()) tensors[tensor.name()] = &tensor;
  for (const onnx::ValueInfoProto& info : proto_.input()) {
    infos_[info.name()] = &info;
    const auto tensor = tensors.find(info.name());
    values_.push_back({0, &info, tensor == tensors.end() ? nullptr : tensor->second, true});
    if (tensor != tensors.end()) tensors.erase(tensor);
  }
  for (const onnx::TensorProto& tensor : proto_.initializer()) {
    if (!tensors.contains(tensor.name())) continue;
    const auto info = infos_.find(tensor.name());
    values_.push_back({0, info == infos_.end() ? nullptr : info->second, &tensor, false});
  }
  for (PendingValue& value : values_) {
    if (value.info == nullptr) continue;
    WEFT_ASSIGN_OR_RETURN(value.id,
                          Properties(value.info->metadata_props()).Number(annotation::kId, 0));
  }
  std::stable_sort(values_.begin(), values_.end(),
                   [](const PendingValue& a, const PendingValue& b) { return a.id < b.id; });
  return absl::OkStatus();
}

absl::Status GraphDecoder::CollectNodes() {
  for (int i = 0; i < proto_.node_size(); ++i) {
    const Properties properties(proto_.node(i).metadata_props());
    const absl::StatusOr<int32_t> id = properties.Number(annotation::kId, i);
    if (!id.ok()) return Annotate(id.status(), NodeLabel(proto_.node(i), i));
    nodes_.push_back({*id, &proto_.node(i)});
  }
  std::stable_sort(nodes_.begin(), nodes_.end(),
                   [](const PendingNode& a, const PendingNode& b) { return a.id < b.id; });
  return absl::OkStatus();
}

absl::Status GraphDecoder::MakeVariable(const PendingValue& pending, const Properties& properties,
                                        ValueType type, Tensor initial) {
  const ValueType initial_type{ValueKind::kTensor, initial.dtype(), initial.shape()};
  if (initial.valid() && !(type == initial_type)) {
    return Invalid(absl::StrCat("variable ", Quoted(pending.info->name()), " is ", type.ToString(),
                                " but its value is ", initial_type.ToString()));
  }
  const ValueId id = graph_.AddVariable(pending.info->name(), std::move(type), std::move(initial),
                                        properties.Has(annotation::kTrainable));
  Variable& variable = graph_.mutable_variables().back();
  variable.name = properties.Get(annotation::kVariable);
  variable.slot_of = properties.Get(annotation::kSlotOf);
  WEFT_RETURN_IF_ERROR(properties.FillValue(graph_.value(id)));
  const std::string update = properties.Get(annotation::kUpdate);
  if (!update.empty()) updates_.emplace_back(variable.name, update);
  WEFT_ASSIGN_OR_RETURN(const int32_t place, properties.Number(annotation::kVariableIndex, 0));
  if (variable.name.empty() || !variable_places_.emplace(variable.name, place).second) {
    return Invalid(
        absl::StrCat("variable name ", Quoted(variable.name), " is empty or occurs twice"));
  }
  return absl::OkStatus();
}

absl::Status GraphDecoder::MakeValue(const PendingValue& pending) {
  Tensor tensor;
  if (pending.tensor != nullptr) {
    absl::StatusOr<Tensor> decoded = DecodeTensor(*pending.tensor, source_);
    if (!decoded.ok()) {
      return Annotate(decoded.status(), absl::StrCat("tensor ", Quoted(pending.tensor->name())));
    }
    tensor = *std::move(decoded);
  }
  if (!pending.is_input) {
    const ValueId id = graph_.AddConstant(pending.tensor->name(), std::move(tensor));
    if (pending.info != nullptr) {
      WEFT_RETURN_IF_ERROR(Properties(pending.info->metadata_props()).FillValue(graph_.value(id)));
    }
    return absl::OkStatus();
  }
  const Properties properties(pending.info->metadata_props());
  absl::StatusOr<ValueType> type = DecodeType(pending.info->type());
  if (!type.ok()) {
    return Annotate(type.status(), absl::StrCat("graph input ", Quoted(pending.info->name())));
  }
  if (properties.Has(annotation::kVariable)) {
    return MakeVariable(pending, properties, *std::move(type), std::move(tensor));
  }
  const bool step = properties.Get(annotation::kRole) == "step";
  const ValueId id = graph_.AddInput(pending.info->name(), *std::move(type),
                                     step ? InputRole::kStep : InputRole::kData);
  return properties.FillValue(graph_.value(id));
}

absl::Status GraphDecoder::MakeNode(const onnx::NodeProto& proto) {
  const Properties properties(proto.metadata_props());
  Graph::NodeSpec spec;
  spec.name = proto.name();
  spec.domain = NormalizedDomain(proto.domain());
  spec.op = proto.op_type();
  spec.outputs.assign(proto.output().begin(), proto.output().end());
  spec.keep_empty_outputs = true;
  spec.origin = properties.GetOrigin();
  WEFT_ASSIGN_OR_RETURN(spec.stage.value, properties.Number(annotation::kStage, -1));
  if (const std::string* phase = properties.Find(annotation::kPhase)) {
    const std::optional<Phase> parsed = ParsePhase(*phase);
    if (!parsed) return Invalid(absl::StrCat("its phase ", Quoted(*phase), " does not exist"));
    spec.phase = *parsed;
  }
  const auto decode_subgraph =
      [this](const onnx::GraphProto& graph) -> absl::StatusOr<std::shared_ptr<Graph>> {
    WEFT_ASSIGN_OR_RETURN(Graph subgraph, GraphDecoder(graph, source_).Decode());
    return std::make_shared<Graph>(std::move(subgraph));
  };
  for (const onnx::AttributeProto& attribute : proto.attribute()) {
    WEFT_RETURN_IF_ERROR(
        DecodeAttribute(attribute.name(), attribute, source_, decode_subgraph, spec.attributes));
  }
  if (!proto.name().empty() && graph_.FindNode(proto.name())) {
    return Invalid("another node has the same name");
  }
  const Node& node = graph_.node(graph_.AddNode(std::move(spec)));
  for (const ValueId output : node.outputs) {
    if (!output.valid()) continue;
    ValueDef& value = graph_.value(output);
    const auto info = infos_.find(value.name);
    if (info == infos_.end()) continue;
    WEFT_ASSIGN_OR_RETURN(value.type, DecodeType(info->second->type()));
    WEFT_RETURN_IF_ERROR(Properties(info->second->metadata_props()).FillValue(value));
  }
  made_.emplace_back(node.id, &proto);
  return absl::OkStatus();
}

absl::StatusOr<int32_t> GraphDecoder::FirstOutput(const onnx::NodeProto& node) const {
  int32_t first = std::numeric_limits<int32_t>::max();
  for (const std::string& output : node.output()) {
    const auto info = infos_.find(output);
    if (info == infos_.end()) continue;
    WEFT_ASSIGN_OR_RETURN(
        const int32_t place,
        Properties(info->second->metadata_props()).Number(annotation::kId, first));
    first = std::min(first, place);
  }
  return first;
}

// Values and nodes in the order of their ids: a node's outputs are made with it.
absl::Status GraphDecoder::MakeAll() {
  size_t next = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const std::string label = NodeLabel(*nodes_[i].proto, static_cast<int>(i));
    const absl::StatusOr<int32_t> first = FirstOutput(*nodes_[i].proto);
    if (!first.ok()) return Annotate(first.status(), label);
    while (next < values_.size() && values_[next].id < *first) {
      WEFT_RETURN_IF_ERROR(MakeValue(values_[next++]));
    }
    const absl::Status status = MakeNode(*nodes_[i].proto);
    if (!status.ok()) return Annotate(status, label);
  }
  while (next < values_.size()) WEFT_RETURN_IF_ERROR(MakeValue(values_[next++]));
  return absl::OkStatus();
}

absl::Status GraphDecoder::ConnectNodes() {
  for (const auto& [id, proto] : made_) {
    std::vector<ValueId> inputs;
    for (const std::string& input : proto->input()) {
      ValueId value = kNoValue;
      if (!input.empty()) {
        const absl::StatusOr<ValueId> found = Find(input);
        if (!found.ok()) return Annotate(found.status(), NodeLabel(*proto, id.value));
        value = *found;
      }
      inputs.push_back(value);
    }
    graph_.node(id).inputs = std::move(inputs);
    WEFT_RETURN_IF_ERROR(CheckNodeAgainstSchema(graph_, graph_.node(id)));
  }
  return absl::OkStatus();
}

absl::Status GraphDecoder::FinishVariables() {
  std::vector<Variable>& variables = graph_.mutable_variables();
  std::stable_sort(variables.begin(), variables.end(),
                   [this](const Variable& a, const Variable& b) {
                     return variable_places_[a.name] < variable_places_[b.name];
                   });
  for (const auto& [variable, update] : updates_) {
    WEFT_ASSIGN_OR_RETURN(const ValueId value, Find(update));
    graph_.SetVariableUpdate(variable, value);
  }
  return absl::OkStatus();
}

absl::Status GraphDecoder::FinishGraph() {
  const Properties properties(proto_.metadata_props());
  graph_.name = properties.Has(annotation::kUnnamed) ? "" : proto_.name();
  const absl::string_view prefix = annotation::kOpsetPrefix;
  for (const onnx::StringStringEntryProto& entry : proto_.metadata_props()) {
    if (!absl::StartsWith(entry.key(), prefix)) continue;
    WEFT_ASSIGN_OR_RETURN(const int32_t version, properties.Number(entry.key(), 0));
    graph_.opsets[entry.key().substr(prefix.size())] = version;
  }
  for (const onnx::ValueInfoProto& output : proto_.output()) {
    WEFT_ASSIGN_OR_RETURN(const ValueId value, Find(output.name()));
    graph_.AddOutput(value);
  }
  return graph_.TopologicalOrder().status();
}

absl::StatusOr<Graph> GraphDecoder::Decode() {
  WEFT_RETURN_IF_ERROR(CollectValues());
  WEFT_RETURN_IF_ERROR(CollectNodes());
  WEFT_RETURN_IF_ERROR(MakeAll());
  WEFT_RETURN_IF_ERROR(ConnectNodes());
  WEFT_RETURN_IF_ERROR(FinishVariables());
  WEFT_RETURN_IF_ERROR(FinishGraph());
  return std::move(graph_);
}

absl::StatusOr<Graph> Decode(std::string_view bytes) {
  auto model = std::make_shared<onnx::ModelProto>();
  WEFT_RETURN_IF_ERROR(ParseWire(bytes, WireLimits{}, *model));
  WEFT_RETURN_IF_ERROR(ValidateModel(*model));
  WEFT_RETURN_IF_ERROR(CheckOperators(*model));
  const TensorSource source{model, nullptr};
  return GraphDecoder(model->graph(), source).Decode();
}

}  // namespace

absl::StatusOr<Graph> GraphFromOnnx(std::string_view bytes) {
  absl::StatusOr<Graph> graph = Decode(bytes);
  if (!graph.ok()) return Printable(Annotate(graph.status(), "graph in ONNX form"));
  return graph;
}

}  // namespace weft
