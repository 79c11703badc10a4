#include "onnx_import/codec/external_locations.h"

#include <vector>

namespace weft {
namespace {

class LocationSearch {
 public:
  explicit LocationSearch(const onnx::ModelProto& model) {
    graphs_.push_back(&model.graph());
    for (const onnx::TrainingInfoProto& info : model.training_info()) {
      graphs_.push_back(&info.initialization());
      graphs_.push_back(&info.algorithm());
    }
    for (const onnx::FunctionProto& function : model.functions()) {
      for (const onnx::AttributeProto& attribute : function.attribute_proto()) Add(attribute);
      for (const onnx::NodeProto& node : function.node()) Add(node);
    }
  }

  std::set<std::string> Run() {
    while (!graphs_.empty()) {
      const onnx::GraphProto& graph = *graphs_.back();
      graphs_.pop_back();
      for (const onnx::TensorProto& tensor : graph.initializer()) Add(tensor);
      for (const onnx::SparseTensorProto& tensor : graph.sparse_initializer()) Add(tensor);
      for (const onnx::NodeProto& node : graph.node()) Add(node);
    }
    return std::move(locations_);
  }

 private:
  void Add(const onnx::TensorProto& tensor) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return;
    for (const onnx::StringStringEntryProto& entry : tensor.external_data()) {
      if (entry.key() == "location" && !entry.value().empty()) locations_.insert(entry.value());
    }
  }
  void Add(const onnx::SparseTensorProto& tensor) {
    Add(tensor.values());
    Add(tensor.indices());
  }
  void Add(const onnx::AttributeProto& attribute) {
    if (attribute.has_t()) Add(attribute.t());
    if (attribute.has_sparse_tensor()) Add(attribute.sparse_tensor());
    for (const onnx::TensorProto& tensor : attribute.tensors()) Add(tensor);
    for (const onnx::SparseTensorProto& tensor : attribute.sparse_tensors()) Add(tensor);
    if (attribute.has_g()) graphs_.push_back(&attribute.g());
    for (const onnx::GraphProto& graph : attribute.graphs()) graphs_.push_back(&graph);
  }
  void Add(const onnx::NodeProto& node) {
    for (const onnx::AttributeProto& attribute : node.attribute()) Add(attribute);
  }

  std::set<std::string> locations_;
  std::vector<const onnx::GraphProto*> graphs_;
};

}  // namespace

std::set<std::string> ExternalLocations(const onnx::ModelProto& model) {
  return LocationSearch(model).Run();
}

}  // namespace weft
