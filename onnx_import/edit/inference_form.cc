#include "onnx_import/edit/inference_form.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/codec/wire_reader.h"
#include "onnx_import/edit/wire_fields.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tensor/dtype.h"

namespace weft {
namespace {

// Operator sets in which the two changed.
constexpr int64_t kModeFromOutputs = 7;   // before it is_test says it
constexpr int64_t kModeIsInput = 12;      // of Dropout
constexpr int64_t kModeIsAttribute = 14;  // of BatchNormalization
constexpr int kModeInput = 2;
constexpr char kIsTest[] = "is_test";
constexpr char kTrainingModeAttribute[] = "training_mode";

bool IsOperator(const onnx::NodeProto& node, std::string_view op) {
  return node.op_type() == op && NormalizedDomain(node.domain()).empty();
}

int64_t IntAttribute(const onnx::NodeProto& node, std::string_view name) {
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == name) return attribute.i();
  }
  return 0;
}

void SetIntAttribute(onnx::NodeProto& node, const std::string& name, int64_t value) {
  for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
    if (attribute.name() == name) return attribute.set_i(value);
  }
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
}

void EraseAttribute(onnx::NodeProto& node, std::string_view name) {
  for (int i = node.attribute_size() - 1; i >= 0; --i) {
    if (node.attribute(i).name() == name) node.mutable_attribute()->DeleteSubrange(i, 1);
  }
}

bool UsesBatchStatistics(const onnx::NodeProto& node, int64_t opset) {
  if (!IsOperator(node, "BatchNormalization")) return false;
  if (opset >= kModeIsAttribute) return IntAttribute(node, kTrainingModeAttribute) != 0;
  return std::any_of(node.output().begin() + std::min(node.output_size(), 1), node.output().end(),
                     [](const std::string& output) { return !output.empty(); });
}

// Unless the input is the constant false.
bool MayDrop(const onnx::NodeProto& node, int64_t opset) {
  if (!IsOperator(node, "Dropout")) return false;
  if (opset >= kModeIsInput) {
    return node.input_size() > kModeInput && !node.input(kModeInput).empty();
  }
  return opset < kModeFromOutputs && IntAttribute(node, kIsTest) == 0;
}

// The version of ONNX's own operator set among encoded OperatorSetIdProto.
class OpsetVersion {
 public:
  explicit OpsetVersion(int64_t usual) : version_(usual) {}
  void Read(std::string_view bytes) {
    onnx::OperatorSetIdProto proto;
    if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
    if (NormalizedDomain(proto.domain()).empty()) version_ = proto.version();
  }
  int64_t version() const { return version_; }

 private:
  int64_t version_;
};

using NameMap = absl::flat_hash_map<std::string, std::string>;
using NameCounts = absl::flat_hash_map<std::string, int>;

// A node as far as it is needed: attributes are decoded of those that may change.
struct NodePart {
  onnx::NodeProto proto;
  bool has_body = false;
  bool is_changed = false;
};

absl::StatusOr<NodePart> ReadNode(std::string_view bytes) {
  NodePart part;
  std::string rest;
  WEFT_RETURN_IF_ERROR(ForEachField(bytes, [&](const WireField& field) -> absl::Status {
    if (field.number != field_of::kNodeAttribute) {
      rest.append(field.whole);
      return absl::OkStatus();
    }
    part.has_body = part.has_body ||
                    FieldWithBytes(field.payload, field_of::kAttributeGraph).has_value() ||
                    FieldWithBytes(field.payload, field_of::kAttributeGraphs).has_value();
    return absl::OkStatus();
  }));
  bool parsed = part.proto.ParseFromString(rest);
  const bool may_change =
      IsOperator(part.proto, "BatchNormalization") || IsOperator(part.proto, "Dropout");
  if (parsed && may_change) {
    parsed = part.proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  }
  if (parsed) return part;
  return absl::InvalidArgumentError("a node cannot be read");
}

// What differs between a graph and a function.
struct BodyFields {
  int node = field_of::kGraphNode;
  int output = field_of::kGraphOutput;
  bool is_function = false;

  std::string OutputName(std::string_view payload) const {
    if (is_function) return std::string(payload);
    return std::string(FieldWithBytes(payload, field_of::kValueInfoName).value_or(""));
  }
  // Of an initializer or input of a graph; else "".
  std::string DefinedName(const WireField& field) const {
    if (is_function) return "";
    int name = 0;
    if (field.number == field_of::kGraphInitializer) name = field_of::kTensorName;
    if (field.number == field_of::kGraphInput) name = field_of::kValueInfoName;
    return name == 0 ? "" : std::string(FieldWithBytes(field.payload, name).value_or(""));
  }
};

// Makes each name lead to one that is renamed no more.
void FollowRenames(NameMap& renamed) {
  for (auto& [name, target] : renamed) {
    for (size_t i = 0; i < renamed.size(); ++i) {
      const auto next = renamed.find(target);
      if (next == renamed.end() || next->second == target) break;
      target = next->second;
    }
  }
}

// Counts what the nodes and outputs of a graph read, bodies included.
absl::Status CountReads(std::string_view bytes, const BodyFields& fields, NameCounts& reads) {
  return ForEachField(bytes, [&](const WireField& field) -> absl::Status {
    if (field.number == fields.output) ++reads[fields.OutputName(field.payload)];
    if (field.number != fields.node) return absl::OkStatus();
    return ForEachField(field.payload, [&](const WireField& part) -> absl::Status {
      if (part.number == field_of::kNodeInput) ++reads[std::string(part.payload)];
      if (part.number != field_of::kNodeAttribute) return absl::OkStatus();
      return ForEachField(part.payload, [&](const WireField& value) -> absl::Status {
        const bool is_graph =
            value.number == field_of::kAttributeGraph || value.number == field_of::kAttributeGraphs;
        return is_graph ? CountReads(value.payload, BodyFields(), reads) : absl::OkStatus();
      });
    });
  });
}

class InferenceWriter {
 public:
  // `dry`: makes no copy of what does not change.
  explicit InferenceWriter(bool dry) : dry_(dry) {}

  absl::Status Model(std::string_view bytes, std::string& out);

 private:
  absl::Status Function(std::string_view bytes, std::string& out);
  // What a graph or function becomes.
  struct BodyParts {
    std::vector<NodePart> nodes;
    std::set<std::string> outputs;
    NameMap renamed;                // what readers of a name read instead
    std::set<std::string> dropped;  // tensors that nobody reads any more
  };
  absl::StatusOr<BodyParts> ReadBody(std::string_view bytes, const BodyFields& fields,
                                     const NameMap& outer, bool is_main);
  absl::Status Body(std::string_view bytes, const BodyFields& fields, const NameMap& outer,
                    bool is_main, std::string& out);
  absl::Status Rewrite(const NameCounts& reads, NodePart& part, NameMap& renamed);
  absl::Status RewriteNormalization(const NameCounts& reads, NodePart& part, NameMap& renamed);
  void RewriteDropout(NodePart& part);
  absl::Status Node(std::string_view bytes, const NodePart& part, const NameMap& renamed,
                    std::string& out);
  absl::Status Attribute(std::string_view bytes, const NameMap& renamed, std::string& out);
  bool IsDropped(const WireField& field, const std::set<std::string>& dropped) const;
  void Copy(const WireField& field, std::string& out) const {
    if (!dry_) out.append(field.whole);
  }

  const bool dry_;
  int64_t opset_ = 0;
  // Mode inputs that nodes of the body at hand have lost.
  std::vector<std::string> lost_;
};

absl::Status InferenceWriter::Model(std::string_view bytes, std::string& out) {
  OpsetVersion opset(0);
  WEFT_RETURN_IF_ERROR(ForEachField(bytes, [&](const WireField& field) {
    if (field.number == field_of::kModelOpset) opset.Read(field.payload);
    return absl::OkStatus();
  }));
  if (!dry_) out.reserve(bytes.size());
  return ForEachField(bytes, [&](const WireField& field) -> absl::Status {
    const bool is_graph = field.number == field_of::kModelGraph;
    if (!is_graph && field.number != field_of::kModelFunction) {
      Copy(field, out);
      return absl::OkStatus();
    }
    opset_ = opset.version();
    std::string payload;
    if (is_graph) {
      if (!dry_) payload.reserve(field.payload.size());
      WEFT_RETURN_IF_ERROR(Body(field.payload, {}, {}, /*is_main=*/true, payload));
    } else {
      WEFT_RETURN_IF_ERROR(Function(field.payload, payload));
    }
    AppendBytesField(field.number, payload, out);
    return absl::OkStatus();
  });
}

absl::Status InferenceWriter::Function(std::string_view bytes, std::string& out) {
  OpsetVersion opset(opset_);
  WEFT_RETURN_IF_ERROR(ForEachField(bytes, [&](const WireField& field) {
    if (field.number == field_of::kFunctionOpset) opset.Read(field.payload);
    return absl::OkStatus();
  }));
  opset_ = opset.version();
  const BodyFields fields = {field_of::kFunctionNode, field_of::kFunctionOutput, true};
  return Body(bytes, fields, {}, /*is_main=*/false, out);
}

absl::StatusOr<InferenceWriter::BodyParts> InferenceWriter::ReadBody(std::string_view bytes,
                                                                     const BodyFields& fields,
                                                                     const NameMap& outer,
                                                                     bool is_main) {
  NameCounts reads;
  WEFT_RETURN_IF_ERROR(CountReads(bytes, fields, reads));
  BodyParts parts;
  parts.renamed = outer;
  lost_.clear();
  WEFT_RETURN_IF_ERROR(ForEachField(bytes, [&](const WireField& field) -> absl::Status {
    if (field.number == fields.output) parts.outputs.insert(fields.OutputName(field.payload));
    if (!outer.empty()) parts.renamed.erase(fields.DefinedName(field));
    if (field.number != fields.node) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(NodePart part, ReadNode(field.payload));
    for (const std::string& output : part.proto.output()) parts.renamed.erase(output);
    WEFT_RETURN_IF_ERROR(Rewrite(reads, part, parts.renamed));
    parts.nodes.push_back(std::move(part));
    return absl::OkStatus();
  }));
  FollowRenames(parts.renamed);
  for (const std::string& name : lost_) {
    if (is_main && --reads[name] == 0) parts.dropped.insert(name);
  }
  return parts;
}

absl::Status InferenceWriter::Body(std::string_view bytes, const BodyFields& fields,
                                   const NameMap& outer, bool is_main, std::string& out) {
  WEFT_ASSIGN_OR_RETURN(const BodyParts parts, ReadBody(bytes, fields, outer, is_main));
  size_t node = 0;
  WEFT_RETURN_IF_ERROR(ForEachField(bytes, [&](const WireField& field) -> absl::Status {
    if (!parts.dropped.empty() && IsDropped(field, parts.dropped)) {
      node += field.number == fields.node;
      return absl::OkStatus();
    }
    if (field.number != fields.node) {
      Copy(field, out);
      return absl::OkStatus();
    }
    std::string payload;
    WEFT_RETURN_IF_ERROR(Node(field.payload, parts.nodes[node++], parts.renamed, payload));
    AppendBytesField(fields.node, payload, out);
    return absl::OkStatus();
  }));
  // Outputs that were running statistics.
  for (const std::string& output : parts.outputs) {
    const auto source = parts.renamed.find(output);
    if (source == parts.renamed.end()) continue;
    onnx::NodeProto copy;
    copy.set_op_type("Identity");
    copy.set_name(absl::StrCat(output, "/kept"));
    copy.add_input(source->second);
    copy.add_output(output);
    AppendBytesField(fields.node, copy.SerializeAsString(), out);
  }
  return absl::OkStatus();
}

// An initializer, Constant or input of the main graph by one of these names.
bool InferenceWriter::IsDropped(const WireField& field,
                                const std::set<std::string>& dropped) const {
  std::string name = BodyFields().DefinedName(field);
  if (field.number == field_of::kGraphNode) {
    const absl::StatusOr<NodePart> part = ReadNode(field.payload);
    const bool is_constant =
        part.ok() && IsOperator(part->proto, "Constant") && part->proto.output_size() == 1;
    if (is_constant) name = part->proto.output(0);
  }
  return !name.empty() && dropped.count(name) > 0;
}

absl::Status InferenceWriter::Rewrite(const NameCounts& reads, NodePart& part, NameMap& renamed) {
  if (MayDrop(part.proto, opset_)) RewriteDropout(part);
  if (!UsesBatchStatistics(part.proto, opset_)) return absl::OkStatus();
  return RewriteNormalization(reads, part, renamed);
}

void InferenceWriter::RewriteDropout(NodePart& part) {
  onnx::NodeProto& node = part.proto;
  part.is_changed = true;
  if (opset_ < kModeIsInput) return SetIntAttribute(node, kIsTest, 1);
  lost_.push_back(node.input(kModeInput));
  node.set_input(kModeInput, "");
  while (node.input_size() > 1 && node.input(node.input_size() - 1).empty()) {
    node.mutable_input()->RemoveLast();
  }
}

absl::Status InferenceWriter::RewriteNormalization(const NameCounts& reads, NodePart& part,
                                                   NameMap& renamed) {
  onnx::NodeProto& node = part.proto;
  part.is_changed = true;
  const bool is_named = !node.name().empty() || node.output_size() == 0;
  const std::string label = absl::StrCat("node ", Quoted(is_named ? node.name() : node.output(0)),
                                         " (BatchNormalization)");
  for (int i = 1; i < node.output_size(); ++i) {
    const std::string& output = node.output(i);
    if (output.empty() || !reads.contains(output)) continue;
    if (i > 2) {
      return absl::UnimplementedError(
          absl::StrCat(label, ": its output ", Quoted(output),
                       ", a statistic of the batch, is read, and inference has none; export the "
                       "model without it"));
    }
    if (node.input_size() <= i + 2 || node.input(i + 2).empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(label, ": it has no input ", i + 2, " for its running statistics"));
    }
    renamed[output] = node.input(i + 2);  // in training perhaps an output of another node
  }
  while (node.output_size() > 1) node.mutable_output()->RemoveLast();
  EraseAttribute(node, kTrainingModeAttribute);
  if (opset_ < kModeFromOutputs) SetIntAttribute(node, kIsTest, 1);
  return absl::OkStatus();
}

absl::Status InferenceWriter::Node(std::string_view bytes, const NodePart& part,
                                   const NameMap& renamed, std::string& out) {
  std::string changed;
  if (part.is_changed) changed = part.proto.SerializeAsString();
  return ForEachField(part.is_changed ? changed : bytes,
                      [&](const WireField& field) -> absl::Status {
                        if (field.number == field_of::kNodeInput) {
                          const auto found = renamed.find(std::string(field.payload));
                          if (found != renamed.end()) {
                            AppendBytesField(field.number, found->second, out);
                            return absl::OkStatus();
                          }
                        }
                        if (field.number != field_of::kNodeAttribute || !part.has_body) {
                          Copy(field, out);
                          return absl::OkStatus();
                        }
                        std::string payload;
                        WEFT_RETURN_IF_ERROR(Attribute(field.payload, renamed, payload));
                        AppendBytesField(field.number, payload, out);
                        return absl::OkStatus();
                      });
}

absl::Status InferenceWriter::Attribute(std::string_view bytes, const NameMap& renamed,
                                        std::string& out) {
  return ForEachField(bytes, [&](const WireField& field) -> absl::Status {
    const bool is_graph =
        field.number == field_of::kAttributeGraph || field.number == field_of::kAttributeGraphs;
    if (!is_graph) {
      Copy(field, out);
      return absl::OkStatus();
    }
    std::string payload;
    WEFT_RETURN_IF_ERROR(Body(field.payload, {}, renamed, /*is_main=*/false, payload));
    AppendBytesField(field.number, payload, out);
    return absl::OkStatus();
  });
}

// Names of the main graph's constants that are false.
std::set<std::string> FalseConstants(const onnx::GraphProto& graph) {
  const auto is_false = [](const onnx::TensorProto& tensor) {
    if (tensor.data_type() != static_cast<int>(DType::kBool)) return false;
    if (!tensor.raw_data().empty()) return tensor.raw_data()[0] == 0;
    return tensor.int32_data_size() > 0 && tensor.int32_data(0) == 0;
  };
  std::set<std::string> names;
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    if (is_false(tensor)) names.insert(tensor.name());
  }
  for (const onnx::NodeProto& node : graph.node()) {
    const bool is_constant = IsOperator(node, "Constant") && node.output_size() == 1 &&
                             node.attribute_size() == 1 && node.attribute(0).has_t();
    if (is_constant && is_false(node.attribute(0).t())) names.insert(node.output(0));
  }
  return names;
}

void CountTrainingNodes(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes,
                        int64_t opset, const std::set<std::string>& false_constants,
                        TrainingModeNodes& count) {
  for (const onnx::NodeProto& node : nodes) {
    count.batch_normalizations += UsesBatchStatistics(node, opset);
    const bool is_off = opset >= kModeIsInput && node.input_size() > kModeInput &&
                        false_constants.count(node.input(kModeInput)) > 0;
    count.dropouts += MayDrop(node, opset) && !is_off;
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) {
        CountTrainingNodes(attribute.g().node(), opset, false_constants, count);
      }
      for (const onnx::GraphProto& graph : attribute.graphs()) {
        CountTrainingNodes(graph.node(), opset, false_constants, count);
      }
    }
  }
}

int64_t VersionAmong(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& opsets,
                     int64_t usual) {
  for (const onnx::OperatorSetIdProto& opset : opsets) {
    if (NormalizedDomain(opset.domain()).empty()) return opset.version();
  }
  return usual;
}

}  // namespace

TrainingModeNodes TrainingModeNodesOf(const ModelFile& file) {
  const onnx::ModelProto& model = *file.proto();
  const int64_t opset = VersionAmong(model.opset_import(), 0);
  TrainingModeNodes count;
  CountTrainingNodes(model.graph().node(), opset, FalseConstants(model.graph()), count);
  for (const onnx::FunctionProto& function : model.functions()) {
    CountTrainingNodes(function.node(), VersionAmong(function.opset_import(), opset), {}, count);
  }
  return count;
}

absl::StatusOr<std::string> WriteForInference(std::string_view bytes) {
  std::string out;
  WEFT_RETURN_IF_ERROR(InferenceWriter(/*dry=*/false).Model(bytes, out));
  return out;
}

absl::Status CheckInferenceForm(const ModelFile& file) {
  std::string out;
  return Annotate(InferenceWriter(/*dry=*/true).Model(file.bytes(), out), file.Label());
}

}  // namespace weft
