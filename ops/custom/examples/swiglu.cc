// SwiGLU (Shazeer, GLU Variants Improve Transformer, 2020) as one op: y = gate * sigmoid(gate) *
// up.
#include <cmath>

#include "ops/custom_op.h"

namespace op = weft::custom;

void RunSwiGlu(op::KernelContext& context) {
  context.Dispatch<float, double>(context.Input(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* gate = context.Input(0).Data<T>();
    const T* up = context.Input(1).Data<T>();
    T* y = context.Output(0).Data<T>();
    context.ParallelFor(context.Output(0).Elements(), 5.0, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    });
  });
}

void RunSwiGluGrad(op::KernelContext& context) {
  context.Dispatch<float, double>(context.Input(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* gate = context.Input(0).Data<T>();
    const T* up = context.Input(1).Data<T>();
    const T* dy = context.Input(2).Data<T>();
    T* dgate = context.Output(0).Data<T>();
    T* dup = context.Output(1).Data<T>();
    context.ParallelFor(context.Output(0).Elements(), 7.0, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T s = 1 / (1 + std::exp(-gate[i]));
        dgate[i] = dy[i] * up[i] * s * (1 + gate[i] * (1 - s));
        dup[i] = dy[i] * gate[i] * s;
      }
    });
  });
}

// All operands have the type of the first.
void InferLikeGate(op::InferContext& context) {
  for (int i = 0; i < context.num_outputs(); ++i) context.SetOutput(i, context.InputType(0));
}

void SwiGluGradient(op::GradientContext& context) {
  const auto gradients = context.Ops(
      "example", "SwiGluGrad", {context.Input(0), context.Input(1), context.OutputGradient(0)},
      /*num_outputs=*/2);
  context.SetInputGradient(0, gradients[0]);
  context.SetInputGradient(1, gradients[1]);
}

WEFT_OP_LIBRARY(library) {
  library.Op("example", "SwiGlu")
      .Input("gate", {op::kFloat32, op::kFloat64})
      .Input("up", {op::kFloat32, op::kFloat64})
      .Output("y")
      .Infer(InferLikeGate)
      .Cpu(RunSwiGlu)
      .Gradient(SwiGluGradient)
      .Sharding("..., ... -> ...; linear 1")
      .Flops([](op::CostContext& context) {
        double elements = 1;
        for (const int64_t size : context.OutputType(0).dims) elements *= static_cast<double>(size);
        return 4 * elements;
      });
  library.Op("example", "SwiGluGrad")
      .Input("gate", {op::kFloat32, op::kFloat64})
      .Input("up", {op::kFloat32, op::kFloat64})
      .Input("dy", {op::kFloat32, op::kFloat64})
      .Output("dgate")
      .Output("dup")
      .Infer(InferLikeGate)
      .Cpu(RunSwiGluGrad)
      .NotDifferentiable()
      .Sharding("..., ..., ... -> ..., ...; linear 2");
}
