#include "onnx_import/edit/quantized_form.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "onnx_import/codec/ir_versions.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/tensor_codec.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/graph_wire.h"
#include "onnx_import/importer.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// From this set on, the newest form of an operator that the set has differs from its own by no more
// than attributes that an earlier model does not have.
constexpr int64_t kOpsetOfNewestForms = 21;

bool IsOnnxNode(const onnx::NodeProto& node, std::string_view op) {
  return node.op_type() == op && NormalizedDomain(node.domain()).empty();
}

bool IsProduct(const onnx::NodeProto& node) {
  return IsOnnxNode(node, "Conv") || IsOnnxNode(node, "Gemm") || IsOnnxNode(node, "MatMul");
}

absl::Status DecodeModel(std::string_view bytes, onnx::ModelProto& model) {
  if (model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return absl::OkStatus();
  return absl::InvalidArgumentError("the model cannot be read");
}

// An ONNX file ends there.
constexpr size_t kMaxModelBytes = size_t{1} << 31;

// Of ONNX's own operators; 0 where the model imports none.
int64_t OwnOpset(const onnx::ModelProto& model) {
  for (const onnx::OperatorSetIdProto& opset : model.opset_import()) {
    if (NormalizedDomain(opset.domain()).empty()) return opset.version();
  }
  return 0;
}

absl::Status EarlierWithDataBeside(int64_t opset) {
  return absl::UnimplementedError(absl::StrCat(
      "the model is of an operator set before ", opset,
      " and has data in files beside it; convert it to operator set ", opset, " first"));
}

absl::Status TooLargeWhenQuantized() {
  return absl::ResourceExhaustedError(
      "the quantized model takes more than 2 GiB; quantize fewer weights");
}

bool HasExternalData(const onnx::ModelProto& model) {
  const auto& tensors = model.graph().initializer();
  return std::any_of(tensors.begin(), tensors.end(), [](const onnx::TensorProto& tensor) {
    return tensor.data_location() == onnx::TensorProto::EXTERNAL;
  });
}

// The model in a later operator set, with all its nodes in their newest form.
absl::Status Upgrade(int64_t opset, onnx::ModelProto& model) {
  if (HasExternalData(model)) return EarlierWithDataBeside(opset);
  WEFT_ASSIGN_OR_RETURN(const ModelFile file,
                        ModelFile::Parse(model.SerializeAsString(), "the trained model"));
  WEFT_ASSIGN_OR_RETURN(const ImportedModel imported, ImportModel(file));
  GraphToOnnxOptions options;
  options.annotations = false;
  options.opset = opset;
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, GraphToOnnx(imported.graph, options));
  onnx::ModelProto later;
  WEFT_RETURN_IF_ERROR(DecodeModel(bytes, later));
  later.set_producer_name(model.producer_name());
  later.set_producer_version(model.producer_version());
  later.set_model_version(model.model_version());
  later.set_doc_string(model.doc_string());
  later.mutable_graph()->set_name(model.graph().name());
  *later.mutable_metadata_props() = model.metadata_props();
  model = std::move(later);
  return absl::OkStatus();
}

void AddAttribute(const std::string& name, int64_t value, onnx::NodeProto& node) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
}

class QuantizedWriter {
 public:
  explicit QuantizedWriter(onnx::GraphProto& graph) : graph_(graph) { Take(graph); }

  absl::Status AddWeight(const QuantizedTensor& weight) {
    WEFT_RETURN_IF_ERROR(RemoveFloats(weight.name));
    onnx::NodeProto node;
    node.set_op_type("DequantizeLinear");
    node.set_name(Unused(absl::StrCat(weight.name, "_DequantizeLinear")));
    node.add_input(AddInitializer(absl::StrCat(weight.name, "_quantized"), weight.codes));
    node.add_input(AddInitializer(absl::StrCat(weight.name, "_scale"), weight.scale));
    if (weight.zero_point.valid()) {
      node.add_input(AddInitializer(absl::StrCat(weight.name, "_zero_point"), weight.zero_point));
    }
    node.add_output(weight.name);
    if (weight.scale.shape().rank() > 0) AddAttribute("axis", weight.axis, node);
    if (weight.block > 0) AddAttribute("block_size", weight.block, node);
    first_.push_back(std::move(node));
    return absl::OkStatus();
  }

  absl::Status AddRead(const QuantizedRead& read) {
    const std::string scale = AddInitializer(absl::StrCat(read.value, "_scale"), read.scale);
    const bool has_zero = read.zero_point.valid();
    const std::string zero =
        has_zero ? AddInitializer(absl::StrCat(read.value, "_zero_point"), read.zero_point) : "";
    const std::string codes = Unused(absl::StrCat(read.value, "_quantized"));
    const std::string result = Unused(absl::StrCat(read.value, "_dequantized"));
    std::vector<onnx::NodeProto>& nodes = before_[read.readers.front()];
    for (const bool is_first : {true, false}) {
      onnx::NodeProto& node = nodes.emplace_back();
      node.set_op_type(is_first ? "QuantizeLinear" : "DequantizeLinear");
      node.set_name(Unused(absl::StrCat(read.value, "_", node.op_type())));
      node.add_input(is_first ? read.value : codes);
      node.add_input(scale);
      node.add_output(is_first ? codes : result);
      if (has_zero) {
        node.add_input(zero);
      } else if (is_first) {
        AddAttribute("output_dtype", static_cast<int64_t>(read.codes), node);
      }
    }
    for (const std::string& reader : read.readers) {
      const auto product = std::find_if(
          graph_.mutable_node()->begin(), graph_.mutable_node()->end(),
          [&reader](const onnx::NodeProto& node) {
            return IsProduct(node) && node.output_size() > 0 && node.output(0) == reader;
          });
      if (product == graph_.mutable_node()->end() || product->input_size() == 0 ||
          product->input(0) != read.value) {
        return absl::InvalidArgumentError(absl::StrCat("the model has no product ", Quoted(reader),
                                                       " that reads ", Quoted(read.value),
                                                       " first"));
      }
      product->set_input(0, result);
    }
    return absl::OkStatus();
  }

  // Puts the nodes in their places.
  void Finish() {
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    for (onnx::NodeProto& node : first_) *nodes.Add() = std::move(node);
    for (onnx::NodeProto& node : *graph_.mutable_node()) {
      const auto before = node.output_size() > 0 ? before_.find(node.output(0)) : before_.end();
      if (before != before_.end()) {
        for (onnx::NodeProto& own : before->second) *nodes.Add() = std::move(own);
      }
      *nodes.Add() = std::move(node);
    }
    graph_.mutable_node()->Swap(&nodes);
  }

 private:
  // Names of the graph and of all bodies in it, which must not have those of the graph around them.
  void Take(const onnx::GraphProto& graph) {
    for (const onnx::NodeProto& node : graph.node()) {
      taken_.insert(node.name());
      taken_.insert(node.output().begin(), node.output().end());
      for (const onnx::AttributeProto& attribute : node.attribute()) {
        if (attribute.has_g()) Take(attribute.g());
        for (const onnx::GraphProto& body : attribute.graphs()) Take(body);
      }
    }
    for (const auto& tensor : graph.initializer()) taken_.insert(tensor.name());
    for (const auto& tensor : graph.sparse_initializer()) taken_.insert(tensor.values().name());
    for (const auto& input : graph.input()) taken_.insert(input.name());
    for (const auto& info : graph.value_info()) taken_.insert(info.name());
  }

  std::string Unused(const std::string& hint) {
    std::string name = hint;
    for (int i = 1; !taken_.insert(name).second; ++i) name = absl::StrCat(hint, "_", i);
    return name;
  }

  std::string AddInitializer(const std::string& hint, const Tensor& tensor) {
    const std::string name = Unused(hint);
    *graph_.add_initializer() = EncodeTensor(name, tensor);
    return name;
  }

  absl::Status RemoveFloats(const std::string& name) {
    auto& initializers = *graph_.mutable_initializer();
    for (int i = 0; i < initializers.size(); ++i) {
      if (initializers[i].name() != name) continue;
      initializers.DeleteSubrange(i, 1);
      // Old exporters list it among the inputs too.
      auto& inputs = *graph_.mutable_input();
      for (int j = inputs.size() - 1; j >= 0; --j) {
        if (inputs[j].name() == name) inputs.DeleteSubrange(j, 1);
      }
      return absl::OkStatus();
    }
    auto& nodes = *graph_.mutable_node();
    for (int i = 0; i < nodes.size(); ++i) {
      if (!IsOnnxNode(nodes[i], "Constant") || nodes[i].output_size() != 1 ||
          nodes[i].output(0) != name) {
        continue;
      }
      nodes.DeleteSubrange(i, 1);
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the model has no weight ", Quoted(name), " to quantize"));
  }

  onnx::GraphProto& graph_;
  std::set<std::string> taken_;
  std::vector<onnx::NodeProto> first_;
  std::map<std::string, std::vector<onnx::NodeProto>> before_;  // by the output of the next node
};

// Of several readers the first in the file, before which the value is quantized.
void SortReaders(const onnx::GraphProto& graph, QuantizedRead& read) {
  std::map<std::string, int> places;
  for (int i = 0; i < graph.node_size(); ++i) {
    if (graph.node(i).output_size() > 0) places[graph.node(i).output(0)] = i;
  }
  std::sort(
      read.readers.begin(), read.readers.end(),
      [&places](const std::string& a, const std::string& b) { return places[a] < places[b]; });
}

}  // namespace

std::set<std::string> MainGraphProducts(const ModelFile& file) {
  std::set<std::string> names;
  for (const onnx::NodeProto& node : file.proto()->graph().node()) {
    if (IsProduct(node) && node.output_size() > 0) names.insert(node.output(0));
  }
  return names;
}

absl::StatusOr<std::string> WriteQuantized(std::string_view bytes, const QuantizedForm& form) {
  onnx::ModelProto model;
  WEFT_RETURN_IF_ERROR(DecodeModel(bytes, model));
  if (OwnOpset(model) < form.opset) {
    WEFT_RETURN_IF_ERROR(Annotate(Upgrade(std::max(form.opset, kOpsetOfNewestForms), model),
                                  "writing the model for a later operator set"));
  }
  // A model that was written anew says its own.
  model.set_ir_version(std::max<int64_t>(model.ir_version(), IrVersionOfOpset("", form.opset)));
  QuantizedWriter writer(*model.mutable_graph());
  for (const QuantizedTensor& weight : form.weights) {
    WEFT_RETURN_IF_ERROR(writer.AddWeight(weight));
  }
  for (QuantizedRead read : form.inputs) {
    SortReaders(model.graph(), read);
    WEFT_RETURN_IF_ERROR(writer.AddRead(read));
  }
  writer.Finish();
  std::string written;
  if (model.ByteSizeLong() < kMaxModelBytes && model.SerializeToString(&written)) return written;
  return TooLargeWhenQuantized();
}

absl::Status CheckQuantizedForm(const ModelFile& file, int64_t opset, int64_t code_bytes,
                                const ExportOptions& options) {
  // Else all is in the one file, of which codes are a part that was larger.
  if (!HasDataBeside(file, options)) return absl::OkStatus();
  if (OwnOpset(*file.proto()) < opset) {
    return Annotate(EarlierWithDataBeside(std::max(opset, kOpsetOfNewestForms)), file.Label());
  }
  if (file.bytes().size() + static_cast<size_t>(code_bytes) < kMaxModelBytes) {
    return absl::OkStatus();
  }
  return Annotate(TooLargeWhenQuantized(), file.Label());
}

}  // namespace weft
