// Ops with one mistake each, for the test of `op check`: it must find exactly that one.
#include <stdexcept>

#include "ops/custom_op.h"

namespace op = weft::custom;

namespace {

// y = x * x.
template <typename Store>
void Square(op::KernelContext& context, Store store) {
  context.Dispatch<float, double>(context.Input(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = context.Input(0).Data<T>();
    T* y = context.Output(0).Data<T>();
    const int64_t elements = context.Input(0).Elements();
    context.ParallelFor(elements, 1.0, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) store(y, i, elements, x[i] * x[i]);
    });
  });
}

constexpr auto kStore = [](auto* y, int64_t i, int64_t, auto value) { y[i] = value; };

void RunSquare(op::KernelContext& context) { Square(context, kStore); }

void LikeInput(op::InferContext& context) { context.SetOutput(0, context.InputType(0)); }

// d(x * x) = 2 x.
void RightGradient(op::GradientContext& context) {
  const op::Value twice = context.Op("", "Add", {context.Input(0), context.Input(0)});
  context.SetInputGradient(0, context.Op("", "Mul", {twice, context.OutputGradient(0)}));
}

void WrongGradient(op::GradientContext& context) {
  context.SetInputGradient(0, context.Op("", "Mul", {context.Input(0), context.OutputGradient(0)}));
}

op::OpBuilder& Declare(op::Library& library, const char* name) {
  return library.Op("faulty", name)
      .Input("x", {op::kFloat32, op::kFloat64})
      .Output("y")
      .Infer(LikeInput)
      .Cpu(RunSquare)
      .Gradient(RightGradient)
      .Sharding("... -> ...");
}

}  // namespace

WEFT_OP_LIBRARY(library) {
  Declare(library, "None");
  Declare(library, "Gradient").Gradient(WrongGradient);
  // Says twice as many rows as it writes.
  Declare(library, "Shape").Sharding("n k -> m k").Infer([](op::InferContext& context) {
    op::Type type = context.InputType(0);
    if (op::Type::IsKnown(type.dims[0])) {
      type.dims[0] *= 2;
    } else {
      type.dims[0] = op::Type::kUnknown;
    }
    context.SetOutput(0, type);
  });
  // Writes one element behind the end.
  Declare(library, "Overrun").Cpu([](op::KernelContext& context) {
    Square(context, [](auto* y, int64_t i, int64_t elements, auto value) {
      y[i] = value;
      if (i + 1 == elements) y[elements] = value;
    });
  });
  // Its last axis is added up, which "..." does not say.
  Declare(library, "Sharding")
      .Sharding("... n -> ... n")
      .Cpu([](op::KernelContext& context) {
        context.Dispatch<float, double>(context.Input(0).dtype, [&](auto zero) {
          using T = decltype(zero);
          const op::Tensor x = context.Input(0);
          T* y = context.Output(0).Data<T>();
          const int64_t width = x.dims[x.rank - 1];
          for (int64_t i = 0; i < x.Elements(); ++i) {
            y[i] = x.Data<T>()[i] + (i % width > 0 ? y[i - 1] : T(0));
          }
        });
      })
      .Gradient(nullptr);
  // Every iteration adds to the first element.
  Declare(library, "Race")
      .Cpu([](op::KernelContext& context) {
        Square(context, kStore);
        context.Dispatch<float, double>(context.Input(0).dtype, [&](auto zero) {
          using T = decltype(zero);
          const T* x = context.Input(0).Data<T>();
          T* y = context.Output(0).Data<T>();
          context.ParallelFor(context.Input(0).Elements(), 1.0, [=](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) y[0] += x[i];
          });
        });
      })
      .Gradient(nullptr)
      .Sharding("n! -> n!");
  Declare(library, "Throws").Cpu([](op::KernelContext& context) {
    context.ParallelFor(4, 1e6, [](int64_t, int64_t) { throw std::runtime_error("out of ideas"); });
  });
  Declare(library, "NoType").Infer([](op::InferContext&) {});
}
