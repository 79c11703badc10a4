// LstmGrad, GruGrad and RnnGrad by the chain rule, element by element and step by step, from what
// the forward ops keep of their gates.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "ops/activation.h"
#include "ops/kernels/reference/reference.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

using Row = std::vector<double>;

// One direction of one sample.
class BackwardWalk {
 public:
  enum Inputs {
    kDy,
    kDfinalH,
    kDfinalC,
    kR,
    kP,
    kSequenceLens,
    kInitialH,
    kInitialC,
    kY,
    kGates,
    kCells
  };
  enum Outputs { kDgates, kPreviousH, kDinitialH, kPreviousC, kDinitialC };
  enum GruOutputs { kDfromState = 3, kSeen = 4 };

  BackwardWalk(ReferenceCall& call, const std::vector<Activation>& activations, int64_t gates,
               int64_t direction, int64_t sample)
      : call_(call), gates_(gates), d_(direction), b_(sample) {
    batch_first_ = call.attributes().Int("layout", 0) == 1;
    const Shape& rows = call.input(kGates).shape;
    directions_ = rows.dim(0);
    time_ = rows.dim(batch_first_ ? 2 : 1);
    batch_ = rows.dim(batch_first_ ? 1 : 2);
    hidden_ = call.input(kR).shape.dim(2);
    clip_ = call.attributes().Float("clip", 0.0f);
    const int64_t own = static_cast<int64_t>(activations.size()) / directions_;
    activations_.assign(activations.begin() + d_ * own, activations.begin() + (d_ + 1) * own);
    const bool sigmoid = activations_[0].kind == ActivationKind::kSigmoid;
    const bool standard_lstm = gates != 4 || (sigmoid && IsTanh(1) && IsTanh(2));
    keeps_activated_ = clip_ <= 0 && standard_lstm;
  }

  void Run() {
    const std::string direction = call_.attributes().String("direction", "forward");
    const bool reverse = direction == "reverse" || d_ == 1;
    const int64_t length = call_.has_input(kSequenceLens)
                               ? static_cast<int64_t>(call_.input(kSequenceLens)[b_])
                               : time_;
    dh_ = State(kDfinalH);
    dc_ = State(kDfinalC);
    for (int64_t step = length - 1; step >= 0; --step) {
      const int64_t t = reverse ? length - 1 - step : step;
      const int64_t before = reverse ? t + 1 : t - 1;
      for (int64_t i = 0; i < hidden_ && call_.has_input(kDy); ++i) {
        dh_[i] += call_.input(kDy)[YRow(t) + i];
      }
      Row old(hidden_);
      for (int64_t i = 0; i < hidden_ && step > 0; ++i) old[i] = call_.input(kY)[YRow(before) + i];
      if (step == 0) old = State(kInitialH);
      Put(kPreviousH, t, old);
      if (gates_ == 4) {
        StepLstm(t, step > 0 ? before : -1);
      } else if (gates_ == 3) {
        StepGru(t, old);
      } else {
        StepRnn(t);
      }
    }
    PutState(kDinitialH, dh_);
    if (gates_ == 4) PutState(kDinitialC, dc_);
  }

 private:
  struct Gate {
    double value = 0;
    double slope = 0;
  };

  bool IsTanh(int i) const { return activations_[i].kind == ActivationKind::kTanh; }
  int64_t FlatRow(int64_t t) const {
    return d_ * time_ * batch_ + (batch_first_ ? b_ * time_ + t : t * batch_ + b_);
  }
  int64_t YRow(int64_t t) const {
    const int64_t row =
        batch_first_ ? (b_ * time_ + t) * directions_ + d_ : (t * directions_ + d_) * batch_ + b_;
    return row * hidden_;
  }
  int64_t StateRow() const {
    return (batch_first_ ? b_ * directions_ + d_ : d_ * batch_ + b_) * hidden_;
  }
  Row State(int input) const {
    Row state(hidden_, 0.0);
    if (!call_.has_input(input)) return state;
    for (int64_t i = 0; i < hidden_; ++i) state[i] = call_.input(input)[StateRow() + i];
    return state;
  }
  void PutState(int output, const Row& state) {
    if (!call_.has_output(output)) return;
    for (int64_t i = 0; i < hidden_; ++i) call_.output(output)[StateRow() + i] = state[i];
  }
  void Put(int output, int64_t t, const Row& row) {
    if (!call_.has_output(output)) return;
    const auto width = static_cast<int64_t>(row.size());
    for (int64_t i = 0; i < width; ++i) call_.output(output)[FlatRow(t) * width + i] = row[i];
  }

  // Element `i` of what was kept of all gates at time t.
  Gate GateAt(int64_t t, int64_t i, int activation) const {
    const int64_t width = call_.input(kGates).shape.dim(3);
    const double kept = call_.input(kGates)[FlatRow(t) * width + i];
    const Activation& f = activations_[activation];
    const bool invertible = f.kind == ActivationKind::kSigmoid || f.kind == ActivationKind::kTanh;
    if (keeps_activated_ && invertible) {
      return {kept, f.kind == ActivationKind::kTanh ? 1 - kept * kept : kept * (1 - kept)};
    }
    const double argument = clip_ > 0 ? std::clamp(kept, -clip_, clip_) : kept;
    return {f(argument), argument == kept ? f.Slope(argument) : 0};
  }
  double Peephole(int64_t gate, int64_t i) const {
    return call_.has_input(kP) ? call_.input(kP)[(d_ * 3 + gate) * hidden_ + i] : 0.0;
  }
  // What the gates [first, first + count) of R pass on to state element k.
  double ThroughR(const Row& dgates, int64_t first, int64_t count, int64_t k) const {
    double sum = 0;
    for (int64_t row = first * hidden_; row < (first + count) * hidden_; ++row) {
      sum += dgates[row] * call_.input(kR)[(d_ * gates_ * hidden_ + row) * hidden_ + k];
    }
    return sum;
  }

  void StepLstm(int64_t t, int64_t before) {
    const int64_t n = hidden_;
    const bool couple = call_.attributes().Int("input_forget", 0) != 0;
    Row old = State(kInitialC);
    for (int64_t i = 0; i < n && before >= 0; ++i) {
      old[i] = call_.input(kCells)[FlatRow(before) * n + i];
    }
    Put(kPreviousC, t, old);
    Row dgates(4 * n);
    for (int64_t i = 0; i < n; ++i) {
      const double c = call_.input(kCells)[FlatRow(t) * n + i];
      const Gate in = GateAt(t, i, 0);
      const Gate out = GateAt(t, n + i, 0);
      const Gate forget = couple ? Gate{1 - in.value, 0} : GateAt(t, 2 * n + i, 0);
      const Gate candidate = GateAt(t, 3 * n + i, 1);
      const Activation& shown = activations_[2];
      const double dout = dh_[i] * shown(c) * out.slope;
      const double dc = dc_[i] + dh_[i] * out.value * shown.Slope(c) + dout * Peephole(1, i);
      const double din = dc * (candidate.value - (couple ? old[i] : 0)) * in.slope;
      const double dforget = dc * old[i] * forget.slope;
      dgates[i] = din;
      dgates[n + i] = dout;
      dgates[2 * n + i] = dforget;
      dgates[3 * n + i] = dc * in.value * candidate.slope;
      dc_[i] = dc * forget.value + din * Peephole(0, i) + dforget * Peephole(2, i);
    }
    Put(kDgates, t, dgates);
    for (int64_t k = 0; k < n; ++k) dh_[k] = ThroughR(dgates, 0, 4, k);
  }

  void StepGru(int64_t t, const Row& old) {
    const int64_t n = hidden_;
    const bool linear = call_.attributes().Int("linear_before_reset", 0) != 0;
    Row dgates(3 * n);
    Row dstate(3 * n);
    Row seen(n);
    for (int64_t i = 0; i < n; ++i) {
      const Gate update = GateAt(t, i, 0);
      const Gate reset = GateAt(t, n + i, 0);
      const Gate candidate = GateAt(t, 2 * n + i, 1);
      dgates[i] = dh_[i] * (old[i] - candidate.value) * update.slope;
      dgates[2 * n + i] = dh_[i] * (1 - update.value) * candidate.slope;
      dstate[2 * n + i] = linear ? dgates[2 * n + i] * reset.value : dgates[2 * n + i];
      seen[i] = reset.value * old[i];
    }
    Row next(n);
    for (int64_t i = 0; i < n; ++i) {
      const Gate reset = GateAt(t, n + i, 0);
      const double dseen = linear ? 0 : ThroughR(dstate, 2, 1, i);
      const double dreset =
          linear ? dgates[2 * n + i] * call_.input(kGates)[FlatRow(t) * 4 * n + 3 * n + i]
                 : dseen * old[i];
      dgates[n + i] = dreset * reset.slope;
      next[i] = dh_[i] * GateAt(t, i, 0).value + dseen * reset.value;
    }
    std::copy_n(dgates.begin(), 2 * n, dstate.begin());
    for (int64_t k = 0; k < n; ++k) next[k] += ThroughR(dstate, 0, linear ? 3 : 2, k);
    dh_ = std::move(next);
    Put(kDgates, t, dgates);
    Put(kDfromState, t, dstate);
    Put(kSeen, t, seen);
  }

  void StepRnn(int64_t t) {
    Row dgates(hidden_);
    for (int64_t i = 0; i < hidden_; ++i) dgates[i] = dh_[i] * GateAt(t, i, 0).slope;
    Put(kDgates, t, dgates);
    for (int64_t k = 0; k < hidden_; ++k) dh_[k] = ThroughR(dgates, 0, 1, k);
  }

  ReferenceCall& call_;
  const int64_t gates_;
  const int64_t d_;
  const int64_t b_;
  std::vector<Activation> activations_;  // of this direction
  bool batch_first_;
  bool keeps_activated_;
  double clip_;
  int64_t directions_;
  int64_t time_;
  int64_t batch_;
  int64_t hidden_;
  Row dh_;
  Row dc_;
};

ReferenceFn Backward(int64_t gates, std::vector<std::string> fallback) {
  return [=](ReferenceCall& call) -> absl::Status {
    const Shape& rows = call.input(BackwardWalk::kGates).shape;
    const int64_t batch = rows.dim(call.attributes().Int("layout", 0) == 1 ? 1 : 2);
    WEFT_ASSIGN_OR_RETURN(
        const std::vector<Activation> activations,
        ReadActivations(call.attributes(), fallback, static_cast<int>(rows.dim(0))));
    for (int64_t d = 0; d < rows.dim(0); ++d) {
      for (int64_t b = 0; b < batch; ++b) BackwardWalk(call, activations, gates, d, b).Run();
    }
    return absl::OkStatus();
  };
}

}  // namespace

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "LstmGrad",
                               ReferenceKernel(Backward(4, {"Sigmoid", "Tanh", "Tanh"})));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "GruGrad",
                               ReferenceKernel(Backward(3, {"Sigmoid", "Tanh"})));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "RnnGrad", ReferenceKernel(Backward(1, {"Tanh"})));

}  // namespace weft::cpu
