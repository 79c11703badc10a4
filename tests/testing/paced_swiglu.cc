// The op of docs/custom-ops.md, whose forward pass takes as long as the environment of the worker
// says: WEFT_TEST_PACE="MILLISECONDS FIRST FACTOR", each call so many milliseconds, from call
// number FIRST on FACTOR times as many. It stands for a computation on a machine that becomes
// slower, and takes no processor.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "ops/custom_op.h"

namespace op = weft::custom;

namespace {

struct Pace {
  double milliseconds = 0;
  long first = 0;
  double factor = 1;
};

const Pace& PaceOfWorker() {
  static const Pace pace = [] {
    Pace read;
    const char* const text = std::getenv("WEFT_TEST_PACE");
    std::istringstream(text == nullptr ? "" : text) >> read.milliseconds >> read.first >>
        read.factor;
    return read;
  }();
  return pace;
}

void RunSwiGlu(op::KernelContext& context) {
  static std::atomic<long> calls{0};
  const Pace& pace = PaceOfWorker();
  const double factor = calls++ >= pace.first ? pace.factor : 1;
  std::this_thread::sleep_for(
      std::chrono::duration<double, std::milli>(factor * pace.milliseconds));
  const float* gate = context.Input(0).Data<float>();
  const float* up = context.Input(1).Data<float>();
  float* y = context.Output(0).Data<float>();
  for (int64_t i = 0; i < context.Output(0).Elements(); ++i) {
    y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  }
}

void InferLikeGate(op::InferContext& context) { context.SetOutput(0, context.InputType(0)); }

// With s = sigmoid(gate): dy up (s + gate s (1 - s)), and dy gate s.
void SwiGluGradient(op::GradientContext& context) {
  const auto apply = [&context](const char* type, auto a, auto b) {
    return context.Op("", type, {a, b});
  };
  const auto gate = context.Input(0), up = context.Input(1), dy = context.OutputGradient(0);
  const auto s = context.Op("", "Sigmoid", {gate});
  const auto gated = apply("Mul", gate, s);
  const auto slope = apply("Add", s, apply("Sub", gated, apply("Mul", gated, s)));
  context.SetInputGradient(0, apply("Mul", apply("Mul", dy, up), slope));
  context.SetInputGradient(1, apply("Mul", dy, gated));
}

}  // namespace

WEFT_OP_LIBRARY(library) {
  library.Op("example", "SwiGlu")
      .Input("gate", {op::kFloat32})
      .Input("up", {op::kFloat32})
      .Output("y")
      .Infer(InferLikeGate)
      .Cpu(RunSwiGlu)
      .Gradient(SwiGluGradient)
      .Sharding("..., ... -> ...; linear 1");
}
