// A model as SettleTies leaves it, and what tests of edits make models with.
#ifndef WEFT_ONNX_IMPORT_TESTING_SETTLED_MODEL_H_
#define WEFT_ONNX_IMPORT_TESTING_SETTLED_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/edit/ties.h"
#include "onnx_import/importer.h"
#include "onnx_import/model_file.h"
#include "tensor/dtype.h"

namespace weft::testing {

// What torch.export leaves on a node: the modules around it, and the operation.
inline void SetModule(onnx::ModelProto& model, int node, const std::string& module) {
  onnx::StringStringEntryProto& entry =
      *model.mutable_graph()->mutable_node(node)->add_metadata_props();
  entry.set_key("pkg.torch.onnx.name_scopes");
  entry.set_value("['', '" + module + "', 'op_1']");
}

// What torch.export leaves on a graph: the names of the module's parameters, in their order.
inline void SetSignature(onnx::ModelProto& model, const std::vector<std::string>& parameters,
                         const std::vector<std::string>& buffers = {}) {
  std::string text = "\n# inputs\n";
  for (const std::string& name : parameters) {
    text += "p_" + name + ": PARAMETER target='" + name + "'\n";
  }
  for (const std::string& name : buffers) {
    text += "b_" + name + ": BUFFER target='" + name + "' persistent=True\n";
  }
  onnx::StringStringEntryProto& entry = *model.mutable_graph()->add_metadata_props();
  entry.set_key("pkg.torch.export.ExportedProgram.graph_signature");
  entry.set_value(text);
}

// Gives a tensor of a graph, or a value, another name wherever it is.
inline void Rename(onnx::GraphProto& graph, const std::string& from, const std::string& to) {
  for (onnx::TensorProto& tensor : *graph.mutable_initializer()) {
    if (tensor.name() == from) tensor.set_name(to);
  }
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    for (std::string& input : *node.mutable_input()) {
      if (input == from) input = to;
    }
    for (std::string& output : *node.mutable_output()) {
      if (output == from) output = to;
    }
  }
}

// first, first + step, ...
inline onnx::TensorProto FloatTensor(const std::string& name, std::vector<int64_t> dims,
                                     float first, float step) {
  onnx::TensorProto tensor;
  tensor.set_name(name);
  tensor.set_data_type(static_cast<int>(DType::kFloat32));
  int64_t count = 1;
  for (const int64_t dim : dims) {
    tensor.add_dims(dim);
    count *= dim;
  }
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(first + step * static_cast<float>(i));
  tensor.set_raw_data(values.data(), values.size() * sizeof(float));
  return tensor;
}

// The model as the edit leaves it.
class Settled {
 public:
  explicit Settled(const onnx::ModelProto& model, const TieOptions& options = {}) {
    const auto file = ModelFile::Parse(model.SerializeAsString(), "test.onnx");
    EXPECT_TRUE(file.ok()) << file.status();
    if (!file.ok()) return;
    auto settled = SettleTies(*file, options);
    status_ = settled.status();
    if (!settled.ok()) return;
    report_ = settled->report;
    proto_ = *settled->file.proto();
    file_ = settled->file;
    const auto imported = ImportModel(settled->file);
    EXPECT_TRUE(imported.ok()) << imported.status();
  }

  const absl::Status& status() const { return status_; }
  const TieReport& report() const { return report_; }
  const onnx::ModelProto& proto() const { return proto_; }
  const ModelFile& file() const { return file_; }
  const onnx::NodeProto& node(int i) const { return proto_.graph().node(i); }

  std::vector<std::string> Initializers() const {
    std::vector<std::string> names;
    for (const auto& tensor : proto_.graph().initializer()) names.push_back(tensor.name());
    return names;
  }
  std::vector<std::string> Operators() const {
    std::vector<std::string> ops;
    for (const auto& one : proto_.graph().node()) ops.push_back(one.op_type());
    return ops;
  }
  std::vector<std::string> Untied() const {
    std::vector<std::string> names;
    for (const UntiedTensor& untied : report_.untied) names.push_back(untied.name);
    return names;
  }

 private:
  absl::Status status_;
  TieReport report_;
  onnx::ModelProto proto_;
  ModelFile file_;
};

}  // namespace weft::testing

#endif  // WEFT_ONNX_IMPORT_TESTING_SETTLED_MODEL_H_
