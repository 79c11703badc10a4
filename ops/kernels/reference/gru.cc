// RNN and GRU from the equations in ONNX's descriptions of them, element by element.
#include <algorithm>
#include <string>
#include <vector>

#include "ops/activation.h"
#include "ops/kernels/reference/reference.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// One direction of one sample.
class RecurrentWalk {
 public:
  enum Inputs { kX, kW, kR, kB, kSequenceLens, kInitialH };
  enum Outputs { kY, kFinalH, kGates };

  RecurrentWalk(ReferenceCall& call, const std::vector<Activation>& activations, int64_t gates,
                int64_t direction, int64_t sample)
      : call_(call), activations_(activations), gates_(gates), d_(direction), b_(sample) {
    batch_first_ = call.attributes().Int("layout", 0) == 1;
    const Shape& x = call.input(kX).shape;
    time_ = x.dim(batch_first_ ? 1 : 0);
    batch_ = x.dim(batch_first_ ? 0 : 1);
    inputs_ = x.dim(2);
    hidden_ = call.input(kR).shape.dim(2);
    directions_ = call.input(kR).shape.dim(0);
    h_.assign(hidden_, 0.0);
    for (int64_t i = 0; i < hidden_ && call.has_input(kInitialH); ++i) {
      h_[i] = call.input(kInitialH)[StateOffset() + i];
    }
  }

  void Run() {
    const std::string direction = call_.attributes().String("direction", "forward");
    const bool reverse = direction == "reverse" || d_ == 1;
    const int64_t length = call_.has_input(kSequenceLens)
                               ? static_cast<int64_t>(call_.input(kSequenceLens)[b_])
                               : time_;
    for (int64_t step = 0; step < length; ++step) {
      const int64_t t = reverse ? length - 1 - step : step;
      h_ = gates_ == 1 ? StepRnn(t) : StepGru(t);
      Emit(t);
    }
    for (int64_t i = 0; i < hidden_ && call_.has_output(1); ++i) {
      call_.output(1)[StateOffset() + i] = h_[i];
    }
  }

 private:
  int64_t StateOffset() const {
    return (batch_first_ ? b_ * directions_ + d_ : d_ * batch_ + b_) * hidden_;
  }
  double FromInput(int64_t t, int64_t row) const {
    const int64_t x = (batch_first_ ? b_ * time_ + t : t * batch_ + b_) * inputs_;
    const int64_t w = (d_ * gates_ * hidden_ + row) * inputs_;
    double sum = Bias(row);
    for (int64_t k = 0; k < inputs_; ++k) sum += call_.input(kX)[x + k] * call_.input(kW)[w + k];
    return sum;
  }
  double FromState(const std::vector<double>& state, int64_t row) const {
    const int64_t r = (d_ * gates_ * hidden_ + row) * hidden_;
    double sum = Bias(gates_ * hidden_ + row);
    for (int64_t k = 0; k < hidden_; ++k) sum += state[k] * call_.input(kR)[r + k];
    return sum;
  }
  double Bias(int64_t row) const {
    return call_.has_input(kB) ? call_.input(kB)[d_ * 2 * gates_ * hidden_ + row] : 0.0;
  }
  double Clipped(double x) const {
    const double clip = call_.attributes().Float("clip", 0.0f);
    return clip > 0 ? std::clamp(x, -clip, clip) : x;
  }

  // Applies the activation to the clipped argument; of gate element `i`, keeps for the gradient
  // what sigmoid and tanh make of it, and the argument else.
  double Activated(const Activation& activation, int64_t t, int64_t i, double argument) {
    const double value = activation(Clipped(argument));
    const bool invertible =
        activation.kind == ActivationKind::kSigmoid || activation.kind == ActivationKind::kTanh;
    const bool clips = call_.attributes().Float("clip", 0.0f) > 0;
    Keep(t, i, invertible && !clips ? value : argument);
    return value;
  }
  void Keep(int64_t t, int64_t i, double value) {
    if (!call_.has_output(kGates)) return;
    const int64_t row = d_ * time_ * batch_ + (batch_first_ ? b_ * time_ + t : t * batch_ + b_);
    call_.output(kGates)[row * call_.output(kGates).shape.dim(3) + i] = value;
  }

  std::vector<double> StepRnn(int64_t t) {
    std::vector<double> next(hidden_);
    for (int64_t i = 0; i < hidden_; ++i) {
      next[i] = Activated(activations_[d_], t, i, FromInput(t, i) + FromState(h_, i));
    }
    return next;
  }

  std::vector<double> StepGru(int64_t t) {
    const Activation& f = activations_[2 * d_];
    const Activation& g = activations_[2 * d_ + 1];
    const bool linear = call_.attributes().Int("linear_before_reset", 0) != 0;
    const int64_t n = hidden_;
    std::vector<double> reset(n);
    std::vector<double> seen(n);
    for (int64_t i = 0; i < n; ++i) {
      reset[i] = Activated(f, t, n + i, FromInput(t, n + i) + FromState(h_, n + i));
      seen[i] = reset[i] * h_[i];
    }
    std::vector<double> next(n);
    for (int64_t i = 0; i < n; ++i) {
      const double update = Activated(f, t, i, FromInput(t, i) + FromState(h_, i));
      const double from_state = FromState(linear ? h_ : seen, 2 * n + i);
      if (linear) Keep(t, 3 * n + i, from_state);
      const double state = linear ? reset[i] * from_state : from_state;
      next[i] = (1 - update) * Activated(g, t, 2 * n + i, FromInput(t, 2 * n + i) + state) +
                update * h_[i];
    }
    return next;
  }

  void Emit(int64_t t) {
    if (!call_.has_output(0)) return;
    const int64_t y =
        batch_first_ ? (b_ * time_ + t) * directions_ + d_ : (t * directions_ + d_) * batch_ + b_;
    for (int64_t i = 0; i < hidden_; ++i) call_.output(0)[y * hidden_ + i] = h_[i];
  }

  ReferenceCall& call_;
  const std::vector<Activation>& activations_;
  const int64_t gates_;
  const int64_t d_;
  const int64_t b_;
  bool batch_first_;
  int64_t time_;
  int64_t batch_;
  int64_t inputs_;
  int64_t hidden_;
  int64_t directions_;
  std::vector<double> h_;
};

ReferenceFn Recurrent(int64_t gates, std::vector<std::string> fallback) {
  return [=](ReferenceCall& call) -> absl::Status {
    const int64_t directions = call.input(RecurrentWalk::kR).shape.dim(0);
    const int64_t batch =
        call.input(RecurrentWalk::kX).shape.dim(call.attributes().Int("layout", 0) == 1 ? 0 : 1);
    WEFT_ASSIGN_OR_RETURN(
        const std::vector<Activation> activations,
        ReadActivations(call.attributes(), fallback, static_cast<int>(directions)));
    for (int64_t d = 0; d < directions; ++d) {
      for (int64_t b = 0; b < batch; ++b) RecurrentWalk(call, activations, gates, d, b).Run();
    }
    return absl::OkStatus();
  };
}

}  // namespace

WEFT_REGISTER_REFERENCE_KERNEL("", "RNN", ReferenceKernel(Recurrent(1, {"Tanh"})));
WEFT_REGISTER_REFERENCE_KERNEL("", "GRU", ReferenceKernel(Recurrent(3, {"Sigmoid", "Tanh"})));

}  // namespace weft::cpu
