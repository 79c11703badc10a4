#include "onnx_import/testing/merged_models.h"

#include "absl/strings/str_cat.h"
#include "onnx_import/testing/test_models.h"

namespace weft::testing {
namespace {

// Irregular, between -0.5 and 0.5.
float Element(int row, int column) {
  return 0.001f * static_cast<float>((row * 7919 + column * 104729) % 1000) - 0.5f;
}

}  // namespace

std::string MergedNormalizationBytes(bool training_mode) {
  const std::string node = training_mode
                               ? "y, new_mean, new_var = BatchNormalization <training_mode = 1,"
                               : "y = BatchNormalization <";
  return ModelOf(17,
                 absl::StrCat("agraph (float[N, 3] x) => (float[N, 3] y)"
                              " <float[3] bn_weight = {1, 1, 1}, float[3] bn_bias = {0, 0, 0}> {"
                              "  bn_running_mean = Identity (bn_bias)"
                              "  bn_running_var = Identity (bn_weight) ",
                              node,
                              " momentum = 0.75, epsilon = 0.00001>"
                              "    (x, bn_weight, bn_bias, bn_running_mean, bn_running_var) }"))
      .SerializeAsString();
}

std::string CopiedHeadBytes() {
  constexpr int kRows = 32;
  constexpr int kColumns = 40;
  onnx::ModelProto model = ModelOf(17,
                                   "agraph (int64[N] ids) => (float[N, 32] scores) {"
                                   "  row = Gather (wte, ids)  moved = Add (row, shift)"
                                   "  scores = MatMul (moved, head) }");
  model.mutable_graph()->mutable_node(2)->set_input(1, "onnx::MatMul_9");
  onnx::TensorProto& table = *model.mutable_graph()->add_initializer();
  onnx::TensorProto& head = *model.mutable_graph()->add_initializer();
  table.set_name("wte");
  head.set_name("onnx::MatMul_9");
  for (onnx::TensorProto* tensor : {&table, &head}) {
    tensor->set_data_type(static_cast<int>(DType::kFloat32));
    const bool is_table = tensor == &table;
    tensor->add_dims(is_table ? kRows : kColumns);
    tensor->add_dims(is_table ? kColumns : kRows);
    for (int i = 0; i < kRows * kColumns; ++i) {
      const int row = is_table ? i / kColumns : i % kRows;
      const int column = is_table ? i % kColumns : i / kRows;
      tensor->add_float_data(Element(row, column));
    }
  }
  onnx::TensorProto& shift = *model.mutable_graph()->add_initializer();
  shift.set_name("shift");
  shift.set_data_type(static_cast<int>(DType::kFloat32));
  shift.add_dims(kColumns);
  for (int i = 0; i < kColumns; ++i) shift.add_float_data(Element(kRows, i));
  return model.SerializeAsString();
}

}  // namespace weft::testing
