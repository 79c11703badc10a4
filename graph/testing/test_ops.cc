#include "graph/testing/test_ops.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

OpSchema TestOp(std::string name) { return OpSchema("test", std::move(name)); }

absl::Status InferLikeFirst(InferenceContext& context) {
  context.SetOutput(0, context.InputType(0));
  if (auto dims = context.InputDims(0)) context.SetOutputDims(0, *std::move(dims));
  return absl::OkStatus();
}

absl::Status InferNegate(InferenceContext& context) {
  context.SetOutput(0, context.InputType(0));
  return absl::OkStatus();
}

absl::Status InferAdd(InferenceContext& context) {
  const SymbolicShape& a = context.InputShape(0);
  const SymbolicShape& b = context.InputShape(1);
  if (a.has_rank() && b.has_rank() && a.rank() != b.rank()) {
    return context.Error("the ranks differ");
  }
  context.SetOutput(0, context.InputType(0));
  return absl::OkStatus();
}

absl::Status InferShapeOp(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  context.SetOutput(
      0, DType::kInt64,
      x.has_rank() ? SymbolicShape(Shape{x.rank()}) : SymbolicShape(std::vector<Dim>{Dim()}));
  if (x.has_rank()) context.SetOutputDims(0, x.dims());
  return absl::OkStatus();
}

absl::Status InferGather(InferenceContext& context) {
  context.SetOutput(0, context.InputType(0).dtype, context.InputShape(1));
  const auto from = context.InputDims(0);
  const auto indices = context.InputDims(1);
  if (!from.has_value() || !indices.has_value()) return absl::OkStatus();
  std::vector<Dim> taken;
  for (const Dim& index : *indices) {
    if (!index.is_known()) return absl::OkStatus();
    if (index.size() >= static_cast<int64_t>(from->size())) {
      return context.Error(absl::StrCat("index ", index.size(), " is out of range"));
    }
    taken.push_back((*from)[index.size()]);
  }
  context.SetOutputDims(0, std::move(taken));
  return absl::OkStatus();
}

absl::Status InferConcat(InferenceContext& context) {
  Dim size = 0;
  std::optional<std::vector<Dim>> all = std::vector<Dim>();
  for (int i = 0; i < context.num_inputs(); ++i) {
    const Dim part = context.InputShape(i).has_rank() ? context.InputShape(i).dim(0) : Dim();
    size = size.is_known() && part.is_known() ? Dim(size.size() + part.size()) : Dim();
    const auto dims = context.InputDims(i);
    if (!dims.has_value()) all.reset();
    if (all.has_value()) all->insert(all->end(), dims->begin(), dims->end());
  }
  context.SetOutput(0, context.InputType(0).dtype, SymbolicShape(std::vector<Dim>{size}));
  if (all.has_value()) context.SetOutputDims(0, *std::move(all));
  return absl::OkStatus();
}

// The output's shape is the value of input `index`.
absl::Status InferFromShapeInput(InferenceContext& context, int index, DType dtype) {
  if (const auto dims = context.InputDims(index)) {
    context.SetOutput(0, dtype, SymbolicShape(*dims));
    return absl::OkStatus();
  }
  const SymbolicShape& shape = context.InputShape(index);
  if (!shape.has_rank() || !shape.dim(0).is_known()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  context.SetOutput(0, dtype, SymbolicShape(std::vector<Dim>(shape.dim(0).size())));
  return absl::OkStatus();
}

absl::Status InferReshape(InferenceContext& context) {
  return InferFromShapeInput(context, 1, context.InputType(0).dtype);
}

absl::Status InferFill(InferenceContext& context) {
  return InferFromShapeInput(context, 0, DType::kFloat32);
}

absl::Status InferRelabel(InferenceContext& context) {
  std::vector<Dim> dims;
  for (const int64_t size : context.attributes().Ints("shape")) dims.emplace_back(size);
  context.SetOutput(0, context.InputType(0).dtype, SymbolicShape(std::move(dims)));
  return absl::OkStatus();
}

absl::Status InferSplit(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  if (!x.has_rank() || x.rank() == 0) return absl::InvalidArgumentError("no axis to split");
  std::vector<Dim> dims = x.dims();
  dims[0] = dims[0].is_known() ? Dim(dims[0].size() / 2) : Dim();
  for (int i = 0; i < 2; ++i) {
    context.SetOutput(i, context.InputType(0).dtype, SymbolicShape(dims));
  }
  return absl::OkStatus();
}

absl::Status InferFind(InferenceContext& context) {
  context.SetOutput(0, DType::kInt64, SymbolicShape(std::vector<Dim>{Dim()}));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(TestOp("Add").Input("a").Input("b").Output("y").Infer(InferAdd));
WEFT_REGISTER_OP(TestOp("Negate").Input("x").Output("y").Infer(InferNegate));
WEFT_REGISTER_OP(TestOp("Random").Input("x").Output("y").Infer(InferNegate).Stateful());
WEFT_REGISTER_OP(TestOp("Same").Input("x").Output("y").Infer(InferLikeFirst).Alias(0, 0));
WEFT_REGISTER_OP(TestOp("Relabel")
                     .Input("x")
                     .Output("y")
                     .Attr("shape", AttributeType::kInts, true)
                     .Infer(InferRelabel)
                     .Alias(0, 0));
WEFT_REGISTER_OP(TestOp("Shape").Input("x").Output("y").Infer(InferShapeOp));
WEFT_REGISTER_OP(TestOp("Gather")
                     .Input("x")
                     .Input("indices", {DType::kInt32, DType::kInt64})
                     .Output("y")
                     .Infer(InferGather));
WEFT_REGISTER_OP(TestOp("Concat").VariadicInput("x").Output("y").Infer(InferConcat));
WEFT_REGISTER_OP(TestOp("Reshape")
                     .Input("x")
                     .Input("shape", {DType::kInt64})
                     .Output("y")
                     .Infer(InferReshape)
                     .Alias(0, 0)
                     .ValueInputs({1}));
WEFT_REGISTER_OP(
    TestOp("Split").Input("x").Output("first").OptionalOutput("second").Infer(InferSplit));
WEFT_REGISTER_OP(TestOp("FoldTo")
                     .Input("x")
                     .Input("shape", {DType::kInt64})
                     .Output("y")
                     .Infer(InferReshape)
                     .NoOpWhenSameShape()
                     .ValueInputs({1}));
WEFT_REGISTER_OP(
    TestOp("Fill").Input("shape", {DType::kInt64}).Output("y").Infer(InferFill).ValueInputs({0}));
WEFT_REGISTER_OP(TestOp("Find").Input("x").Output("y").Infer(InferFind));
WEFT_REGISTER_OP(TestOp("Strict")
                     .Input("x", {DType::kFloat32})
                     .OptionalInput("bias")
                     .Output("y")
                     .Attr("level", AttributeType::kInt, true)
                     .Infer(InferNegate));
WEFT_REGISTER_OP(TestOp("Send").Input("x").Class(OpClass::kCommunication));
WEFT_REGISTER_OP(
    TestOp("Accumulate").Input("x").Output("y").Infer(InferNegate).Class(OpClass::kBoundary));
WEFT_REGISTER_OP(TestOp("Block")
                     .Input("x")
                     .Output("y")
                     .Infer(InferNegate)
                     .Alias(0, 0)
                     .Class(OpClass::kBoundary));

absl::StatusOr<std::vector<ValueId>> ExpandSubtract(ExpandContext& context) {
  GraphBuilder& builder = context.builder();
  const std::vector<ValueId>& x = context.node().inputs;
  const ValueId negated = builder.Ops("test", "Negate", {x[1]}, {}, {true})[0];
  return builder.Ops("test", "Add", {x[0], negated}, {}, {true});
}

absl::StatusOr<std::vector<ValueId>> ExpandVanish(ExpandContext& context) {
  const ValueId x = context.node().inputs[0];
  return context.builder().Ops("test", "Subtract", {x, x}, {}, {true});
}

absl::StatusOr<std::vector<ValueId>> ExpandUnsure(ExpandContext& context) {
  context.builder().Ops("test", "Negate", {context.node().inputs[0]}, {}, {true});
  return absl::UnimplementedError("the rank of x is not known");
}

absl::StatusOr<std::vector<ValueId>> ExpandEndless(ExpandContext& context) {
  GraphBuilder& builder = context.builder();
  const ValueId x = builder.Ops("test", "Negate", {context.node().inputs[0]}, {}, {true})[0];
  return builder.Ops("test", "Endless", {x}, {}, {true});
}

WEFT_REGISTER_OP(
    TestOp("Subtract").Input("a").Input("b").Output("y").Infer(InferAdd).Expand(ExpandSubtract));
WEFT_REGISTER_OP(TestOp("Vanish").Input("x").Output("y").Infer(InferNegate).Expand(ExpandVanish));
WEFT_REGISTER_OP(TestOp("Unsure").Input("x").Output("y").Infer(InferNegate).Expand(ExpandUnsure));
WEFT_REGISTER_OP(TestOp("Endless").Input("x").Output("y").Infer(InferNegate).Expand(ExpandEndless));

ValueType TypeOfDims(DType dtype, const std::vector<TestDim>& test_dims) {
  std::vector<Dim> dims;
  for (const TestDim& test_dim : test_dims) dims.push_back(test_dim.dim);
  return {ValueKind::kTensor, dtype, SymbolicShape(std::move(dims))};
}

Tensor Map(const Tensor& x, const std::function<float(float)>& fn) {
  std::vector<float> values(x.data<float>().begin(), x.data<float>().end());
  std::ranges::transform(values, values.begin(), fn);
  return Tensor::Of<float>(x.shape(), values);
}

Shape ShapeOf(const Tensor& shape) { return Shape(shape.data<int64_t>()); }

absl::StatusOr<Tensor> Compute(const std::string& op, const std::vector<Tensor>& in) {
  if (op == "Negate") return Map(in[0], [](float x) { return -x; });
  if (op == "Add") {
    const float* b = in[1].data<float>().data();
    return Map(in[0], [&b](float x) { return x + *b++; });
  }
  if (op == "Same") return in[0];
  if (op == "Reshape" || op == "FoldTo") return in[0].Reshaped(ShapeOf(in[1]));
  if (op == "Fill") return Tensor::Zeros(DType::kFloat32, ShapeOf(in[0]));
  if (op == "Shape") {
    const auto dims = in[0].shape().dims();
    return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(dims.size())}, dims);
  }
  if (op == "Concat" || op == "Gather") {
    std::vector<int64_t> all;
    if (op == "Gather") {
      for (const int64_t i : in[1].data<int64_t>()) all.push_back(in[0].data<int64_t>()[i]);
    } else {
      for (const Tensor& x : in) {
        all.insert(all.end(), x.data<int64_t>().begin(), x.data<int64_t>().end());
      }
    }
    return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(all.size())}, all);
  }
  if (op == "Find") {
    std::vector<int64_t> found;
    for (int64_t i = 0; i < in[0].num_elements(); ++i) {
      if (in[0].data<float>()[i] != 0) found.push_back(i);
    }
    return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(found.size())}, found);
  }
  return absl::UnimplementedError(absl::StrCat("no kernel for ", op));
}

}  // namespace

ValueType Floats(const std::vector<TestDim>& dims) { return TypeOfDims(DType::kFloat32, dims); }

ValueType Int64s(const std::vector<TestDim>& dims) { return TypeOfDims(DType::kInt64, dims); }

ValueId AddOp(Graph& graph, const std::string& name, const std::string& op,
              std::vector<ValueId> inputs, Attributes attributes) {
  Graph::NodeSpec spec;
  spec.name = absl::StrCat(name, "_node");
  spec.domain = "test";
  spec.op = op;
  spec.attributes = std::move(attributes);
  spec.inputs = std::move(inputs);
  spec.outputs = {name};
  const NodeId id = graph.AddNode(std::move(spec));
  const absl::Status status = InferNode(graph, id);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::abort();
  }
  return graph.node(id).outputs.front();
}

ValueId AddInts(Graph& graph, const std::string& name, const std::vector<int64_t>& values) {
  return graph.AddConstant(name,
                           Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())}, values));
}

Tensor FloatsOf(const Shape& shape, float value) {
  return Tensor::Of<float>(shape, std::vector<float>(shape.num_elements(), value));
}

absl::StatusOr<std::vector<Tensor>> TestEvaluator::Evaluate(const Graph&, const Node& node,
                                                            const std::vector<Tensor>& inputs) {
  ++calls;
  if (std::ranges::find(missing, node.op) != missing.end()) {
    return absl::UnimplementedError(absl::StrCat("no kernel for ", node.op));
  }
  WEFT_ASSIGN_OR_RETURN(Tensor output, Compute(node.op, inputs));
  return std::vector<Tensor>{std::move(output)};
}

}  // namespace weft::testing
