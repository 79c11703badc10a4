// What the gradients of RNN, GRU and LSTM share: step by step from the last to the first, the
// gradients of the gates' arguments. The products that they enter over all steps at once (with X,
// W and the states) are nodes of their own (ops/defs/recurrent/recurrent_gradient.cc).
#ifndef WEFT_OPS_KERNELS_CPU_RECURRENT_RECURRENT_GRAD_H_
#define WEFT_OPS_KERNELS_CPU_RECURRENT_RECURRENT_GRAD_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "ops/kernels/cpu/recurrent/recurrent.h"

namespace weft::cpu {

// Of ai.weft::LstmGrad, GruGrad and RnnGrad; the latter two have neither cells nor peepholes.
enum RecurrentGradInput {
  kGradY,
  kGradFinalH,
  kGradFinalC,
  kGradR,
  kGradP,
  kGradLengths,
  kGradInitialH,
  kGradInitialC,
  kGradKnownY,
  kGradGates,
  kGradCells,
  kRecurrentGradInputs
};
// Rows [directions, rows of X, ...] but for the initial states' gradients.
enum RecurrentGradOutput {
  kGradOfGates,        // [.., gates], of the arguments
  kGradPreviousH,      // [.., hidden], the state before each step
  kGradOfInitialH,     // as the state
  kGradPreviousC,      // LSTM: [.., hidden]
  kGradOfInitialC,     // LSTM: as the state
  kGradFromState = 3,  // GRU: [.., gates], of what the states added to the arguments
  kGradSeen = 4,       // GRU: [.., hidden], the state that the candidate saw
  kRecurrentGradOutputs
};

inline RecurrentGeometry RecurrentGradGeometryOf(const PrepareContext& context,
                                                 int64_t gate_count) {
  const Shape& gates = context.InputShape(kGradGates);
  RecurrentGeometry geometry;
  geometry.batch_first = context.attributes().Int("layout", 0) == 1;
  geometry.directions = gates.dim(0);
  geometry.time = gates.dim(geometry.batch_first ? 2 : 1);
  geometry.batch = gates.dim(geometry.batch_first ? 1 : 2);
  geometry.hidden = context.InputShape(kGradR).dim(2);
  geometry.gate_count = gate_count;
  return geometry;
}

// S: float or double. A cell derives from it.
template <typename S>
class RecurrentGradKernel : public Kernel {
 public:
  size_t workspace_bytes() const override { return layout_.total(); }

  absl::Status Run(const KernelContext& context) override {
    if (has_input_[kGradLengths]) {
      WEFT_RETURN_IF_ERROR(CheckSequenceLengths(name_, op_, Input<int32_t>(context, kGradLengths),
                                                geometry_.batch, geometry_.time));
    }
    for (int64_t d = 0; d < geometry_.directions; ++d) {
      LoadFinal(context, kGradFinalH, d, Values(context, dh_));
      WEFT_RETURN_IF_ERROR(StartDirection(context, d));
      for (int64_t step = geometry_.time - 1; geometry_.batch > 0 && step >= 0; --step) {
        WEFT_RETURN_IF_ERROR(Step(context, d, step));
      }
      for (int64_t b = 0; b < geometry_.batch; ++b) Arrived(context, b, LengthOf(context, b) > 0);
      StoreInitial(context, kGradOfInitialH, d, Values(context, dh_));
      EndDirection(context, d);
    }
    return absl::OkStatus();
  }

 protected:
  // May throw dnnl::error. `adds`: what a cell leaves in Dh is added to what comes through R.
  RecurrentGradKernel(const PrepareContext& context, const RecurrentGeometry& geometry, bool adds)
      : geometry_(geometry),
        threads_(OnednnThreads(context)),
        clip_(context.attributes().Float("clip", 0.0f)),
        adds_(adds),
        name_(context.node().name),
        op_(context.node().op) {
    reverse_[0] = context.attributes().String("direction", "forward") == "reverse";
    reverse_[1] = true;
    for (int i = 0; i < kRecurrentGradInputs; ++i) has_input_[i] = context.HasInput(i);
    for (int i = 0; i < kRecurrentGradOutputs; ++i) has_output_[i] = context.HasOutput(i);
    dh_ = Reserve(geometry_.batch * geometry_.hidden);
    through_r_ = Reserve(geometry_.batch * geometry_.hidden);
  }

  // Packs R and loads what the cell carries beside h.
  virtual absl::Status StartDirection(const KernelContext& context, int64_t d) = 0;
  // Step `step` of each sample, with ForEachSample; leaves what comes through R in ThroughR.
  virtual absl::Status Step(const KernelContext& context, int64_t d, int64_t step) = 0;
  virtual void EndDirection(const KernelContext&, int64_t) {}

  size_t Reserve(int64_t count) { return layout_.Add(static_cast<size_t>(count) * sizeof(S)); }
  S* Values(const KernelContext& context, size_t offset) const {
    return static_cast<S*>(At(context.workspace, offset));
  }
  S* ThroughR(const KernelContext& context) const { return Values(context, through_r_); }
  S* Dh(const KernelContext& context, int64_t b) const {
    return Values(context, dh_) + b * geometry_.hidden;
  }
  bool HasInput(int i) const { return has_input_[i]; }

  int64_t LengthOf(const KernelContext& context, int64_t b) const {
    return has_input_[kGradLengths] ? Input<int32_t>(context, kGradLengths)[b] : geometry_.time;
  }
  // The time that step `step` of sample b is at; step < its length.
  int64_t TimeOf(const KernelContext& context, int64_t d, int64_t b, int64_t step) const {
    return reverse_[d] ? LengthOf(context, b) - 1 - step : step;
  }
  // Row (t, b) of an operand of rows of this width; null for an output that is not wanted.
  const S* InputRow(const KernelContext& context, int i, int64_t width, int64_t d, int64_t t,
                    int64_t b) const {
    return Input<S>(context, i) + (d * geometry_.rows() + geometry_.row(t, b)) * width;
  }
  S* OutputRow(const KernelContext& context, int i, int64_t width, int64_t d, int64_t t,
               int64_t b) const {
    if (!has_output_[i]) return nullptr;
    return Output<S>(context, i) + (d * geometry_.rows() + geometry_.row(t, b)) * width;
  }
  // The state before step `step`; null for zeros.
  const S* PreviousH(const KernelContext& context, int64_t d, int64_t b, int64_t step) const {
    if (step > 0) {
      const int64_t t = TimeOf(context, d, b, step - 1);
      return Input<S>(context, kGradKnownY) + geometry_.y_offset(t, d, b);
    }
    if (!has_input_[kGradInitialH]) return nullptr;
    return Input<S>(context, kGradInitialH) + geometry_.state_offset(d, b);
  }

  // Calls body(b, t) for the samples that have step `step`, with all that has arrived at the state
  // after it in Dh(b), after having written the row of the state before it. Rows of the others are
  // made zero in outputs of the widths `widths`, by output.
  template <typename Fn>
  void ForEachSample(const KernelContext& context, int64_t d, int64_t step, const int64_t* widths,
                     Fn body) const {
    const double nanoseconds = 2.0 * static_cast<double>(geometry_.gates());
    ParallelFor(threads_, geometry_.batch, nanoseconds, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        if (step < LengthOf(context, b)) {
          const int64_t t = TimeOf(context, d, b, step);
          Arrived(context, b, step + 1 < LengthOf(context, b));
          AddOutputGradient(context, d, t, b);
          CopyPrevious(context, d, step, t, b);
          body(b, t);
        } else {
          ClearRows(context, d, step, b, widths);
        }
      }
    });
  }

  void LoadFinal(const KernelContext& context, int input, int64_t d, S* state) const {
    const int64_t n = geometry_.hidden;
    for (int64_t b = 0; b < geometry_.batch; ++b) {
      if (has_input_[input]) {
        std::copy_n(Input<S>(context, input) + geometry_.state_offset(d, b), n, state + b * n);
      } else {
        std::fill_n(state + b * n, n, S(0));
      }
    }
  }
  void StoreInitial(const KernelContext& context, int output, int64_t d, const S* state) const {
    if (!has_output_[output]) return;
    const int64_t n = geometry_.hidden;
    for (int64_t b = 0; b < geometry_.batch; ++b) {
      std::copy_n(state + b * n, n, Output<S>(context, output) + geometry_.state_offset(d, b));
    }
  }
  static void CopyOrClear(const S* from, int64_t count, S* to) {
    if (to == nullptr) return;
    if (from == nullptr) {
      std::fill_n(to, count, S(0));
    } else {
      std::copy_n(from, count, to);
    }
  }

  const RecurrentGeometry geometry_;
  const int threads_;
  const float clip_;
  WorkspaceLayout layout_;

 private:
  // Puts together what a later step has left for the state of sample b.
  void Arrived(const KernelContext& context, int64_t b, bool from_later_step) const {
    if (!from_later_step) return;
    const int64_t n = geometry_.hidden;
    S* const dh = Dh(context, b);
    const S* const through_r = Values(context, through_r_) + b * n;
    if (!adds_) {
      std::copy_n(through_r, n, dh);
      return;
    }
    for (int64_t i = 0; i < n; ++i) dh[i] += through_r[i];
  }

  void AddOutputGradient(const KernelContext& context, int64_t d, int64_t t, int64_t b) const {
    if (!has_input_[kGradY]) return;
    const S* const dy = Input<S>(context, kGradY) + geometry_.y_offset(t, d, b);
    S* const dh = Dh(context, b);
    for (int64_t i = 0; i < geometry_.hidden; ++i) dh[i] += dy[i];
  }

  void CopyPrevious(const KernelContext& context, int64_t d, int64_t step, int64_t t,
                    int64_t b) const {
    const int64_t n = geometry_.hidden;
    CopyOrClear(PreviousH(context, d, b, step), n, OutputRow(context, kGradPreviousH, n, d, t, b));
  }

  void ClearRows(const KernelContext& context, int64_t d, int64_t t, int64_t b,
                 const int64_t* widths) const {
    for (int i = 0; i < kRecurrentGradOutputs; ++i) {
      if (widths[i] > 0) CopyOrClear(nullptr, widths[i], OutputRow(context, i, widths[i], d, t, b));
    }
  }

  const bool adds_;
  const std::string name_;
  const std::string op_;
  bool reverse_[2];
  bool has_input_[kRecurrentGradInputs];
  bool has_output_[kRecurrentGradOutputs];
  size_t dh_ = 0;         // of the state after a step; then what the cell leaves there
  size_t through_r_ = 0;  // of the state before it, by way of the gates
};

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_RECURRENT_RECURRENT_GRAD_H_
