// com.microsoft: what optimizers of exported models fuse, taken apart into standard ops.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/microsoft/microsoft_rules.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// An expansion with one output, from a function of the builder and the node.
template <typename Build>
ExpandFn ExpandTo(Build build) {
  return [build](ExpandContext& context) -> absl::StatusOr<Values> {
    const ValueId y = build(context.builder(), context.node());
    WEFT_RETURN_IF_ERROR(context.builder().status());
    return Values{y};
  };
}

// ---- Activations with a bias

ValueId BiasGelu(GraphBuilder& b, const Node& node) {
  return b.Op("Gelu", {b.Op("Add", {node.inputs[0], node.inputs[1]})});
}

ValueId FastGelu(GraphBuilder& b, const Node& node) {
  const ValueId bias = InputOf(node, 1);
  const ValueId x = bias.valid() ? b.Op("Add", {node.inputs[0], bias}) : node.inputs[0];
  return b.Op("Gelu", {x}, {{"approximate", std::string("tanh")}});
}

ValueId QuickGelu(GraphBuilder& b, const Node& node) {
  const ValueId x = node.inputs[0];
  const ValueId alpha = b.Scalar(b.type(x).dtype, node.attributes.Float("alpha", 1.702f));
  return b.Op("Mul", {x, b.Op("Sigmoid", {b.Op("Mul", {x, alpha})})});
}

WEFT_REGISTER_OP(OpSchema(kMicrosoftDomain, "Gelu")
                     .Input("X", kFloatTypes)
                     .Output("Y")
                     .Infer(InferLikeFirstInput)
                     .Expand(ExpandTo([](GraphBuilder& b, const Node& node) {
                       return b.Op("Gelu", {node.inputs[0]});
                     })));
WEFT_REGISTER_OP(OpSchema(kMicrosoftDomain, "BiasGelu")
                     .Input("A", kFloatTypes)
                     .Input("B", kFloatTypes)
                     .Learnable()
                     .Output("C")
                     .Infer(InferLikeFirstInput)
                     .Expand(ExpandTo(BiasGelu)));
WEFT_REGISTER_OP(OpSchema(kMicrosoftDomain, "FastGelu")
                     .Input("X", kFloatTypes)
                     .OptionalInput("bias", kFloatTypes)
                     .Learnable()
                     .Output("Y")
                     .Infer(InferLikeFirstInput)
                     .Expand(ExpandTo(FastGelu)));
WEFT_REGISTER_OP(OpSchema(kMicrosoftDomain, "QuickGelu")
                     .Input("X", kFloatTypes)
                     .Output("Y")
                     .Attr("alpha", AttributeType::kFloat)
                     .Infer(InferLikeFirstInput)
                     .Expand(ExpandTo(QuickGelu)));
WEFT_REGISTER_OP(OpSchema(kMicrosoftDomain, "BiasAdd")
                     .Input("X", kFloatTypes)
                     .Input("bias", kFloatTypes)
                     .Learnable()
                     .Input("skip", kFloatTypes)
                     .Output("Y")
                     .Infer(InferLikeFirstInput)
                     .Expand(ExpandTo([](GraphBuilder& b, const Node& node) {
                       const ValueId sum = b.Op("Add", {node.inputs[0], node.inputs[1]});
                       return b.Op("Add", {sum, node.inputs[2]});
                     })));

// The softmax of data + bias over all axes from `axis` on.
absl::StatusOr<Values> ExpandBiasSoftmax(ExpandContext& context) {
  GraphBuilder& b = context.builder();
  const Node& node = context.node();
  const SymbolicShape data = b.type(node.inputs[0]).shape;
  const SymbolicShape bias = b.type(node.inputs[1]).shape;
  const int64_t axis = node.attributes.Int("axis", 1);
  ValueId sum = kNoValue;
  const bool inner = node.attributes.Int("is_inner_broadcast", 1) != 0;
  if (!inner && data.has_rank() && bias.has_rank() && bias.rank() < data.rank()) {
    return absl::UnimplementedError(
        absl::StrCat("node '", node.name, "': BiasSoftmax with is_inner_broadcast 0 and a bias ",
                     bias.ToString(), " of lower rank than its data ", data.ToString()));
  }
  sum = b.Op("Add", {node.inputs[0], node.inputs[1]});
  ValueId y = kNoValue;
  if (axis == -1 || (data.has_rank() && axis == data.rank() - 1)) {
    y = b.Op("Softmax", {sum}, {{"axis", int64_t{-1}}});
  } else {
    const ValueId rows = b.Op("Flatten", {sum}, {{"axis", axis}});
    const ValueId flat = b.Op("Softmax", {rows}, {{"axis", int64_t{-1}}});
    y = b.Op("Reshape", {flat, b.Op("Shape", {node.inputs[0]})}, {{"allowzero", int64_t{1}}});
  }
  WEFT_RETURN_IF_ERROR(b.status());
  return Values{y};
}

WEFT_REGISTER_OP(OpSchema(kMicrosoftDomain, "BiasSoftmax")
                     .Input("data", kFloatTypes)
                     .Input("bias", kFloatTypes)
                     .NeverLearnable()
                     .Output("output")
                     .Attr("axis", AttributeType::kInt)
                     .Attr("is_inner_broadcast", AttributeType::kInt)
                     .Infer(InferLikeFirstInput)
                     .Expand(ExpandBiasSoftmax));

// ---- Products and convolutions with what follows them

// transBatchA and transBatchB: axis 0 stands for the rows (of the stored matrix) and the axes
// behind it, but the last, for batches. The order that moves it to its place in front of the last.
std::vector<int64_t> RowsBehindBatches(int64_t rank) {
  std::vector<int64_t> order;
  for (int64_t axis = 1; axis < rank - 1; ++axis) order.push_back(axis);
  order.push_back(0);
  order.push_back(rank - 1);
  return order;
}

absl::StatusOr<Values> ExpandFusedMatMul(ExpandContext& context) {
  GraphBuilder& b = context.builder();
  const Node& node = context.node();
  const Attributes& attributes = node.attributes;
  Values operands = {node.inputs[0], node.inputs[1]};
  for (size_t i = 0; i < operands.size(); ++i) {
    if (attributes.Int(i == 0 ? "transBatchA" : "transBatchB", 0) == 0) continue;
    const SymbolicShape shape = b.type(operands[i]).shape;
    if (!shape.has_rank()) {
      return absl::UnimplementedError(absl::StrCat("node '", node.name, "' (", node.op,
                                                   "): the rank of input ", i, " is not known"));
    }
    if (shape.rank() < 3) continue;  // no batches
    operands[i] = b.Op("Transpose", {operands[i]}, {{"perm", RowsBehindBatches(shape.rank())}});
  }
  bool matrices = true;
  for (const ValueId operand : operands) {
    const SymbolicShape& shape = b.type(operand).shape;
    matrices &= !shape.has_rank() || shape.rank() >= 2;
  }
  ValueId y = matrices ? b.WeftOp("MatMul", operands,
                                  {{"transA", attributes.Int("transA", 0)},
                                   {"transB", attributes.Int("transB", 0)}})
                       : b.Op("MatMul", operands);
  const float alpha = attributes.Float("alpha", 1);
  if (alpha != 1) y = b.Op("Mul", {y, b.Scalar(b.type(node.inputs[0]).dtype, alpha)});
  WEFT_RETURN_IF_ERROR(b.status());
  return Values{y};
}

// As MatMul's, after the transposition.
absl::Status InferFusedMatMul(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1}));
  const DType dtype = context.InputType(0).dtype;
  const auto stored = [&](int i, const char* flag) {
    const SymbolicShape& shape = context.InputShape(i);
    if (context.attributes().Int(flag, 0) == 0 || !shape.has_rank() || shape.rank() < 3) {
      return shape;
    }
    Dims dims;
    for (const int64_t axis : RowsBehindBatches(shape.rank())) {
      dims.push_back(shape.dim(static_cast<int>(axis)));
    }
    return SymbolicShape(std::move(dims));
  };
  const SymbolicShape a = stored(0, "transBatchA");
  const SymbolicShape b = stored(1, "transBatchB");
  const bool matrices = a.has_rank() && b.has_rank() && a.rank() >= 2 && b.rank() >= 2;
  if (!matrices) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  const bool trans_a = context.attributes().Int("transA", 0) != 0;
  const bool trans_b = context.attributes().Int("transB", 0) != 0;
  Dims dims;
  for (int d = std::max(a.rank(), b.rank()); d > 2; --d) {
    const Dim one(1);
    const std::optional<Dim> both = BroadcastDims(d > a.rank() ? one : a.dim(a.rank() - d),
                                                  d > b.rank() ? one : b.dim(b.rank() - d));
    if (!both.has_value()) {
      return context.Error(absl::StrCat("batch axes of ", a.ToString(), " and ", b.ToString(),
                                        " cannot be broadcast"));
    }
    dims.push_back(*both);
  }
  dims.push_back(a.dim(a.rank() - (trans_a ? 1 : 2)));
  dims.push_back(b.dim(b.rank() - (trans_b ? 2 : 1)));
  context.SetOutput(0, dtype, SymbolicShape(std::move(dims)));
  return absl::OkStatus();
}

OpSchema FusedMatMul(std::string domain, std::string name) {
  return OpSchema(std::move(domain), std::move(name))
      .Input("A", kFloatTypes)
      .Learnable()
      .Input("B", kFloatTypes)
      .Learnable()
      .Output("Y")
      .Attr("alpha", AttributeType::kFloat)
      .Attr("transA", AttributeType::kInt)
      .Attr("transB", AttributeType::kInt)
      .Attr("transBatchA", AttributeType::kInt)
      .Attr("transBatchB", AttributeType::kInt)
      .Infer(InferFusedMatMul)
      .Expand(ExpandFusedMatMul);
}

WEFT_REGISTER_OP(FusedMatMul(kMicrosoftDomain, "FusedMatMul"));
// Its name in older files.
WEFT_REGISTER_OP(FusedMatMul(kMicrosoftDomain, "TransposeMatMul"));

// The op in attribute `activation` on x, with parameters by name or by place.
absl::StatusOr<ValueId> Activated(GraphBuilder& b, const Node& node, ValueId x) {
  const std::string op = node.attributes.String("activation", "");
  if (op.empty()) return x;
  const std::vector<float> params = node.attributes.Floats("activation_params");
  const auto parameter = [&](size_t i, const char* name, float fallback) {
    if (i < params.size()) return params[i];
    return node.attributes.Float(absl::StrCat("activation_", name), fallback);
  };
  if (op == "Relu" || op == "Tanh" || op == "Sigmoid" || op == "Softplus" || op == "Softsign") {
    return b.Op(op, {x});
  }
  if (op == "LeakyRelu" || op == "Elu" || op == "ThresholdedRelu") {
    const float fallback = op == "LeakyRelu" ? 0.01f : 1.0f;
    return b.Op(op, {x}, {{"alpha", parameter(0, "alpha", fallback)}});
  }
  if (op == "HardSigmoid") {
    return b.Op(op, {x},
                {{"alpha", parameter(0, "alpha", 0.2f)}, {"beta", parameter(1, "beta", 0.5f)}});
  }
  if (op == "Clip") {
    const DType dtype = b.type(x).dtype;
    return b.Op(op, {x, b.Scalar(dtype, parameter(0, "min", -3.402823e38f)),
                     b.Scalar(dtype, parameter(1, "max", 3.402823e38f))});
  }
  return absl::UnimplementedError(
      absl::StrCat("node '", node.name, "': the fused activation '", op, "' is not known"));
}

Attributes WithoutActivation(const Attributes& attributes) {
  Attributes rest;
  for (const auto& [name, value] : attributes.items()) {
    if (name.rfind("activation", 0) != 0) rest.Set(name, value);
  }
  return rest;
}

absl::StatusOr<Values> ExpandFused(ExpandContext& context, const std::string& op,
                                   size_t op_inputs) {
  GraphBuilder& b = context.builder();
  const Node& node = context.node();
  Values operands;
  for (size_t i = 0; i < op_inputs; ++i) operands.push_back(InputOf(node, i));
  while (!operands.empty() && !operands.back().valid()) operands.pop_back();
  ValueId y = b.Op(op, std::move(operands), WithoutActivation(node.attributes));
  if (const ValueId addend = InputOf(node, op_inputs); addend.valid()) {
    y = b.Op("Add", {y, addend});
  }
  WEFT_RETURN_IF_ERROR(b.status());
  WEFT_ASSIGN_OR_RETURN(y, Activated(b, node, y));
  WEFT_RETURN_IF_ERROR(b.status());
  return Values{y};
}

// The shape of the op that is fused with the rest; operands and attributes beyond it do not count.
InferFn InferAs(const std::string& op) {
  return [op](InferenceContext& context) -> absl::Status {
    const OpSchema* schema = OpRegistry::Global().Find("", op);
    if (schema == nullptr) return context.Error(absl::StrCat("the op ", op, " is not known"));
    return schema->infer()(context);
  };
}

OpSchema WithActivation(OpSchema schema) {
  return schema.Output("Y")
      .Attr("activation", AttributeType::kString)
      .Attr("activation_params", AttributeType::kFloats)
      .Attr("activation_alpha", AttributeType::kFloat)
      .Attr("activation_beta", AttributeType::kFloat)
      .Attr("activation_gamma", AttributeType::kFloat);
}

WEFT_REGISTER_OP(WithActivation(OpSchema(kMicrosoftDomain, "FusedConv"))
                     .Input("X", kFloatTypes)
                     .Input("W", kFloatTypes)
                     .Learnable()
                     .OptionalInput("B", kFloatTypes)
                     .Learnable()
                     .OptionalInput("Z", kFloatTypes)
                     .Attr("auto_pad", AttributeType::kString)
                     .Attr("dilations", AttributeType::kInts)
                     .Attr("group", AttributeType::kInt)
                     .Attr("kernel_shape", AttributeType::kInts)
                     .Attr("pads", AttributeType::kInts)
                     .Attr("strides", AttributeType::kInts)
                     .Infer(InferAs("Conv"))
                     .Expand([](ExpandContext& context) {
                       return ExpandFused(context, "Conv", 3);
                     }));
WEFT_REGISTER_OP(WithActivation(OpSchema(kMicrosoftDomain, "FusedGemm"))
                     .Input("A", kFloatTypes)
                     .Input("B", kFloatTypes)
                     .Learnable()
                     .OptionalInput("C", kFloatTypes)
                     .Learnable()
                     .Attr("alpha", AttributeType::kFloat)
                     .Attr("beta", AttributeType::kFloat)
                     .Attr("transA", AttributeType::kInt)
                     .Attr("transB", AttributeType::kInt)
                     .Infer(InferAs("Gemm"))
                     .Expand([](ExpandContext& context) {
                       return ExpandFused(context, "Gemm", 3);
                     }));

// ---- Normalization

// Outputs: y, mean, inverse deviation, and the sum that was normalized; only the first and the last
// are made.
absl::Status InferSkipNormalization(InferenceContext& context) {
  const ValueType type = context.InputType(0);
  context.SetOutput(0, type);
  if (context.HasOutput(1) || context.HasOutput(2)) {
    return context.Error(
        "its outputs mean and inv_std_var are not supported; nothing reads them "
        "in models for inference");
  }
  if (context.num_outputs() > 3) context.SetOutput(3, type);
  return absl::OkStatus();
}

// `beta`: the place of the input beta, or 0 for root mean square normalization.
ExpandFn ExpandSkipNormalization(size_t beta) {
  return [beta](ExpandContext& context) -> absl::StatusOr<Values> {
    GraphBuilder& b = context.builder();
    const Node& node = context.node();
    ValueId sum = b.Op("Add", {node.inputs[0], node.inputs[1]});
    if (const ValueId bias = InputOf(node, beta == 0 ? 3 : 4); bias.valid()) {
      sum = b.Op("Add", {sum, bias});
    }
    const Attributes attributes = {{"axis", int64_t{-1}},
                                   {"epsilon", node.attributes.Float("epsilon", 1e-12f)}};
    Values operands = {sum, node.inputs[2]};
    if (beta != 0 && InputOf(node, beta).valid()) operands.push_back(node.inputs[beta]);
    const ValueId y = b.Op(beta == 0 ? "RMSNormalization" : "LayerNormalization",
                           std::move(operands), attributes);
    WEFT_RETURN_IF_ERROR(b.status());
    Values outputs(std::max<size_t>(node.outputs.size(), 1), kNoValue);
    outputs[0] = y;
    if (Wants(node, 3)) outputs[3] = sum;
    return outputs;
  };
}

OpSchema SkipNormalization(std::string name, size_t beta) {
  OpSchema schema(kMicrosoftDomain, std::move(name));
  schema.Input("input", kFloatTypes)
      .Input("skip", kFloatTypes)
      .Input("gamma", kFloatTypes)
      .Learnable();
  if (beta != 0) schema.OptionalInput("beta", kFloatTypes).Learnable();
  return schema.OptionalInput("bias", kFloatTypes)
      .Learnable()
      .Output("output")
      .OptionalOutput("mean")
      .OptionalOutput("inv_std_var")
      .OptionalOutput("input_skip_bias_sum")
      .Attr("epsilon", AttributeType::kFloat)
      .Infer(InferSkipNormalization)
      .Expand(ExpandSkipNormalization(beta));
}

WEFT_REGISTER_OP(SkipNormalization("SkipLayerNormalization", 3));
WEFT_REGISTER_OP(SkipNormalization("SkipSimplifiedLayerNormalization", 0));

absl::Status InferSimplifiedNormalization(InferenceContext& context) {
  context.SetOutput(0, context.InputType(0));
  if (!context.HasOutput(1)) return absl::OkStatus();
  return context.Error(
      "its output inv_std_var is not supported; nothing reads it in models for "
      "inference");
}

ValueId SimplifiedNormalization(GraphBuilder& b, const Node& node) {
  return b.Op("RMSNormalization", {node.inputs[0], node.inputs[1]},
              {{"axis", node.attributes.Int("axis", -1)},
               {"epsilon", node.attributes.Float("epsilon", 1e-5f)}});
}

// Files have it in either domain.
OpSchema SimplifiedLayerNormalization(std::string domain) {
  return OpSchema(std::move(domain), "SimplifiedLayerNormalization")
      .Input("X", kFloatTypes)
      .Input("scale", kFloatTypes)
      .Learnable()
      .Output("Y")
      .OptionalOutput("inv_std_var")
      .Attr("axis", AttributeType::kInt)
      .Attr("epsilon", AttributeType::kFloat)
      .Attr("stash_type", AttributeType::kInt)
      .Infer(InferSimplifiedNormalization)
      .Expand(ExpandTo(SimplifiedNormalization));
}

WEFT_REGISTER_OP(SimplifiedLayerNormalization(""));
WEFT_REGISTER_OP(SimplifiedLayerNormalization(kMicrosoftDomain));

}  // namespace
}  // namespace weft
