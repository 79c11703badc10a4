#include "onnx_import/codec/model_validator.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/type_codec.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using onnx::AttributeProto;
using Names = absl::flat_hash_set<absl::string_view>;

// Of any domain; versions count releases.
constexpr int64_t kMaxOpsetVersion = 1'000'000;
// Bytes. Messages and reports quote names; nothing that an exporter writes is as long.
constexpr size_t kMaxNameBytes = size_t{64} << 10;
constexpr size_t kMaxOpNameBytes = 1024;

absl::Status Invalid(const std::string& text) { return absl::InvalidArgumentError(text); }

// A bit per kind of contents that an attribute has, by AttributeType.
uint32_t ContentsOf(const AttributeProto& a) {
  const auto bit = [](bool present, AttributeProto::AttributeType type) {
    return present ? uint32_t{1} << type : 0;
  };
  return bit(a.has_f(), AttributeProto::FLOAT) | bit(a.has_i(), AttributeProto::INT) |
         bit(a.has_s(), AttributeProto::STRING) | bit(a.has_t(), AttributeProto::TENSOR) |
         bit(a.has_g(), AttributeProto::GRAPH) | bit(a.floats_size() > 0, AttributeProto::FLOATS) |
         bit(a.ints_size() > 0, AttributeProto::INTS) |
         bit(a.strings_size() > 0, AttributeProto::STRINGS) |
         bit(a.tensors_size() > 0, AttributeProto::TENSORS) |
         bit(a.graphs_size() > 0, AttributeProto::GRAPHS) |
         bit(a.has_sparse_tensor(), AttributeProto::SPARSE_TENSOR) |
         bit(a.sparse_tensors_size() > 0, AttributeProto::SPARSE_TENSORS) |
         bit(a.has_tp(), AttributeProto::TYPE_PROTO) |
         bit(a.type_protos_size() > 0, AttributeProto::TYPE_PROTOS);
}

absl::Status CheckLength(const char* what, const std::string& name, size_t limit) {
  if (name.size() <= limit) return absl::OkStatus();
  return Invalid(absl::StrCat(what, " ", Quoted(name), " has ", name.size(),
                              " bytes, expected at most ", limit, "; the file is damaged"));
}

// Subgraphs in one another that the node holds, at most. The scan of the bytes has bounded the
// recursion.
int NestingOf(const onnx::NodeProto& node) {
  int deepest = 0;
  const auto enter = [&deepest](const onnx::GraphProto& graph) {
    int inside = 0;
    for (const onnx::NodeProto& inner : graph.node()) inside = std::max(inside, NestingOf(inner));
    deepest = std::max(deepest, 1 + inside);
  };
  for (const AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g()) enter(attribute.g());
    for (const onnx::GraphProto& graph : attribute.graphs()) enter(graph);
  }
  return deepest;
}

// Said once, of the outermost node, and not by every level on the way.
absl::Status CheckNesting(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
  for (int i = 0; i < nodes.size(); ++i) {
    if (NestingOf(nodes[i]) <= kMaxNesting) continue;
    return Invalid(absl::StrCat(NodeLabel(nodes[i], i), ": subgraphs are nested more than ",
                                kMaxNesting, " deep in it; simplify the model's control flow"));
  }
  return absl::OkStatus();
}

class Validator {
 public:
  absl::Status ValidateGraph(const onnx::GraphProto& graph);
  absl::Status ValidateNodes(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes,
                             Names& defined, bool in_function);

 private:
  absl::Status ValidateNode(const onnx::NodeProto& node, Names& defined, bool in_function);
  absl::Status ValidateAttribute(const AttributeProto& attribute, bool in_function);
  static absl::Status ValidateValues(
      const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& values, const char* what,
      Names* defined);
};

absl::Status Validator::ValidateValues(
    const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& values, const char* what,
    Names* defined) {
  for (int i = 0; i < values.size(); ++i) {
    const onnx::ValueInfoProto& value = values[i];
    if (value.name().empty()) return Invalid(absl::StrCat(what, " ", i, " has no name"));
    WEFT_RETURN_IF_ERROR(CheckLength(what, value.name(), kMaxNameBytes));
    const std::string label = absl::StrCat(what, " ", Quoted(value.name()));
    if (defined != nullptr && !defined->insert(value.name()).second) {
      return Invalid(absl::StrCat(label, " occurs twice, expected unique names"));
    }
    const absl::Status status = DecodeType(value.type()).status();
    if (absl::IsInvalidArgument(status)) return Annotate(status, label);
  }
  return absl::OkStatus();
}

absl::Status Validator::ValidateGraph(const onnx::GraphProto& graph) {
  Names defined;
  WEFT_RETURN_IF_ERROR(ValidateValues(graph.input(), "graph input", &defined));
  WEFT_RETURN_IF_ERROR(ValidateValues(graph.output(), "graph output", nullptr));
  WEFT_RETURN_IF_ERROR(ValidateValues(graph.value_info(), "value", nullptr));
  Names initializers;
  const auto add_initializer = [&](const std::string& name) -> absl::Status {
    if (name.empty()) return Invalid("an initializer has no name");
    WEFT_RETURN_IF_ERROR(CheckLength("initializer", name, kMaxNameBytes));
    if (!initializers.insert(name).second) {
      return Invalid(absl::StrCat("initializer ", Quoted(name),
                                  " occurs twice, expected unique "
                                  "names"));
    }
    defined.insert(name);  // may also be a graph input: its default value
    return absl::OkStatus();
  };
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    WEFT_RETURN_IF_ERROR(add_initializer(tensor.name()));
  }
  for (const onnx::SparseTensorProto& tensor : graph.sparse_initializer()) {
    WEFT_RETURN_IF_ERROR(add_initializer(tensor.values().name()));
  }
  return ValidateNodes(graph.node(), defined, /*in_function=*/false);
}

absl::Status Validator::ValidateNodes(
    const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, Names& defined,
    bool in_function) {
  for (int i = 0; i < nodes.size(); ++i) {
    const absl::Status status = ValidateNode(nodes[i], defined, in_function);
    if (!status.ok()) return Annotate(status, NodeLabel(nodes[i], i));
  }
  return absl::OkStatus();
}

absl::Status Validator::ValidateNode(const onnx::NodeProto& node, Names& defined,
                                     bool in_function) {
  if (node.op_type().empty()) return Invalid("it has no op_type; the file is damaged");
  WEFT_RETURN_IF_ERROR(CheckLength("its op_type", node.op_type(), kMaxOpNameBytes));
  WEFT_RETURN_IF_ERROR(CheckLength("its domain", node.domain(), kMaxOpNameBytes));
  WEFT_RETURN_IF_ERROR(CheckLength("its name", node.name(), kMaxNameBytes));
  for (const std::string& output : node.output()) {
    WEFT_RETURN_IF_ERROR(CheckLength("its output", output, kMaxNameBytes));
    if (output.empty() || defined.insert(output).second) continue;
    return Invalid(absl::StrCat("its output ", Quoted(output),
                                " is already defined by another node, an input or an initializer, "
                                "expected one definition of each name"));
  }
  std::set<std::string_view> names;
  for (const AttributeProto& attribute : node.attribute()) {
    if (attribute.name().empty()) return Invalid("it has an attribute without a name");
    const std::string label = absl::StrCat("attribute ", Quoted(attribute.name()));
    if (!names.insert(attribute.name()).second) {
      return Invalid(absl::StrCat(label, " occurs twice"));
    }
    const absl::Status status = ValidateAttribute(attribute, in_function);
    if (!status.ok()) return Annotate(status, label);
  }
  return absl::OkStatus();
}

absl::Status Validator::ValidateAttribute(const AttributeProto& attribute, bool in_function) {
  if (!attribute.ref_attr_name().empty()) {
    if (in_function) return absl::OkStatus();
    return Invalid(absl::StrCat("it refers to the function attribute ",
                                Quoted(attribute.ref_attr_name()), " but is not in a function"));
  }
  WEFT_RETURN_IF_ERROR(AttributeTypeOf(attribute).status());
  if (attribute.has_g()) WEFT_RETURN_IF_ERROR(ValidateGraph(attribute.g()));
  for (const onnx::GraphProto& graph : attribute.graphs()) {
    WEFT_RETURN_IF_ERROR(ValidateGraph(graph));
  }
  return absl::OkStatus();
}

absl::Status ValidateOpsets(
    const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& opsets) {
  std::map<std::string, int64_t> versions;  // by domain
  for (const onnx::OperatorSetIdProto& opset : opsets) {
    const std::string domain = NormalizedDomain(opset.domain());
    // Converters repeat an entry; two versions of a domain have no meaning.
    const auto [known, is_new] = versions.emplace(domain, opset.version());
    if (!is_new && known->second != opset.version()) {
      return Invalid(absl::StrCat("operator set ", Quoted(domain.empty() ? "ai.onnx" : domain),
                                  " is imported twice, with versions ", known->second, " and ",
                                  opset.version(), ", expected one version of each"));
    }
    if (opset.version() < 1 || opset.version() > kMaxOpsetVersion) {
      return Invalid(absl::StrCat("operator set ", Quoted(domain.empty() ? "ai.onnx" : domain),
                                  " has version ", opset.version(), ", expected 1 to ",
                                  kMaxOpsetVersion));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateFunction(const onnx::FunctionProto& function) {
  if (function.name().empty()) return Invalid("it has no name");
  WEFT_RETURN_IF_ERROR(ValidateOpsets(function.opset_import()));
  Names defined;
  for (const std::string& input : function.input()) {
    if (input.empty() || !defined.insert(input).second) {
      return Invalid(absl::StrCat("input ", Quoted(input), " is empty or occurs twice"));
    }
  }
  for (const AttributeProto& attribute : function.attribute_proto()) {
    WEFT_RETURN_IF_ERROR(AttributeTypeOf(attribute).status());
  }
  WEFT_RETURN_IF_ERROR(CheckNesting(function.node()));
  return Validator().ValidateNodes(function.node(), defined, /*in_function=*/true);
}

absl::Status ValidateIrVersion(int64_t version) {
  if (version >= kOldestIrVersion && version <= kNewestIrVersion) return absl::OkStatus();
  return Invalid(absl::StrCat(
      "ir_version is ", version, ", expected ", kOldestIrVersion, " to ", kNewestIrVersion,
      version > kNewestIrVersion ? "; export it for an older ONNX release"
                                 : "; is this an ONNX model? If so, export it with a newer tool"));
}

}  // namespace

std::string NormalizedDomain(const std::string& domain) {
  return domain == "ai.onnx" ? "" : domain;
}

std::string NodeLabel(const onnx::NodeProto& node, int index) {
  const std::string op = node.op_type().empty() ? "?" : Quoted(node.op_type());
  const std::string bare = op.size() > 2 ? op.substr(1, op.size() - 2) : op;
  if (!node.name().empty()) return absl::StrCat("node ", Quoted(node.name()), " (", bare, ")");
  if (node.output_size() == 0) return absl::StrCat("node ", index, " (", bare, ", unnamed)");
  return absl::StrCat("node ", index, " (", bare, ", unnamed, output ", Quoted(node.output(0)),
                      ")");
}

absl::StatusOr<AttributeProto::AttributeType> AttributeTypeOf(const AttributeProto& attribute) {
  const uint32_t contents = ContentsOf(attribute);
  AttributeProto::AttributeType type = attribute.type();
  if (type == AttributeProto::UNDEFINED) {
    for (int i = 1; i <= AttributeProto::AttributeType_MAX; ++i) {
      if (contents != uint32_t{1} << i) continue;
      return static_cast<AttributeProto::AttributeType>(i);
    }
    return Invalid("it has no type and not exactly one kind of value; the file is damaged");
  }
  if ((contents & ~(uint32_t{1} << type)) != 0) {
    return Invalid(absl::StrCat("its type is ", AttributeProto::AttributeType_Name(type),
                                " but it holds a value of another kind; the file is damaged"));
  }
  const bool needs_value = type == AttributeProto::TENSOR || type == AttributeProto::GRAPH ||
                           type == AttributeProto::SPARSE_TENSOR ||
                           type == AttributeProto::TYPE_PROTO;
  if (needs_value && contents == 0) {
    return Invalid(absl::StrCat("its type is ", AttributeProto::AttributeType_Name(type),
                                " but it holds no value; the file is damaged"));
  }
  return type;
}

absl::Status ValidateTrainingGraph(const onnx::GraphProto& graph) {
  WEFT_RETURN_IF_ERROR(CheckNesting(graph.node()));
  return Validator().ValidateGraph(graph);
}

absl::Status ValidateModel(const onnx::ModelProto& model) {
  WEFT_RETURN_IF_ERROR(ValidateIrVersion(model.ir_version()));
  if (!model.has_graph()) {
    return Invalid("it has no graph, expected an ONNX model; copy or export it again");
  }
  if (model.opset_import_size() == 0) {
    return Invalid("it imports no operator set, so its operators have no meaning; export it again");
  }
  WEFT_RETURN_IF_ERROR(ValidateOpsets(model.opset_import()));
  std::set<std::tuple<std::string, std::string, std::string>> functions;
  for (const onnx::FunctionProto& function : model.functions()) {
    const std::string label = absl::StrCat("function ", Quoted(function.name()));
    const std::string domain = NormalizedDomain(function.domain());
    if (!functions.emplace(domain, function.name(), function.overload()).second) {
      return Invalid(absl::StrCat(label, " is defined twice"));
    }
    const absl::Status status = ValidateFunction(function);
    if (!status.ok()) return Annotate(status, label);
  }
  WEFT_RETURN_IF_ERROR(CheckNesting(model.graph().node()));
  return Validator().ValidateGraph(model.graph());
}

}  // namespace weft
