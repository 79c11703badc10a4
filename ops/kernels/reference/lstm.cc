// LSTM from the equations in ONNX's description of it, element by element.
#include <algorithm>
#include <string>
#include <vector>

#include "ops/activation.h"
#include "ops/kernels/reference/reference.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// One direction of one sample.
class LstmWalk {
 public:
  enum Inputs { kX, kW, kR, kB, kSequenceLens, kInitialH, kInitialC, kP };
  enum Outputs { kY, kFinalH, kFinalC, kGates, kCells };
  enum GateOrder { kInput, kOutput, kForget, kCandidate };

  LstmWalk(ReferenceCall& call, const std::vector<Activation>& activations, int64_t direction,
           int64_t sample)
      : call_(call), activations_(activations), d_(direction), b_(sample) {
    batch_first_ = call.attributes().Int("layout", 0) == 1;
    const Shape& x = call.input(kX).shape;
    time_ = x.dim(batch_first_ ? 1 : 0);
    batch_ = x.dim(batch_first_ ? 0 : 1);
    inputs_ = x.dim(2);
    hidden_ = call.input(kR).shape.dim(2);
    directions_ = call.input(kR).shape.dim(0);
    h_ = StartState(kInitialH);
    c_ = StartState(kInitialC);
  }

  void Run() {
    const std::string direction = call_.attributes().String("direction", "forward");
    const bool reverse = direction == "reverse" || d_ == 1;
    const int64_t length = call_.has_input(kSequenceLens)
                               ? static_cast<int64_t>(call_.input(kSequenceLens)[b_])
                               : time_;
    for (int64_t step = 0; step < length; ++step) Step(reverse ? length - 1 - step : step);
    EndState(1, h_);
    EndState(2, c_);
  }

 private:
  int64_t StateOffset() const {
    return (batch_first_ ? b_ * directions_ + d_ : d_ * batch_ + b_) * hidden_;
  }
  std::vector<double> StartState(int input) const {
    std::vector<double> state(hidden_, 0.0);
    if (!call_.has_input(input)) return state;
    for (int64_t i = 0; i < hidden_; ++i) state[i] = call_.input(input)[StateOffset() + i];
    return state;
  }
  void EndState(int output, const std::vector<double>& state) {
    if (!call_.has_output(output)) return;
    for (int64_t i = 0; i < hidden_; ++i) call_.output(output)[StateOffset() + i] = state[i];
  }

  // Row `row` of W and R of this direction times the input and the state, with both biases.
  double Product(int64_t t, int64_t row) const {
    double sum = 0;
    const int64_t x = (batch_first_ ? b_ * time_ + t : t * batch_ + b_) * inputs_;
    const int64_t w = (d_ * 4 * hidden_ + row) * inputs_;
    const int64_t r = (d_ * 4 * hidden_ + row) * hidden_;
    for (int64_t k = 0; k < inputs_; ++k) sum += call_.input(kX)[x + k] * call_.input(kW)[w + k];
    for (int64_t k = 0; k < hidden_; ++k) sum += h_[k] * call_.input(kR)[r + k];
    if (call_.has_input(kB)) {
      sum += call_.input(kB)[d_ * 8 * hidden_ + row];
      sum += call_.input(kB)[(d_ * 8 + 4) * hidden_ + row];
    }
    return sum;
  }

  double Peephole(int64_t gate, int64_t i, double state) const {
    return call_.has_input(kP) ? call_.input(kP)[(d_ * 3 + gate) * hidden_ + i] * state : 0.0;
  }

  double Clipped(double x) const {
    const double clip = call_.attributes().Float("clip", 0.0f);
    return clip > 0 ? std::clamp(x, -clip, clip) : x;
  }

  // Sigmoid and tanh gates are kept for the gradient as they are, others by their arguments.
  bool KeepsActivated() const {
    return call_.attributes().Float("clip", 0.0f) <= 0 &&
           activations_[3 * d_].kind == ActivationKind::kSigmoid &&
           activations_[3 * d_ + 1].kind == ActivationKind::kTanh &&
           activations_[3 * d_ + 2].kind == ActivationKind::kTanh;
  }
  void Keep(int64_t t, int64_t i, const std::vector<double>& gates) {
    const int64_t row = d_ * time_ * batch_ + (batch_first_ ? b_ * time_ + t : t * batch_ + b_);
    for (int64_t gate = 0; gate < 4 && call_.has_output(kGates); ++gate) {
      call_.output(kGates)[(row * 4 + gate) * hidden_ + i] = gates[gate];
    }
    if (call_.has_output(kCells)) call_.output(kCells)[row * hidden_ + i] = c_[i];
  }

  void Step(int64_t t) {
    const Activation& f = activations_[3 * d_];
    const Activation& g = activations_[3 * d_ + 1];
    const Activation& h = activations_[3 * d_ + 2];
    const bool couple = call_.attributes().Int("input_forget", 0) != 0;
    std::vector<double> next(hidden_);
    for (int64_t i = 0; i < hidden_; ++i) {
      const auto argument = [&](int64_t gate) { return Product(t, gate * hidden_ + i); };
      const double to_in = argument(kInput) + Peephole(kInput, i, c_[i]);
      const double to_forget = argument(kForget) + Peephole(kForget, i, c_[i]);
      const double in = f(Clipped(to_in));
      const double forget = couple ? 1 - in : f(Clipped(to_forget));
      const double candidate = g(Clipped(argument(kCandidate)));
      c_[i] = forget * c_[i] + in * candidate;
      const double to_out = argument(kOutput) + Peephole(kOutput, i, c_[i]);
      const double out = f(Clipped(to_out));
      next[i] = out * h(c_[i]);
      if (KeepsActivated()) {
        Keep(t, i, {in, out, forget, candidate});
      } else {
        Keep(t, i, {to_in, to_out, to_forget, argument(kCandidate)});
      }
    }
    h_ = next;
    if (!call_.has_output(0)) return;
    const int64_t y =
        batch_first_ ? (b_ * time_ + t) * directions_ + d_ : (t * directions_ + d_) * batch_ + b_;
    for (int64_t i = 0; i < hidden_; ++i) call_.output(0)[y * hidden_ + i] = h_[i];
  }

  ReferenceCall& call_;
  const std::vector<Activation>& activations_;
  const int64_t d_;
  const int64_t b_;
  bool batch_first_;
  int64_t time_;
  int64_t batch_;
  int64_t inputs_;
  int64_t hidden_;
  int64_t directions_;
  std::vector<double> h_;
  std::vector<double> c_;
};

absl::Status Lstm(ReferenceCall& call) {
  const int64_t directions = call.input(LstmWalk::kR).shape.dim(0);
  const int64_t batch =
      call.input(LstmWalk::kX).shape.dim(call.attributes().Int("layout", 0) == 1 ? 0 : 1);
  WEFT_ASSIGN_OR_RETURN(const std::vector<Activation> activations,
                        ReadActivations(call.attributes(), {"Sigmoid", "Tanh", "Tanh"},
                                        static_cast<int>(directions)));
  for (int64_t d = 0; d < directions; ++d) {
    for (int64_t b = 0; b < batch; ++b) LstmWalk(call, activations, d, b).Run();
  }
  return absl::OkStatus();
}

}  // namespace

WEFT_REGISTER_REFERENCE_KERNEL("", "LSTM", ReferenceKernel(Lstm));

}  // namespace weft::cpu
