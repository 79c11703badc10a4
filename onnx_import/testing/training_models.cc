#include "onnx_import/testing/training_models.h"

#include "onnx_import/testing/test_models.h"

namespace weft::testing {
namespace {

constexpr char kInference[] =
    "inference (float[N, 2] x) => (float[N, 1] y)"
    " <float[2, 1] w = {1, 2}, float[1] b = {0.5}> {"
    "  product = MatMul (x, w)"
    "  y = Add (product, b) }";

constexpr char kAlgorithm[] =
    "algorithm (float[N, 1] t)"
    " => (float error, float[2, 1] w_new, float[1] b_new, float[2, 1] v_new, int64 steps_new)"
    " <float[2, 1] v = {0, 0}, float momentum = {0.5}, float rate = {0.1}, int64 steps = {3},"
    "  int64 one = {1}> {"
    "  difference = Sub (y, t)"
    "  square = Mul (difference, difference)"
    "  error = ReduceMean <keepdims = 0> (square)"
    "  dw, db = ai.onnx.preview.training.Gradient"
    "    <xs = [\"w\", \"b\"], zs = [\"x\", \"t\"], y = \"error\"> (w, b, x, t)"
    "  slower = Mul (v, momentum)"
    "  v_new = Add (slower, dw)"
    "  w_step = Mul (v_new, rate)"
    "  w_new = Sub (w, w_step)"
    "  b_step = Mul (db, rate)"
    "  b_new = Sub (b, b_step)"
    "  steps_new = Add (steps, one) }";

constexpr char kInitialization[] =
    "initialization () => (float[2, 1] w_first, int64 steps_first) {"
    "  w_first = Constant <value = float[2, 1] {0.5, -0.25}> ()"
    "  steps_first = Constant <value = int64 {0}> () }";

void Bind(const std::string& key, const std::string& value,
          google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto>& bindings) {
  onnx::StringStringEntryProto& binding = *bindings.Add();
  binding.set_key(key);
  binding.set_value(value);
}

}  // namespace

onnx::ModelProto RegressionThatTrainsItself() {
  onnx::ModelProto model = ModelOf(17, kInference);
  onnx::OperatorSetIdProto& opset = *model.add_opset_import();
  opset.set_domain("ai.onnx.preview.training");
  opset.set_version(1);
  onnx::TrainingInfoProto& info = *model.add_training_info();
  *info.mutable_algorithm() = ModelOf(17, kAlgorithm).graph();
  *info.mutable_initialization() = ModelOf(17, kInitialization).graph();
  for (const char* name : {"w", "b", "v", "steps"}) {
    Bind(name, std::string(name) + "_new", *info.mutable_update_binding());
  }
  for (const char* name : {"w", "steps"}) {
    Bind(name, std::string(name) + "_first", *info.mutable_initialization_binding());
  }
  return model;
}

std::string RegressionThatTrainsItselfBytes() {
  return RegressionThatTrainsItself().SerializeAsString();
}

}  // namespace weft::testing
