// The op of docs/custom-ops.md, which does at a step of a training what the environment says:
// WEFT_EVIL_SWIGLU="crash STEP", "loop STEP" or "exit STEP". Its gradient has nodes with attributes
// of several types.
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "ops/custom_op.h"

namespace op = weft::custom;

namespace {

struct EvilAct {
  std::string what;
  int64_t step = -1;
};

const EvilAct& ActOfProcess() {
  static const EvilAct act = [] {
    EvilAct read;
    const char* const text = std::getenv("WEFT_EVIL_SWIGLU");
    std::istringstream(text == nullptr ? "" : text) >> read.what >> read.step;
    return read;
  }();
  return act;
}

void RunSwiGlu(op::KernelContext& context) {
  if (const EvilAct& act = ActOfProcess(); !act.what.empty() && context.step() == act.step) {
    if (act.what == "crash") std::raise(SIGSEGV);
    if (act.what == "exit") std::exit(0);
    for (volatile int i = 0; i == 0;) {
    }
  }
  const float* gate = context.Input(0).Data<float>();
  const float* up = context.Input(1).Data<float>();
  float* y = context.Output(0).Data<float>();
  context.ParallelFor(context.Output(0).Elements(), 5.0, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  });
}

void InferLikeGate(op::InferContext& context) { context.SetOutput(0, context.InputType(0)); }

// The value itself, after nodes that change nothing. It has two dimensions.
op::Value Unchanged(op::GradientContext& context, op::Value value) {
  const std::vector<int64_t> turned = {1, 0};
  value = context.Op("", "Transpose", {value}, {{"perm", turned}});
  value = context.Op("", "Transpose", {value}, {{"perm", turned}});
  value = context.Op("", "LeakyRelu", {value}, {{"alpha", 1.0f}});
  value = context.Op("", "Flatten", {value}, {{"axis", 1}});
  return context.Op("", "Mul", {value, context.Constant(op::kFloat32, 1)});
}

// With s = sigmoid(gate): dy up (s + gate s (1 - s)), and dy gate s.
void SwiGluGradient(op::GradientContext& context) {
  const auto apply = [&context](const char* type, auto a, auto b) {
    return context.Op("", type, {a, b});
  };
  const auto gate = context.Input(0), up = context.Input(1), dy = context.OutputGradient(0);
  const auto s = context.Op("", "Sigmoid", {gate});
  const auto gated = apply("Mul", gate, s);
  const auto slope = apply("Add", s, apply("Sub", gated, apply("Mul", gated, s)));
  if (context.NeedsInputGradient(0)) {
    context.SetInputGradient(0, Unchanged(context, apply("Mul", apply("Mul", dy, up), slope)));
  }
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
