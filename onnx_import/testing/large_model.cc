#include "onnx_import/testing/large_model.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "onnx_import/codec/wire.pb.h"

namespace weft::testing {
namespace {

constexpr int kFloat = 1;  // TensorProto.DataType.FLOAT

void SetMatrixType(const std::string& name, int64_t columns, onnx::ValueInfoProto& value) {
  value.set_name(name);
  auto* const type = value.mutable_type()->mutable_tensor_type();
  type->set_elem_type(kFloat);
  type->mutable_shape()->add_dim()->set_dim_param("N");
  type->mutable_shape()->add_dim()->set_dim_value(columns);
}

onnx::TensorProto& AddWeight(const std::string& name, int64_t size, onnx::GraphProto& graph) {
  onnx::TensorProto& tensor = *graph.add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(kFloat);
  tensor.add_dims(size);
  tensor.add_dims(size);
  return tensor;
}

void SetDiagonal(int64_t size, onnx::TensorProto& tensor) {
  const float two = 2;
  std::string& raw = *tensor.mutable_raw_data();
  raw.assign(static_cast<size_t>(4 * size * size), '\0');
  for (int64_t row = 0; row < size; ++row) {
    std::memcpy(raw.data() + 4 * row * (size + 1), &two, sizeof(two));
  }
}

void SetPlace(int64_t size, int64_t offset, onnx::TensorProto& tensor) {
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  const auto add = [&](const std::string& key, const std::string& value) {
    auto* const entry = tensor.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  };
  add("location", "weights.bin");
  add("offset", absl::StrCat(offset));
  add("length", absl::StrCat(4 * size * size));
}

bool WriteDiagonals(const std::string& path, int64_t size, int layers) {
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return false;
  const int64_t bytes = 4 * size * size;
  bool written = ftruncate(file, layers * bytes) == 0;
  const float two = 2;
  for (int64_t row = 0; written && row < layers * size; ++row) {
    const int64_t offset = row / size * bytes + row % size * 4 * (size + 1);
    written = pwrite(file, &two, sizeof(two), offset) == sizeof(two);
  }
  return close(file) == 0 && written;
}

}  // namespace

bool WriteLargeModel(const std::string& folder, int64_t size, int layers, WeightPlace place) {
  const bool beside = place == WeightPlace::kBesideTheModel;
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("large");
  SetMatrixType("x", size, *graph.add_input());
  SetMatrixType("y", size, *graph.add_output());
  std::string input = "x";
  for (int layer = 0; layer < layers; ++layer) {
    const std::string weight = absl::StrCat("w", layer);
    onnx::TensorProto& tensor = AddWeight(weight, size, graph);
    if (beside) {
      SetPlace(size, 4 * size * size * layer, tensor);
    } else {
      SetDiagonal(size, tensor);
    }
    onnx::NodeProto& node = *graph.add_node();
    node.set_name(absl::StrCat("product", layer));
    node.set_op_type("MatMul");
    node.add_input(input);
    node.add_input(weight);
    input = layer + 1 < layers ? absl::StrCat("h", layer) : "y";
    node.add_output(input);
  }
  std::ofstream file(folder + "/model.onnx", std::ios::binary);
  if (!model.SerializeToOstream(&file)) return false;
  file.close();
  return file.good() && (!beside || WriteDiagonals(folder + "/weights.bin", size, layers));
}

}  // namespace weft::testing
