// FreezeQuantization: scales, zero points and codes by the very operators that train and run.
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/node_runner.h"
#include "platform/status_macros.h"
#include "training/quantization/quantization.h"

namespace weft {
namespace {

// The outputs of one node on these inputs.
absl::StatusOr<std::vector<Tensor>> Computed(std::string_view domain, const std::string& op,
                                             const std::vector<Tensor>& inputs,
                                             Attributes attributes, int outputs) {
  Graph graph;
  GraphBuilder builder(graph);
  std::vector<ValueId> ids;
  for (const Tensor& input : inputs) ids.push_back(builder.Constant(input));
  const std::vector<ValueId> results =
      builder.Ops(std::string(domain), op, ids, std::move(attributes),
                  std::vector<bool>(static_cast<size_t>(outputs), true));
  WEFT_RETURN_IF_ERROR(builder.status());
  const Node& node = graph.node(graph.value(results.front()).producer);
  return CpuNodeEvaluator().Evaluate(graph, node, inputs);
}

absl::StatusOr<QuantizedTensor> FrozenWeight(const Quantization::Weight& weight,
                                             const Tensor& value) {
  Attributes attributes = {{"to", static_cast<int64_t>(weight.codes)}};
  Attributes layout;
  if (weight.has_axis) layout.Set("axis", weight.axis);
  if (weight.block > 0) layout.Set("block_size", weight.block);
  for (const auto& [name, attribute] : layout.items()) attributes.Set(name, attribute);
  WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> fake,
                        Computed(kWeftDomain, "FakeQuantizeWeight", {value}, attributes, 2));
  QuantizedTensor frozen;
  frozen.name = weight.name;
  frozen.scale = fake[1];
  frozen.axis = weight.axis;
  frozen.block = weight.block;
  WEFT_ASSIGN_OR_RETURN(Tensor zero, Tensor::Zeros(weight.codes, frozen.scale.shape()));
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<Tensor> codes,
      Computed("", "QuantizeLinear", {value, frozen.scale, zero}, std::move(layout), 1));
  frozen.codes = codes.front();
  // That they are absent means 0 too. Those of blocks would be as many as the scales.
  if (weight.codes == DType::kInt8) frozen.zero_point = std::move(zero);
  return frozen;
}

absl::StatusOr<QuantizedRead> FrozenInput(const Quantization::Input& input, const Tensor& range) {
  if (range.data<float>()[2] == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model cannot be quantized yet: no step has seen the range of '",
                     input.value, "'; train it for a step or more"));
  }
  WEFT_ASSIGN_OR_RETURN(const Tensor nothing, Tensor::Zeros(DType::kFloat32, Shape{1}));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> fake,
                        Computed(kWeftDomain, "FakeQuantize", {nothing, range},
                                 {{"to", static_cast<int64_t>(input.codes)}}, 3));
  QuantizedRead frozen{input.value, fake[1], Tensor(), input.codes, input.readers};
  // A float8 has none: onnxruntime 1.32 takes a zero point of 0 for that of an unsigned type,
  // before which a Relu does nothing, and drops the Relu.
  if (input.codes == DType::kUint8) {
    WEFT_ASSIGN_OR_RETURN(frozen.zero_point, CastTensor(fake[2], input.codes));
  }
  return frozen;
}

}  // namespace

absl::StatusOr<QuantizedForm> FreezeQuantization(const Graph& graph,
                                                 const Quantization& quantization,
                                                 std::map<std::string, Tensor>& values) {
  QuantizedForm form;
  const auto take = [&](const std::string& name) -> absl::StatusOr<Tensor> {
    const auto found = values.find(name);
    if (found != values.end()) {
      Tensor value = std::move(found->second);
      values.erase(found);
      return value;
    }
    const Variable* const variable = graph.FindVariable(name);
    if (variable == nullptr) {
      return absl::InternalError(absl::StrCat("the model has no variable '", name, "'"));
    }
    if (variable->initial.valid()) return variable->initial;
    const ValueType& type = graph.value(variable->value).type;
    return Tensor::Zeros(type.dtype, *type.shape.ToConcrete());
  };
  for (const Quantization::Weight& weight : quantization.weights) {
    WEFT_ASSIGN_OR_RETURN(const Tensor value, take(weight.name));
    WEFT_ASSIGN_OR_RETURN(QuantizedTensor frozen, FrozenWeight(weight, value));
    form.weights.push_back(std::move(frozen));
  }
  for (const Quantization::Input& input : quantization.inputs) {
    WEFT_ASSIGN_OR_RETURN(const Tensor range, take(input.range));
    WEFT_ASSIGN_OR_RETURN(QuantizedRead frozen, FrozenInput(input, range));
    form.inputs.push_back(std::move(frozen));
  }
  form.opset = quantization.opset();
  return form;
}

}  // namespace weft
