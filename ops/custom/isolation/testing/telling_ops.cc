// An op whose output is all that the host tells it.
#include <algorithm>
#include <string>
#include <vector>

#include "ops/custom_op.h"

namespace op = weft::custom;

namespace {

constexpr int64_t kNumbers = 64;

void AddTensor(const op::Tensor& tensor, std::vector<double>& told) {
  told.push_back(tensor.dtype);
  told.push_back(tensor.rank);
  for (int32_t axis = 0; axis < tensor.rank; ++axis) {
    told.push_back(static_cast<double>(tensor.dims[axis]));
    told.push_back(static_cast<double>(tensor.global_dims[axis]));
    told.push_back(static_cast<double>(tensor.offset[axis]));
  }
}

void Tell(op::KernelContext& context) {
  std::vector<double> told = {
      static_cast<double>(context.num_inputs()), static_cast<double>(context.num_outputs()),
      static_cast<double>(context.Int("int", -1)), context.Float("float", -1)};
  for (const char c : context.String("string", "")) told.push_back(c);
  for (const int64_t i : context.Ints("ints")) told.push_back(static_cast<double>(i));
  for (const float f : context.Floats("floats")) told.push_back(f);
  for (int i = 0; i < context.num_inputs(); ++i) {
    told.push_back(context.HasInput(i) ? 1 : 0);
    if (context.HasInput(i)) AddTensor(context.Input(i), told);
  }
  AddTensor(context.Output(0), told);
  if (context.Int("step", 0) != 0) told.push_back(static_cast<double>(context.step()));
  told.push_back(context.stream() == nullptr ? 0 : 1);
  double* const out = context.Output(0).Data<double>();
  std::fill(out, out + kNumbers, -7.0);
  std::copy(told.begin(), told.begin() + std::min<ptrdiff_t>(kNumbers, told.size()), out);
}

// As many elements as the second input says, which it asks for while shapes are inferred.
void InferSize(op::InferContext& context) {
  op::Tensor size;
  op::Type type = context.InputType(0);
  type.has_rank = true;
  type.dims = {op::Type::kUnknown};
  if (context.InputValue(1, &size)) type.dims = {size.Data<int64_t>()[0]};
  context.SetOutput(0, type);
}

void RunSize(op::KernelContext& context) {
  float* const y = context.Output(0).Data<float>();
  context.ParallelFor(context.Output(0).Elements(), 1e3, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = static_cast<float>(i * i) / 7;
  });
}

}  // namespace

WEFT_OP_LIBRARY(library) {
  library.Op("telling", "Tell")
      .Input("a", {op::kFloat32})
      .OptionalInput("b")
      .VariadicInput("c")
      .Output("told")
      .Attr("int", WEFT_INT)
      .Attr("float", WEFT_FLOAT)
      .Attr("string", WEFT_STRING)
      .Attr("ints", WEFT_INTS)
      .Attr("floats", WEFT_FLOATS)
      .Attr("step", WEFT_INT)
      .Infer([](op::InferContext& context) {
        op::Type type;
        type.dtype = op::kFloat64;
        type.has_rank = true;
        type.dims = {kNumbers};
        context.SetOutput(0, type);
      })
      .Cpu(Tell)
      .NotDifferentiable();
  library.Op("telling", "Size")
      .Input("x", {op::kFloat32})
      .Input("size", {op::kInt64})
      .ValueInput(1)
      .Output("y")
      .Infer(InferSize)
      .Cpu(RunSize);
}
